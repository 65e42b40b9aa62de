package keystore

import "fmt"

// Resolve returns s with its defaults filled in, and the store that keeps keys,
// which may be nil. The error says all that is wrong with s.
//
// If keys is or embeds a [Cached], the zero Service stands for that of the
// Cached, and for another one the error names both. The store is the one behind
// the Cached; it is nil if keys embeds it, and may have methods of its own.
func (s Service) Resolve(keys Store) (Service, Store, error) {
	cache, itself := cacheOf(keys)
	zero := s.Scopes == nil && s.Prefix == "" && len(s.Legacy) == 0
	s = s.withDefaults()
	err := s.validate()
	switch {
	case cache == nil:
		return s, keys, err
	case zero:
		s = cache.options.Service
	case err == nil:
		err = s.sameAs(cache.options.Service)
	}
	if !itself {
		return s, nil, err
	}
	return s, cache.store, err
}

// sameAs returns an error that names what differs in s and in other, that of the
// Cached below. Legacy formats of one name and prefix are taken for the same.
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
