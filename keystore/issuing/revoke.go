package issuing

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// Revoke ends a key for good, now. Its reason is that of [Issuer.By], or
// [ReasonOther]. Revoking it again changes nothing and is no error. It returns
// [keystore.ErrNotFound] for a key of another organization.
func (i *Issuer) Revoke(ctx context.Context, organization, id string) (*keystore.Key, error) {
	i = i.By(i.actor, cmp.Or(i.reason, ReasonOther))
	if p := i.actProblems(); p != nil {
		return nil, p.err()
	}
	return i.retire(ctx, organization, id, field.Now())
}

// retire revokes a key at the given instant unless it ends before that.
func (i *Issuer) retire(ctx context.Context, organization, id string, at time.Time) (*keystore.Key, error) {
	return i.rewrite(ctx, "revoke", organization, id, func(k *keystore.Key) {
		if k.RevokedAt.IsZero() || k.RevokedAt.After(at) {
			k.RevokedAt = at
		}
	})
}

// rewrite changes a key. It tries until no other writer comes between reading
// and writing.
func (i *Issuer) rewrite(
	ctx context.Context, act, organization, id string, change func(*keystore.Key),
) (*keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return nil, err
	}
	// Each conflict means that another writer succeeded. This many in a row
	// mean that the store handles versions wrongly.
	const attempts = 32
	for range attempts {
		before, err := i.Key(ctx, organization, id)
		if err != nil {
			return nil, err
		}
		after := before.Clone()
		change(after)
		if changesOf(before, after) == nil {
			i.forget(before) // another process may have changed it, which this one may not know yet
			return before, nil
		}
		switch err := i.write(ctx, act, before, after, 0); {
		case err == nil:
			after.Version++
			return after, nil
		case !errors.Is(err, ErrConflict):
			return nil, err
		}
	}
	return nil, ErrConflict
}
