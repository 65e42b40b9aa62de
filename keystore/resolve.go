package keystore

import "fmt"

// Resolve returns s with its defaults filled in; or, if s is the zero Service
// and keys is or embeds a [Cached], the Service of that. The error says all that
// is wrong with s, or names both if keys is a Cached of another Service. keys
// may be nil.
func (s Service) Resolve(keys Store) (Service, error) {
	cache, _ := cacheOf(keys)
	if cache != nil && s.isZero() {
		return cache.options.Service, nil
	}
	s = s.withDefaults()
	if err := s.validate(); err != nil {
		return Service{}, err
	}
	if cache != nil {
		return s, s.sameAs(cache.options.Service)
	}
	return s, nil
}

func (s Service) isZero() bool {
	return s.Scopes == nil && s.Prefix == "" && len(s.Legacy) == 0
}

// sameAs returns an error that names what differs in s and in other, that of
// the Cached below. Both have their defaults. Functions cannot be compared: two
// legacy formats of one name and prefix are the same.
func (s Service) sameAs(other Service) error {
	tokens := func(s Service) string { return "tokens " + s.begin(Production) + "… and " + s.begin(Sandbox) + "…" }
	legacy := func(s Service) string {
		if len(s.Legacy) == 0 {
			return "no legacy tokens"
		}
		text := "legacy tokens"
		for _, l := range s.Legacy {
			text += fmt.Sprintf(" %s (%s…)", l.Name, l.Prefix)
		}
		return text
	}
	scopes := func(s Service) string { return "scopes " + s.Scopes.String() }
	for _, of := range []func(Service) string{tokens, legacy, scopes} {
		if of(s) != of(other) {
			return fmt.Errorf("keystore: two services meet: one has %s; the Cached below it has %s: give both the same one",
				of(s), of(other))
		}
	}
	if s.Scopes != other.Scopes {
		return fmt.Errorf("keystore: two registries meet that both have %s, here and in the Cached below; "+
			"make one and keep it", scopes(s))
	}
	return nil
}
