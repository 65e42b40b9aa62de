package keystore

import (
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
// whatever its status. It returns [ErrNotFound] when none has one, and any other
// error of s as it is. It returns an error that wraps [ErrCorrupt] when s gave
// neither a key nor an error, a key of another digest or environment, or one that
// is legacy, or a child, where the token is not, or the reverse.
//
// When s is or embeds a [Cached] that remembers one of the digests, that one is
// asked for first, so that a key in use costs one look-up and does not wait
// behind strange tokens. What a Cached promises after a revocation holds for the
// token. Caller does not allocate when a Cached answers from memory, and r is its
// registry. A type that embeds a Cached is asked by its own Lookup.
func (t *Token) Caller(ctx context.Context, s Store, r *scope.Registry) (*Caller, error) {
	cache, itself := cacheOf(s)
	digests := t.digests
	if cache != nil && t.n > 1 {
		if i := slices.IndexFunc(t.digests[:t.n], cache.wasUsable); i > 0 {
			digests[0] = t.digests[i]
			copy(digests[1:], t.digests[:i])
		}
	}
	for _, d := range digests[:t.n] {
		var c *Caller
		var err error
		if itself {
			c, err = cache.caller(ctx, d)
		} else {
			var k *Key
			if k, err = lookup(ctx, s, d); err == nil {
				c = k.Bind(r)
			}
		}
		if err == nil {
			err = t.owns(c)
		}
		switch {
		case err == nil:
			return c.bind(r), nil
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return nil, ErrNotFound
}

// Remembered says without asking a store, if s is or embeds a [Cached], whether
// the token was usable when the store was last asked, however long ago. If the key
// is usable now it returns the Caller too, as [Token.Caller] does, but not for a
// type that embeds a Cached, which decides by its own Lookup.
func (t *Token) Remembered(s Store, r *scope.Registry) (c *Caller, wasUsable bool) {
	cache, itself := cacheOf(s)
	if cache == nil {
		return nil, false
	}
	for _, d := range t.digests[:t.n] {
		if itself {
			if c := cache.usable(d); c != nil && t.owns(c) == nil {
				return c.bind(r), true
			}
		}
		wasUsable = wasUsable || cache.wasUsable(d)
	}
	return nil, wasUsable
}

// lookup asks the store for a key, and checks that it is that of the digest.
func lookup(ctx context.Context, s Store, d Digest) (*Key, error) {
	k, err := s.Lookup(ctx, d)
	if err == nil {
		err = k.fits(d)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}
