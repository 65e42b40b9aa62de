package keystore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Candidates say what a token is and under which digests its key can be
// stored. [Format.Candidates] makes them; the zero Candidates lead to no key.
type Candidates struct {
	// Environment is the one that the token names. It is empty for a legacy
	// token, which names none.
	Environment Environment

	// Legacy is the Name of the token's [LegacyFormat]. It is empty for a token
	// of the present shape.
	Legacy string

	digests [maxDigests]Digest
	n       int
}

// Candidates says what a token is, before a store is asked. It returns a
// [*FormatError] when token cannot be a key: then no store has to be asked. It
// returns another error when a LegacyFormat does not keep its contract: then it
// is not known whether the token is a key, and the client MUST NOT be told that
// it is none.
//
// A token of the present shape has one digest and is never taken for a legacy
// one. Otherwise the first shape of f.Legacy that the token has decides. For a
// token of the present shape, and for one that has none, Candidates does not
// allocate.
func (f Format) Candidates(token string) (Candidates, error) {
	environment, err := f.Parse(token)
	if err == nil {
		c := Candidates{Environment: environment, n: 1}
		c.digests[0] = DigestOf(token)
		return c, nil
	}
	if len(token) > maxToken {
		return Candidates{}, err
	}
	for i := range f.Legacy {
		l := &f.Legacy[i]
		if !strings.HasPrefix(token, l.Prefix) {
			continue
		}
		if len(token) >= minLegacy && (l.Match == nil || l.Match(token)) {
			return l.candidates(token)
		}
		// The error of Parse would be misleading here.
		if l.Prefix != "" && !strings.HasPrefix(token, f.prefix()+"_") {
			err = errIncomplete
		}
	}
	return Candidates{}, err
}

// candidates returns those of a token that has the shape.
func (l *LegacyFormat) candidates(token string) (Candidates, error) {
	c := Candidates{Legacy: l.Name, n: 1}
	if l.Digests == nil {
		c.digests[0] = DigestOf(token)
		return c, nil
	}
	digests := l.Digests(token)
	if len(digests) == 0 {
		return Candidates{}, errIncomplete
	}
	if len(digests) > maxDigests {
		return Candidates{}, fmt.Errorf("keystore: the legacy shape %q gave %d digests, want at most %d", l.Name, len(digests), maxDigests)
	}
	c.n = copy(c.digests[:], digests)
	return c, nil
}

// Digests returns the digests in the order in which they are asked for. The
// first one can stand for the token. The slice belongs to c.
func (c *Candidates) Digests() []Digest { return c.digests[:c.n] }

// Lookup finds the key of the token in s. It asks for one digest after the
// other, and the first that has a key decides, whatever the status of that
// key. It returns [ErrNotFound] when none has one, and any other error of s as
// it is. It returns an error that wraps [ErrCorrupt] when s gave a key of
// another digest or environment, no key and no error, or a key without the
// mark of a legacy key for a legacy token or the other way round.
//
// When s is a [Cached] that remembers one of the digests, that one is asked for
// first: a key in use costs one look-up, and does not wait behind questions
// about tokens that nobody has seen before. What a Cached promises after a
// revocation holds for each digest, and so for the token.
func (c *Candidates) Lookup(ctx context.Context, s Store) (*Key, error) {
	if c.n > 1 {
		c = c.rememberedFirst(s)
	}
	for i := range c.n {
		d := &c.digests[i]
		k, err := s.Lookup(ctx, *d)
		if err == nil {
			return c.checked(k, d)
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	return nil, ErrNotFound
}

// rememberedFirst puts the digest that s remembers before the others.
func (c *Candidates) rememberedFirst(s Store) *Candidates {
	cache, ok := s.(interface{ Remembers(Digest) bool })
	if !ok {
		return c
	}
	i := slices.IndexFunc(c.Digests(), cache.Remembers)
	if i <= 0 {
		return c
	}
	ordered := *c
	ordered.digests[0] = c.digests[i]
	copy(ordered.digests[1:], c.digests[:i])
	return &ordered
}

// Peek returns the key of the token if cache, such as a [Cached], remembers it
// and it is usable now. No store is asked.
func (c *Candidates) Peek(cache interface{ Peek(Digest) (*Key, bool) }) (*Key, bool) {
	for i := range c.n {
		d := &c.digests[i]
		if k, ok := cache.Peek(*d); ok {
			if k, err := c.checked(k, d); err == nil && k.Refused() == nil {
				return k, true
			}
		}
	}
	return nil, false
}

// checked returns k if it is the key of the token. It fails closed: a mixed-up
// row must not let one organization act as another.
func (c *Candidates) checked(k *Key, d *Digest) (*Key, error) {
	switch {
	case k == nil:
		return nil, fmt.Errorf("%w: the store returned neither a key nor an error", ErrCorrupt)
	case k.Digest != *d:
		return nil, fmt.Errorf("%w: key %q came for the digest of another one", ErrCorrupt, k.ID)
	case !k.Environment.Known():
		return nil, fmt.Errorf("%w: key %q is of environment %q", ErrCorrupt, k.ID, k.Environment)
	case c.Legacy == "" && k.Environment != c.Environment:
		return nil, fmt.Errorf("%w: key %q is of environment %q, and its token of %q", ErrCorrupt, k.ID, k.Environment, c.Environment)
	case (c.Legacy == "") != (k.Legacy == ""):
		return nil, fmt.Errorf("%w: key %q is marked %q as legacy, and its token has the shape %q", ErrCorrupt, k.ID, k.Legacy, c.Legacy)
	}
	return k, nil
}
