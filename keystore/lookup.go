package keystore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/sallyport-go/sallyport/scope"
)

// Caller finds the key of the token in s, and returns its [Caller], with those
// scopes that r knows; a nil r is [scope.Default]. It returns the Caller of a
// key that has ended too: ask [Caller.Refused].
//
// It asks for one digest after the other, and the first that has a key decides,
// whatever the status of that key. It returns [ErrNotFound] when none has one,
// and any other error of s as it is. It returns an error that wraps
// [ErrCorrupt] when s gave a key of another digest or environment, no key and no
// error, or where one of key and token is legacy, or a child's, and the other is
// not.
//
// When s is a [Cached] that remembers one of the digests, that one is asked for
// first: a key in use costs one look-up, and does not wait behind questions
// about tokens that nobody has seen before. What a Cached promises after a
// revocation holds for each digest, and so for the token. Caller does not
// allocate when the Cached answers from memory, and r is its registry. A type
// that embeds a Cached is asked by its own Lookup.
func (t *Token) Caller(ctx context.Context, s Store, r *scope.Registry) (*Caller, error) {
	r = cmp.Or(r, scope.Default())
	cache, itself := cacheOf(s)
	if !itself {
		k, err := t.lookup(ctx, s, cache)
		if err != nil {
			return nil, err
		}
		return k.Bind(r), nil
	}
	c, _, err := first(ctx, t, cache, cache.caller)
	if err != nil {
		return nil, err
	}
	if err := t.ownsCaller(c); err != nil {
		return nil, err
	}
	return c.Bind(r), nil
}

// lookup returns the key of the token in s. The cache, which may be nil, says
// which of its digests was usable.
func (t *Token) lookup(ctx context.Context, s Store, cache *Cached) (*Key, error) {
	k, d, err := first(ctx, t, cache, s.Lookup)
	if err != nil {
		return nil, err
	}
	if err := k.fits(d); err != nil {
		return nil, err
	}
	if err := t.owns(k.ID, k.Environment, k.Legacy, k.Parent != ""); err != nil {
		return nil, err
	}
	return k, nil
}

// first asks for one digest of t after the other, until there is an answer. The
// cache, which may be nil, says which was usable.
func first[T any](
	ctx context.Context, t *Token, cache *Cached, ask func(context.Context, Digest) (T, error),
) (T, Digest, error) {
	digests := t.digests
	if cache != nil && t.n > 1 {
		if i := slices.IndexFunc(t.Digests(), cache.wasUsable); i > 0 {
			digests[0] = t.digests[i]
			copy(digests[1:], t.digests[:i])
		}
	}
	for _, d := range digests[:t.n] {
		if found, err := ask(ctx, d); !errors.Is(err, ErrNotFound) {
			return found, d, err
		}
	}
	var none T
	return none, Digest{}, ErrNotFound
}
