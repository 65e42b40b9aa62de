package keystore

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxPrefix = 16 // characters

	// The words for an environment in a token, and that of a key for browsers.
	live, test, publishable = "live", "test", "pub"
)

// A Service says once what the keys of a service may do and what their tokens
// look like. The zero Service has the prefix svc and the scopes of
// [scope.Default].
//
// A program gives it to the [Cached] in front of its store. An issuer and
// middleware over that Cached need none of their own; those over another store
// are given the same one. Where two that meet differ, the program does not
// start.
//
// A token of a service with the Prefix "acme" is
//
//	acme_live_ or acme_test_, 32 random and 6 checksum characters of [0-9A-Za-z]
//
// The checksum is the CRC-32 (IEEE) of all that stands before it, in base 62
// with the most significant digit first; for a child, of "delegated:" and all
// that stands before it. A typing error, a truncated copy or an edited
// environment shows without a store, and a secret scanner can tell a token from
// noise. It is public and proves nothing.
//
// A Service is safe for concurrent use.
type Service struct {
	// Scopes are those that keys can have. Nil means [scope.Default].
	Scopes *scope.Registry

	// Prefix is the service's own abbreviation: 1 to 16 lower-case letters and
	// digits. Empty means "svc".
	Prefix string

	// Legacy are formats of an older system's tokens that are also accepted.
	Legacy []LegacyFormat
}

func (s Service) withDefaults() Service {
	s.Scopes, s.Prefix = cmp.Or(s.Scopes, scope.Default()), s.prefix()
	return s
}

func (s Service) validate() error {
	var errs []error
	bad := func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9') }
	switch {
	case len(s.Prefix) > maxPrefix:
		errs = append(errs, fmt.Errorf("keystore: prefix %q is longer than %d characters", s.Prefix, maxPrefix))
	case strings.ContainsFunc(s.Prefix, bad):
		errs = append(errs, fmt.Errorf("keystore: prefix %q has other characters than a-z and 0-9", s.Prefix))
	}
	for i, l := range s.Legacy {
		errs = append(errs, l.validate())
		for _, earlier := range s.Legacy[:i] {
			if earlier.Name == l.Name {
				errs = append(errs, fmt.Errorf("keystore: there are two legacy formats %q", l.Name))
			} else if earlier.Match == nil && earlier.Prefix != "" && strings.HasPrefix(l.Prefix, earlier.Prefix) {
				errs = append(errs, fmt.Errorf("keystore: no token reaches the legacy format %q: %q stands before it "+
					"and has its prefix", l.Name, earlier.Name))
			}
		}
	}
	return errors.Join(errs...)
}

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

// Masked returns as much of k's token as may be shown, such as
// "svc_live_…a1b2", or "acme_…a1b2" for a legacy key.
func (s Service) Masked(k *Key) string {
	if k.Legacy == "" {
		return s.begin(k.Environment) + "…" + k.Hint
	}
	for _, l := range s.Legacy {
		if l.Name == k.Legacy {
			return l.Prefix + "…" + k.Hint
		}
	}
	return "…" + k.Hint
}

var words = map[Environment]string{Production: live, Sandbox: test}

// begin returns what the tokens of an environment begin with.
func (s Service) begin(e Environment) string {
	return s.prefix() + "_" + words[e] + "_"
}

func (s Service) prefix() string { return cmp.Or(s.Prefix, "svc") }
