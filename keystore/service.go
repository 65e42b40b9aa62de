package keystore

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/sallyport-go/sallyport/scope"
)

const (
	maxPrefix = 16 // characters, of a prefix and of a word for an environment
	maxToken  = 256
)

// A Service says once what the keys of a service may do and what their tokens
// look like. The zero Service is that of the contract.
//
// A program gives it to the [Cached] in front of its store. An [Issuer] and
// middleware over that Cached need none of their own; those over another store
// are given the same one. Where two that meet differ, the program does not
// start.
//
// A token of a service with the Prefix "acme" is
//
//	acme_live_ or acme_test_, 32 random and 6 checksum characters of [0-9A-Za-z]
//
// The checksum is the CRC-32 (IEEE) of all that stands before it, in base 62
// with the most significant digit first. It makes a typing error, a truncated
// copy or an edited environment visible without asking a store, and lets a
// secret scanner tell a token from noise. It is public and proves nothing.
//
// A Service is safe for concurrent use.
type Service struct {
	// Scopes are those that keys can have. Nil means [scope.Contract].
	Scopes *scope.Registry

	// Prefix is the service's own abbreviation: 1 to 16 lower-case letters and
	// digits. Empty means "svc".
	Prefix string

	// Live and Test are the words for [Production] and [Sandbox] in a token: 1
	// to 16 lower-case letters and digits, but not "pub", which marks a
	// publishable key. Empty means "live" and "test".
	Live, Test string

	// Legacy are shapes of an older system's tokens that are also accepted.
	Legacy []LegacyFormat
}

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
		return s, err
	}
	if cache != nil {
		return s, s.sameAs(cache.options.Service)
	}
	return s, nil
}

func (s Service) isZero() bool {
	return s.Scopes == nil && s.Prefix == "" && s.Live == "" && s.Test == "" && len(s.Legacy) == 0
}

func (s Service) withDefaults() Service {
	s.Scopes = cmp.Or(s.Scopes, scope.Contract())
	s.Prefix = cmp.Or(s.Prefix, "svc")
	s.Live = cmp.Or(s.Live, "live")
	s.Test = cmp.Or(s.Test, "test")
	return s
}

func (s Service) validate() error {
	var errs []error
	for _, part := range []struct{ name, text string }{{"prefix", s.Prefix}, {"word", s.Live}, {"word", s.Test}} {
		bad := func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9') }
		switch {
		case len(part.text) > maxPrefix:
			errs = append(errs, fmt.Errorf("keystore: %s %q is longer than %d characters", part.name, part.text,
				maxPrefix))
		case strings.ContainsFunc(part.text, bad):
			errs = append(errs, fmt.Errorf("keystore: %s %q has other characters than a-z and 0-9", part.name,
				part.text))
		case part.name == "word" && part.text == publishable:
			errs = append(errs, fmt.Errorf("keystore: word %q marks a publishable key and no environment", part.text))
		}
	}
	if s.Live == s.Test {
		errs = append(errs, fmt.Errorf("keystore: the word %q stands for both environments", s.Live))
	}
	return errors.Join(append(errs, s.validateLegacy())...)
}

// sameAs returns an error that names what differs in s and in other, that of
// the Cached below. Both have their defaults. Functions cannot be compared: two
// legacy shapes of one name and prefix are the same.
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
			return fmt.Errorf("keystore: two services meet: one has %s; the Cached below it has %s", of(s), of(other))
		}
	}
	if s.Scopes != other.Scopes {
		return fmt.Errorf("keystore: two registries meet that both have %s, here and in the Cached below; "+
			"make one and keep it", scopes(s))
	}
	return nil
}

// word returns the part of a token that stands for e, or "".
func (s Service) word(e Environment) string {
	switch e {
	case Production:
		return cmp.Or(s.Live, "live")
	case Sandbox:
		return cmp.Or(s.Test, "test")
	}
	return ""
}

// begin returns what the tokens of an environment begin with.
func (s Service) begin(e Environment) string {
	return s.prefix() + "_" + s.word(e) + "_"
}

func (s Service) prefix() string { return cmp.Or(s.Prefix, "svc") }
