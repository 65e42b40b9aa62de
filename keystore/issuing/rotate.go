package issuing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// A Rotation says which key [Issuer.Rotate] replaces, and how.
type Rotation struct {
	Organization, ID string // of the old key

	// Overlap is how long both keys work. Zero: the old one is revoked at once.
	Overlap time.Duration

	IssueToken string // of the new key

	// Token returns the new token, which [keystore.Service.Generate] drew for this
	// rotation, for a caller who keeps it before a key has it. Nil: one is drawn.
	Token func() string

	// The new key expires as the old one does, as far as the [Options] allow, or
	// at ExpiresAt, unless that is zero, or never.
	ExpiresAt    time.Time
	NeverExpires bool
}

// Rotate makes a key that replaces another one, with the same name, environment,
// scopes, attributes and networks, and a token of the [keystore.Service]. It
// revokes the old one, with [ReasonRotated], after the overlap, unless that ends
// before.
//
// A child cannot be rotated, and no key that is revoked, expired or suspended,
// for which the error is that of [keystore.Key.Refused]. It is a
// [*keystore.FieldsError] if Options.MaxKeys old keys or more still work and
// this one is to work on too, or if the expiry that is given is not valid or
// the Options refuse it. It is [ErrRotated] if the key has a successor, whoever
// made it; of several concurrent calls one succeeds. The successor can be rotated
// in turn.
//
// When the actor and the IssueToken made a key already, or the Token the key's
// successor, Rotate returns that key, no secret, and [ErrExists], after it has
// revoked the old key in case the first call could not. If it cannot either, the
// error is the store's.
//
// When the new key was stored and revoking the old one failed, Rotate returns
// the secret, the new key and the error: both work until [Issuer.Revoke].
//
// What an [Issuer.Edit] changes in the old key meanwhile is changed in the new
// one too. If that fails, Rotate returns the new key and the error, and no
// secret. Nor does it return one that Token has.
func (i *Issuer) Rotate(ctx context.Context, r Rotation) (keystore.Secret, *keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return keystore.Secret{}, nil, err
	}
	p := i.actProblems()
	p.addOwner(r.Organization, r.IssueToken)
	if r.Overlap < 0 {
		p.add("overlap", "The overlap is negative.")
	}
	if p != nil {
		return keystore.Secret{}, nil, p.err()
	}
	old, err := i.Key(ctx, r.Organization, r.ID)
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	// The first call may have revoked the old key: a repeat is recognized before.
	if existing, err := i.rotatedBefore(ctx, old, r); existing != nil || err != nil {
		return keystore.Secret{}, existing, cmp.Or(err, ErrExists)
	}
	now := field.Now()
	expires, expiryErr := i.expiry(old, r, now)
	switch err = old.Refused(); {
	case err != nil:
	case old.Parent != "":
		err = invalid("parent", "A child cannot be rotated; make another one.")
	case !old.Environment.Known():
		err = keystore.ErrCorrupt
	case expiryErr != nil:
		err = expiryErr
	case r.Overlap > 0:
		err = i.overlaps(ctx, r.Organization)
	}
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	secret, made := i.make(old, now)
	made.ExpiresAt, made.IssueToken, made.RotatedFrom = expires, r.IssueToken, r.ID
	if r.Token != nil {
		token := r.Token()
		secret, made.Digest, made.Hint = keystore.Secret{}, keystore.DigestOf(token), hintOf(token)
	}
	next, err := i.insert(ctx, "rotate", made, 0)
	if errors.Is(err, ErrExists) {
		next, findErr := i.rotatedBefore(ctx, old, r)
		return keystore.Secret{}, next, cmp.Or(findErr, err)
	}
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	retired, err := i.By(i.actor, ReasonRotated).retire(ctx, r.Organization, r.ID, now.Add(r.Overlap))
	byEdit := func(c Change) bool { return c.Field != "revoked_at" }
	if err != nil || !slices.ContainsFunc(changesOf(old, retired), byEdit) {
		return secret, next, err
	}
	edited, err := i.adapt(ctx, r, next, retired) // nobody has the secret yet
	if err != nil {
		return keystore.Secret{}, next, err
	}
	return secret, edited, nil
}

// adapt gives the new key made what was edited in the old one since. An edit only
// brings the expiry forward.
func (i *Issuer) adapt(ctx context.Context, r Rotation, made, old *keystore.Key) (*keystore.Key, error) {
	return i.rewrite(ctx, "edit", r.Organization, made.ID, func(k *keystore.Key) {
		k.Name, k.Scopes, k.Attributes, k.Networks = old.Name, old.Scopes, old.Attributes, old.Networks
		end := i.options.latest(old.ExpiresAt, made.CreatedAt)
		if k.Suspended = old.Suspended; r.ExpiresAt.IsZero() && !r.NeverExpires &&
			!end.IsZero() && (k.ExpiresAt.IsZero() || end.Before(k.ExpiresAt)) {
			k.ExpiresAt = end
		}
	})
}

// overlaps returns an error if Options.MaxKeys old keys of the organization, or
// more, work until a time that is set.
func (i *Issuer) overlaps(ctx context.Context, organization string) error {
	old, q := 0, Query{Limit: 200, Status: keystore.Active, OrStatus: keystore.Suspended}
	for i.options.MaxKeys > 0 {
		page, err := i.Keys(ctx, organization, q)
		if err != nil || len(page.Keys) == 0 {
			return err
		}
		for _, k := range page.Keys {
			if q.After = k; !k.RevokedAt.IsZero() {
				old++
			}
		}
		if old >= i.options.MaxKeys {
			return invalid("overlap", "The limit of rotated keys that still work, %d, is reached. "+
				"Revoke one, or end this one at once.", i.options.MaxKeys)
		}
	}
	return nil
}

// expiry returns when the successor of a key expires.
func (i *Issuer) expiry(old *keystore.Key, r Rotation, now time.Time) (time.Time, error) {
	if r.ExpiresAt.IsZero() && !r.NeverExpires {
		return i.options.latest(old.ExpiresAt, now), nil
	}
	next := keystore.Key{Organization: old.Organization, Environment: old.Environment, ExpiresAt: field.Time(r.ExpiresAt)}
	var p problems
	p.addFields(&next, i.options.Service.Scopes)
	p.addLimits(&i.options, &next, now)
	if r.NeverExpires && !r.ExpiresAt.IsZero() {
		p.add("expires_at", "An expiry is given, and that there is none.")
	}
	return next.ExpiresAt, p.err()
}

// latest returns when the successor of a key expires.
func (o Options) latest(expires, now time.Time) time.Time {
	if last := now.Add(o.MaxLife); o.MaxLife > 0 && (expires.IsZero() || expires.After(last)) {
		return last
	}
	return expires
}

// rotatedBefore returns the key that the IssueToken or the Token of a rotation
// made, or nil, after it has revoked the old key, unless the first call did.
func (i *Issuer) rotatedBefore(ctx context.Context, old *keystore.Key, r Rotation) (*keystore.Key, error) {
	made, err := i.issuedBefore(ctx, r.Organization, i.actor, r.IssueToken)
	if made == nil && err == nil && r.Token != nil {
		made, err = i.successor(ctx, old, r.Token())
	}
	if made == nil || made.RotatedFrom != r.ID || !old.RevokedAt.IsZero() {
		return made, err
	}
	if made.Version == 1 { // nobody has edited it by itself
		adapted, err := i.adapt(ctx, r, made, old)
		if err != nil {
			return made, err
		}
		made = adapted
	}
	_, err = i.By(i.actor, ReasonRotated).retire(ctx, made.Organization, r.ID, made.CreatedAt.Add(r.Overlap))
	return made, err
}

// successor returns the key with a token that is for a successor of old, or nil.
func (i *Issuer) successor(ctx context.Context, old *keystore.Key, token string) (*keystore.Key, error) {
	t, err := i.options.Service.Parse(token)
	if err != nil {
		return nil, err
	}
	made, err := i.existing(ctx, keystore.DigestOf(token), old.Organization)
	if t.Child || t.Environment != old.Environment || made != nil && made.RotatedFrom != old.ID {
		return nil, invalid("token", "The token is not one for a successor of the key.")
	}
	if errors.Is(err, keystore.ErrNotFound) {
		return nil, nil
	}
	return made, err
}
