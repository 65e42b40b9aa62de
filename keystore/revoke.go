package keystore

import (
	"context"
	"errors"
	"time"
)

// Revoke ends a key for good, now. Revoking it again changes nothing and is no
// error. It returns [ErrNotFound] for a key of another organization.
func (i *Issuer) Revoke(ctx context.Context, organization, id string) (*Key, error) {
	return i.retire(ctx, organization, id, instant())
}

// retire revokes a key at the given instant unless it ends before that.
func (i *Issuer) retire(ctx context.Context, organization, id string, at time.Time) (*Key, error) {
	return i.change(ctx, organization, id, func(k *Key) bool {
		if !k.RevokedAt.IsZero() && !k.RevokedAt.After(at) {
			return false
		}
		k.RevokedAt = at
		return true
	})
}

// change applies edit to a key until no other writer comes between reading and
// writing. edit reports whether there is anything to write.
func (i *Issuer) change(ctx context.Context, organization, id string, edit func(*Key) bool) (*Key, error) {
	// Each conflict means that another writer succeeded. This many in a row
	// mean that the store handles versions wrongly.
	const attempts = 32
	for range attempts {
		k, err := i.Key(ctx, organization, id)
		if err != nil {
			return nil, err
		}
		if !edit(k) {
			// Another process may have made the same change, and the cache of
			// this one may not know yet.
			if cache, ok := i.manager.(interface{ Invalidate(Digest) }); ok {
				cache.Invalidate(k.Digest)
			}
			return k, nil
		}
		switch err := i.manager.Update(ctx, k); {
		case err == nil:
			k.Version++
			return k, nil
		case !errors.Is(err, ErrConflict):
			return nil, err
		}
	}
	return nil, ErrConflict
}
