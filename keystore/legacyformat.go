package keystore

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

const (
	minLegacy     = 16 // bytes; a shorter token can be guessed, and its hint shows too much
	maxToken      = 256
	maxLegacyName = 32
	maxDigests    = 4  // each is a question to the store about an unknown token
	minPepper     = 14 // bytes: 112 bits, the least that NIST SP 800-131A allows for HMAC
)

// A LegacyFormat is a format of tokens that an older system issued, such as
// acme_ and 40 hexadecimal digits. A [Service] accepts them beside its own:
// package issuing imports the records, and a rotation replaces such a key by one
// of the present format.
//
// The older system must have issued random tokens, and have kept a hash of the
// token alone. Keys under a hash with a salt, such as bcrypt or Argon2, cannot be
// found by their token and have to be issued again.
//
// A legacy token has 16 to 256 bytes. It names no environment: that is the
// record's. A mistyped one costs a question to the store for each of its digests,
// since no checksum tells it from others.
type LegacyFormat struct {
	// Name marks the keys of this format, see [Key.Legacy]: 1 to 32 lower-case
	// letters, digits and hyphens. It is not part of the token.
	Name string

	// Prefix is what each token begins with, such as "acme_". Empty: anything.
	Prefix string

	// Match reports whether a token that begins with Prefix has the format, for
	// example the MatchString of a regexp.Regexp with ^ and $. It must not compare
	// the token with a secret: the time that takes says how much of it is right.
	// Nil: each has; Prefix must not be empty then.
	Match func(token string) bool

	// Digests returns the digests under which the key of a token can be stored, at
	// most 4, in the order in which they are asked for, or none when the token is
	// no key. It must not keep the token. Nil: [DigestOf]. See [HMACDigests].
	Digests func(token string) []Digest
}

// HMACDigests returns a function for [LegacyFormat.Digests] that yields the
// HMAC-SHA256 of the whole token with each of the peppers, the newest first. A
// pepper can be left out when no key is stored under it any more.
//
// It panics unless there are 1 to 4 peppers, each of at least 14 bytes and none
// the same as another. An older system with a shorter pepper needs a function
// of its own.
func HMACDigests(peppers ...[]byte) func(token string) []Digest {
	if len(peppers) == 0 || len(peppers) > maxDigests {
		panic(fmt.Sprintf("keystore: HMACDigests with %d peppers, want 1 to %d", len(peppers), maxDigests))
	}
	own := make([][]byte, len(peppers))
	for i, pepper := range peppers {
		if len(pepper) < minPepper {
			panic(fmt.Sprintf("keystore: HMACDigests with a pepper of %d bytes, want at least %d", len(pepper), minPepper))
		}
		if slices.ContainsFunc(own[:i], func(other []byte) bool { return bytes.Equal(pepper, other) }) {
			panic("keystore: HMACDigests with one pepper twice")
		}
		own[i] = bytes.Clone(pepper)
	}
	return func(token string) []Digest {
		digests := make([]Digest, len(own))
		for i, pepper := range own {
			h := hmac.New(sha256.New, pepper)
			h.Write(bytesOf(token))
			h.Sum(digests[i][:0])
		}
		return digests
	}
}

func (l LegacyFormat) validate() error {
	bad := func(r rune) bool { return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-') }
	switch {
	case l.Name == "" || len(l.Name) > maxLegacyName || strings.ContainsFunc(l.Name, bad):
		return fmt.Errorf("keystore: the name %q of a legacy format is not 1 to %d characters of a-z, 0-9 and -",
			l.Name, maxLegacyName)
	case l.Prefix == "" && l.Match == nil:
		return fmt.Errorf("keystore: the legacy format %q needs a Prefix or a Match, since any text would have it",
			l.Name)
	case len(l.Prefix) >= maxToken:
		return fmt.Errorf("keystore: the prefix of the legacy format %q is as long as the longest token", l.Name)
	}
	return nil
}
