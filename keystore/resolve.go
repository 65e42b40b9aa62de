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
	texts := func(s Service) [3]string {
		legacy := "no legacy tokens"
		if len(s.Legacy) > 0 {
			legacy = "legacy tokens"
		}
		for _, l := range s.Legacy {
			legacy += fmt.Sprintf(" %s (%s…)", l.Name, l.Prefix)
		}
		return [3]string{"tokens " + s.begin(Production) + "… and " + s.begin(Sandbox) + "…", legacy,
			"scopes " + s.Scopes.String()}
	}
	ours, theirs := texts(s), texts(other)
	for i, text := range ours {
		if text != theirs[i] {
			return fmt.Errorf("keystore: two services meet: one has %s; the Cached below it has %s: give both the same one",
				text, theirs[i])
		}
	}
	if s.Scopes != other.Scopes {
		return fmt.Errorf("keystore: two registries meet that both have %s, here and in the Cached below; "+
			"make one and keep it", ours[2])
	}
	return nil
}
