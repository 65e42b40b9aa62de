package issuing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// Rotate makes a key that replaces another one, with the same name,
// environment, scopes, attributes, networks and, as far as the [Options] allow,
// expiry; or with that of expires, if it is given, where zero is none. It
// revokes the old one, with [ReasonRotated], after overlap, during which both
// work. With an overlap of zero the old key is revoked at once. An old key that
// would end before that still does. The new token has the form of the
// [keystore.Service], whatever the old one is like.
//
// A child cannot be rotated, and no key that is revoked, expired or suspended,
// for which the error is that of [keystore.Key.Refused]. It is a
// [*keystore.FieldsError] if Options.MaxKeys old keys or more still work and
// this one is to work on too, or if the expiry that is given is not valid or
// the Options refuse it. A key can be rotated once. The error is [ErrRotated]
// when it has a successor, whoever made it; of several concurrent calls one
// succeeds. The successor can be rotated in turn.
//
// When the actor and issueToken made a key already, Rotate returns that key, no
// secret, and [ErrExists], after it has revoked the old key in case the first
// call could not. If it cannot either, the error is the store's.
//
// When the new key was stored and revoking the old one failed, Rotate returns
// the secret, the new key and the error: the new key works, and so does the
// old one until [Issuer.Revoke] ends it.
//
// What an [Issuer.Edit] changes in the old key meanwhile is changed in the new
// one too. If that fails, Rotate returns the new key and the error, and no
// secret.
func (i *Issuer) Rotate(
	ctx context.Context, organization, id string, overlap time.Duration, issueToken string, expires ...time.Time,
) (keystore.Secret, *keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return keystore.Secret{}, nil, err
	}
	problems := append(i.actProblems(), ownerProblems(organization, issueToken)...)
	if overlap < 0 {
		problems = append(problems, problem("overlap", "The overlap is negative."))
	}
	if problems != nil {
		return keystore.Secret{}, nil, invalid(problems...)
	}
	old, err := i.Key(ctx, organization, id)
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	// A repeat has to be recognized before the old key is judged, which the
	// first call may have revoked.
	existing, err := i.issuedBefore(ctx, organization, i.actor, issueToken)
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	if existing != nil {
		return i.repeated(ctx, existing, id, overlap)
	}

	now := field.Now()
	if err := old.Refused(); err != nil {
		return keystore.Secret{}, nil, err
	}
	if old.Parent != "" {
		return keystore.Secret{}, nil, invalid(problem("parent", "A child cannot be rotated; make another one."))
	}
	if !old.Environment.Known() {
		return keystore.Secret{}, nil, keystore.ErrCorrupt
	}
	ends, err := i.ends(old, expires, now)
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	if overlap > 0 {
		if err := i.overlaps(ctx, organization); err != nil {
			return keystore.Secret{}, nil, err
		}
	}
	secret := i.options.Service.Generate(old.Environment)
	made := newKey(old, keystore.DigestOf(secret.Reveal()), hintOf(secret.Reveal()), now)
	made.CreatedBy, made.ExpiresAt, made.IssueToken, made.RotatedFrom = i.actor, ends, issueToken, id
	next, err := i.insert(ctx, "rotate", made, 0)
	if errors.Is(err, ErrExists) && next != nil {
		return i.repeated(ctx, next, id, overlap)
	}
	if err != nil {
		return keystore.Secret{}, nil, err
	}
	retired, err := i.By(i.actor, ReasonRotated).retire(ctx, organization, id, now.Add(overlap))
	if err != nil || !editedSince(retired, old) {
		return secret, next, err
	}
	// Nobody has the secret yet.
	edited, err := i.rewrite(ctx, "edit", organization, next.ID, func(k *keystore.Key) {
		k.Name, k.Scopes, k.Attributes, k.Networks = retired.Name, retired.Scopes, retired.Attributes, retired.Networks
		if k.Suspended = retired.Suspended; len(expires) == 0 {
			k.ExpiresAt = i.options.latest(retired.ExpiresAt, now)
		}
	})
	if err != nil {
		return keystore.Secret{}, next, err
	}
	return secret, edited, nil
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
			return i.options.tooManyOverlaps()
		}
	}
	return nil
}

// ends returns when the successor of a key expires: as the Options say, or as
// the caller does.
func (i *Issuer) ends(old *keystore.Key, given []time.Time, now time.Time) (time.Time, error) {
	if len(given) == 0 {
		return i.options.latest(old.ExpiresAt, now), nil
	}
	// Scopes that the service does not know stay, and are no problem.
	next := keystore.Key{Organization: old.Organization, Environment: old.Environment, ExpiresAt: field.Time(given[0])}
	problems := fieldProblems(&next, i.options.Service.Scopes)
	next.Scopes = old.Scopes
	if problems = append(problems, i.options.problems(&next, now)...); problems != nil {
		return time.Time{}, invalid(problems...)
	}
	return next.ExpiresAt, nil
}

// editedSince reports whether a field that [Issuer.Edit] changes differs from
// what it was.
func editedSince(k, before *keystore.Key) bool {
	return slices.ContainsFunc(changesOf(before, k), func(c Change) bool { return c.Field != "revoked_at" })
}

// repeated answers a rotation whose issueToken made the key next before.
func (i *Issuer) repeated(
	ctx context.Context, next *keystore.Key, id string, overlap time.Duration,
) (keystore.Secret, *keystore.Key, error) {
	if next.RotatedFrom == id {
		i = i.By(i.actor, ReasonRotated)
		if _, err := i.retire(ctx, next.Organization, id, next.CreatedAt.Add(overlap)); err != nil {
			return keystore.Secret{}, next, err
		}
	}
	return keystore.Secret{}, next, ErrExists
}
