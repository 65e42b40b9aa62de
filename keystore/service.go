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
