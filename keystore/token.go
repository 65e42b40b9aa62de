package keystore

import (
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf8"
)

const (
	randomLength   = 32 // 62^32 is a little more than 2^190
	checksumLength = 6  // 62^6 is more than 2^32
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

	// ofChild stands before what the checksum of a child's token is computed from.
	// A version that knows no children, and asks for no ancestors, takes the token
	// for a mistyped one.
	ofChild = "delegated:"
)

// Generate returns a new token for a key of e; that of a child is told from
// others, and needs its Ancestors. It has 190 random bits of [crypto/rand], which
// ends the program when the system has no randomness to give, so there is no
// error and no weak key. Generate panics if e is not known or s is not valid.
func (s Service) Generate(e Environment, ancestors ...*Key) Secret {
	if !e.Known() {
		panic(fmt.Sprintf("keystore: cannot generate a key for environment %q", e))
	}
	if err := s.withDefaults().validate(); err != nil {
		panic(err.Error())
	}
	kind := ""
	if len(ancestors) > 0 {
		kind = ofChild
	}
	b := appendRandom([]byte(s.begin(e)), randomLength)
	sum := checksum(kind, string(b))
	return newSecret(string(append(b, sum[:]...)))
}

// appendRandom appends n characters, each equally likely to be any of base62.
func appendRandom(b []byte, n int) []byte {
	// Bytes from 248 on are drawn again: modulo 62 they would favour eight
	// characters.
	const fair = 256 - 256%len(base62)
	var random [64]byte
	for {
		rand.Read(random[:])
		for _, r := range random {
			switch {
			case n == 0:
				return b
			case int(r) < fair:
				b = append(b, base62[int(r)%len(base62)])
				n--
			}
		}
	}
}

// checksum returns the CRC-32 (IEEE) of kind and s in base 62.
func checksum(kind, s string) (sum [checksumLength]byte) {
	crc := crc32.Update(crc32.ChecksumIEEE(bytesOf(kind)), crc32.IEEETable, bytesOf(s))
	for i := len(sum) - 1; i >= 0; i-- {
		sum[i] = base62[crc%uint32(len(base62))]
		crc /= uint32(len(base62))
	}
	return sum
}

// Pattern returns a regular expression, in the syntax common to RE2 and PCRE
// and without anchors, that matches the tokens of the present format. It does
// not know the checksum, so it also matches others: see [Service] for what
// tells a key from them.
func (s Service) Pattern() string {
	return fmt.Sprintf("%s_(%s|%s)_[0-9A-Za-z]{%d}", s.prefix(), live, test, randomLength+checksumLength)
}

// A Token is what [Service.Parse] found in the text that a client sent: under
// which digests its key can be stored. It does not hold the text. The zero
// Token leads to no key.
type Token struct {
	Environment Environment // that the token names; empty for a legacy token, which names none
	Legacy      string      // the Name of its [LegacyFormat]; empty for the present format
	Child       bool        // of a key with a Parent

	digests [maxDigests]Digest // in the order in which they are asked for
	n       int
}

// A TokenError is the error of [Service.Parse] for a text that cannot be a key:
// what is wrong, in a sentence for whoever sent it. It holds no part of the
// text, so it can be logged and shown.
type TokenError string

func (e TokenError) Error() string {
	text := strings.TrimSuffix(string(e), ".")
	first := text[:min(1, len(text))]
	return "keystore: " + strings.ToLower(first) + text[len(first):]
}

// Constants, so that a flood of bad tokens costs no memory.
const (
	errTooLong      TokenError = "The key is longer than any key."
	errBadCharacter TokenError = "The key has a character that no key has; " +
		"it may have been copied with a quote or a line break."
	errOtherPrefix TokenError = "The key does not begin with the prefix of this service."
	errPublishable TokenError = "This is a publishable key, which is made for browsers. " +
		"This API needs a secret key."
	errUnknownEnvironment TokenError = "The key names no environment of this service; it may be mistyped."
	errBadLength          TokenError = "The key has the wrong length; it may have been cut off."
	errIncomplete         TokenError = "The key is mistyped or was not copied whole."
	errBadChecksum        TokenError = "The key is mistyped or has been altered."
)

// Parse reads the text of a token. It returns a [TokenError] when the text cannot
// be a key: then no store has to be asked. It returns another error when a
// LegacyFormat does not keep its contract: then the client MUST NOT be told that
// the text is no key.
//
// A token of the present format has one digest and is never taken for a legacy
// one. Otherwise the first format of s.Legacy that the text has decides. For a
// token of the present format, and for a text that has none, Parse does not
// allocate. It looks at no more than 256 bytes of what a client sent.
func (s Service) Parse(text string) (Token, error) {
	if len(text) > maxToken {
		return Token{}, errTooLong
	}
	environment, child, err := s.parse(text)
	if err == nil {
		return Token{Environment: environment, Child: child, digests: [maxDigests]Digest{DigestOf(text)}, n: 1}, nil
	}
	if strings.ContainsFunc(text, foreign) {
		err = errBadCharacter // whatever else is wrong
	}
	for i := range s.Legacy {
		l := &s.Legacy[i]
		if !strings.HasPrefix(text, l.Prefix) {
			continue
		}
		if len(text) >= minLegacy && (l.Match == nil || l.Match(text)) {
			return l.token(text)
		}
		// The error of the present format would be misleading here.
		if l.Prefix != "" && (err == errUnknownEnvironment || !strings.HasPrefix(text, s.prefix()+"_")) {
			err = errIncomplete
		}
	}
	return Token{}, err
}

// foreign reports whether no token of any service has the character.
func foreign(c rune) bool {
	return c >= utf8.RuneSelf || !isBase62(byte(c)) && c != '_' && c != '-'
}

func (s Service) parse(token string) (environment Environment, child bool, err error) {
	rest, ok := strings.CutPrefix(token, s.prefix())
	if !ok || rest == "" || rest[0] != '_' {
		return "", false, errOtherPrefix
	}
	word, secret, _ := strings.Cut(rest[1:], "_")
	switch word {
	case live:
		environment = Production
	case test:
		environment = Sandbox
	case publishable:
		return "", false, errPublishable
	default:
		return "", false, errUnknownEnvironment
	}
	if len(secret) != randomLength+checksumLength {
		return "", false, errBadLength
	}
	for i := range len(secret) {
		if !isBase62(secret[i]) {
			return "", false, errBadCharacter
		}
	}
	body := len(token) - checksumLength
	for _, kind := range [...]string{"", ofChild} {
		if sum := checksum(kind, token[:body]); token[body:] == string(sum[:]) {
			return environment, kind == ofChild, nil
		}
	}
	return "", false, errBadChecksum
}

func isBase62(c byte) bool {
	return (c|0x20)-'a' < 26 || c-'0' < 10 // 0x20 makes a letter small
}

// token returns the Token of a text that has the format.
func (l *LegacyFormat) token(text string) (Token, error) {
	if l.Digests == nil {
		return Token{Legacy: l.Name, digests: [maxDigests]Digest{DigestOf(text)}, n: 1}, nil
	}
	digests := l.Digests(text)
	switch n := len(digests); {
	case n == 0:
		return Token{}, errIncomplete
	case n > maxDigests:
		return Token{}, fmt.Errorf("keystore: the LegacyFormat %q gave %d digests, want at most %d", l.Name, n, maxDigests)
	}
	t := Token{Legacy: l.Name, n: len(digests)}
	copy(t.digests[:], digests)
	return t, nil
}

// owns returns an error unless the key that c was made of can be that of the
// token.
func (t *Token) owns(c *Caller) error {
	legacy, child := c.more().legacy, c.more().child != nil
	switch {
	case t.Child != child:
		return fmt.Errorf("%w: key %q has a parent: %v, and has the token of a child: %v",
			ErrCorrupt, c.KeyID(), child, t.Child)
	case t.Legacy == "" && c.Environment() != t.Environment:
		return fmt.Errorf("%w: key %q is of environment %q, and its token of %q",
			ErrCorrupt, c.KeyID(), c.Environment(), t.Environment)
	case (t.Legacy == "") != (legacy == ""):
		return fmt.Errorf("%w: key %q is marked %q as legacy, and its token is of the LegacyFormat %q",
			ErrCorrupt, c.KeyID(), legacy, t.Legacy)
	}
	return nil
}
