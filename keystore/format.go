package keystore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	defaultPrefix  = "svc"
	maxPrefix      = 16
	maxToken       = 256
	randomLength   = 32 // 62^32 is a little more than 2^190
	checksumLength = 6  // 62^6 is more than 2^32
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// A Format says what the tokens of a service look like:
//
//	svc_live_ or svc_test_, 32 random and 6 checksum characters of [0-9A-Za-z]
//
// The checksum is the CRC-32 (IEEE) of all that stands before it, in base 62
// with the most significant digit first. It makes a typing error, a truncated
// copy or an edited environment visible without asking a store, and lets a
// secret scanner tell a token from noise. It is public and proves nothing.
//
// The zero Format is ready to use. A Format is safe for concurrent use.
type Format struct {
	// Prefix is the service's own abbreviation: 1 to 16 lower-case letters and
	// digits. Empty means "svc".
	Prefix string

	// Legacy are other shapes of tokens that are also accepted. Nil: none.
	Legacy []LegacyFormat
}

// Validate returns what is wrong with f. A program that reads f from its
// configuration calls it: the other methods panic when the prefix is not valid.
func (f Format) Validate() error {
	return errors.Join(f.validatePrefix(), f.validateLegacy())
}

func (f Format) validatePrefix() error {
	if f.Prefix == "" {
		return nil
	}
	if len(f.Prefix) > maxPrefix {
		return fmt.Errorf("keystore: prefix %q is longer than %d characters", f.Prefix, maxPrefix)
	}
	for i := range len(f.Prefix) {
		if c := f.Prefix[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9') {
			return fmt.Errorf("keystore: prefix %q has other characters than a-z and 0-9", f.Prefix)
		}
	}
	return nil
}

func (f Format) prefix() string {
	if err := f.validatePrefix(); err != nil {
		panic(err.Error())
	}
	if f.Prefix == "" {
		return defaultPrefix
	}
	return f.Prefix
}

// Generate returns a new token for e, which must be known, with 190 random
// bits of [crypto/rand]. That package ends the program when the system has no
// randomness to give, so there is no error and no weak key.
func (f Format) Generate(e Environment) Secret {
	if !e.Known() {
		panic(fmt.Sprintf("keystore: cannot generate a key for environment %q", e))
	}
	b := make([]byte, 0, maxPrefix+len("_live_")+randomLength+checksumLength)
	b = append(b, f.prefix()...)
	b = append(b, '_')
	b = append(b, e.word()...)
	b = append(b, '_')
	b = appendRandom(b, randomLength)
	sum := checksum(string(b))
	return newSecret(string(append(b, sum[:]...)))
}

// appendRandom appends n characters, each equally likely to be any of base62.
func appendRandom(b []byte, n int) []byte {
	// 256 is not a multiple of 62: bytes from 248 on are drawn again, since
	// with them the first eight characters would come up more often.
	const fair = 256 - 256%len(base62)
	var random [64]byte
	for {
		rand.Read(random[:])
		for _, r := range random {
			if int(r) >= fair {
				continue
			}
			if n == 0 {
				return b
			}
			b = append(b, base62[int(r)%len(base62)])
			n--
		}
	}
}

// checksum returns the CRC-32 (IEEE) of s in base 62.
func checksum(s string) (sum [checksumLength]byte) {
	crc := crc32.ChecksumIEEE(bytesOf(s))
	for i := len(sum) - 1; i >= 0; i-- {
		sum[i] = base62[crc%uint32(len(base62))]
		crc /= uint32(len(base62))
	}
	return sum
}

// Parse returns the environment that token names, or a [*FormatError] when
// token does not have the shape above. It knows nothing of f.Legacy;
// [Format.Candidates] does. It does not allocate, and looks at no more than 256
// bytes of what a client sent.
func (f Format) Parse(token string) (Environment, error) {
	if len(token) > maxToken {
		return "", errTooLong
	}
	environment, err := f.parse(token)
	if err != nil && strings.ContainsFunc(token, foreign) {
		return "", errBadCharacter // whatever else is wrong
	}
	return environment, err
}

// foreign reports whether no token of any service has the character.
func foreign(c rune) bool {
	return c >= utf8.RuneSelf || !isBase62(byte(c)) && c != '_' && c != '-'
}

func (f Format) parse(token string) (Environment, error) {
	rest, ok := strings.CutPrefix(token, f.prefix())
	if !ok || rest == "" || rest[0] != '_' {
		return "", errOtherPrefix
	}
	word, secret := rest[1:], ""
	if i := strings.IndexByte(word, '_'); i >= 0 {
		word, secret = word[:i], word[i+1:]
	}
	environment, ok := environmentOf(word)
	switch {
	case word == "pub":
		return "", errPublishable
	case !ok:
		return "", errUnknownEnvironment
	case len(secret) != randomLength+checksumLength:
		return "", errBadLength
	}
	for i := range len(secret) {
		if !isBase62(secret[i]) {
			return "", errBadCharacter
		}
	}
	body := len(token) - checksumLength
	if sum := checksum(token[:body]); token[body:] != string(sum[:]) {
		return "", errBadChecksum
	}
	return environment, nil
}

func isBase62(c byte) bool {
	return (c|0x20)-'a' < 26 || c-'0' < 10 // 0x20 makes a letter small
}

// Claims reports whether a token begins like one of this service, in the
// present shape or in a legacy one with a Prefix. If not, it may belong to
// something else, as a JWT does.
func (f Format) Claims(token string) bool {
	if rest, ok := strings.CutPrefix(token, f.prefix()); ok && strings.HasPrefix(rest, "_") {
		return true
	}
	return slices.ContainsFunc(f.Legacy, func(l LegacyFormat) bool { return l.Prefix != "" && strings.HasPrefix(token, l.Prefix) })
}

// Pattern returns a regular expression, in the syntax common to RE2 and PCRE
// and without anchors, that matches the tokens Parse accepts. It does not know
// the checksum, so it also matches others.
func (f Format) Pattern() string {
	return fmt.Sprintf("%s_(live|test)_[0-9A-Za-z]{%d}", f.prefix(), randomLength+checksumLength)
}
