package issuing

import (
	"cmp"
	"context"
	"errors"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/internal/field"
)

// Issue makes a key with the Organization, Environment, Name, Scopes,
// Attributes, Networks, ExpiresAt and IssueToken of k, within the limits of
// [keystore.Key.Validate]. It refuses one with a Parent, which [Issuer.Delegate]
// is for, and does not look at other fields. The record of a child lacks the
// limits of its ancestors: do not issue a key like it. A key without scopes
// authenticates without permitting anything.
//
// The Secret is the only copy of the token there will ever be: an endpoint that
// issues keys under an Idempotency-Key calls DropResponse of its
// middleware.Execution, so that no stored reply holds it.
//
// It returns a [*keystore.FieldsError] when k is not valid or the [Options]
// refuse it. When the actor and a k.IssueToken that is not empty made a key of the
// organization already, it returns that key, no secret, and [ErrExists], whatever
// else k says: a caller who lost the first answer can rotate the key or revoke it.
// After any other error the key may or may not exist; a repeat with the IssueToken
// makes no second one.
func (i *Issuer) Issue(ctx context.Context, k keystore.Key) (keystore.Secret, *keystore.Key, error) {
	if err := writable(ctx); err != nil {
		return keystore.Secret{}, nil, err
	}
	p := i.actProblems()
	p.addOwner(k.Organization, k.IssueToken)
	if p == nil {
		existing, err := i.issuedBefore(ctx, k.Organization, i.actor, k.IssueToken)
		if existing != nil || err != nil {
			return keystore.Secret{}, existing, cmp.Or(err, ErrExists)
		}
	}
	now := field.Now()
	p = i.actProblems()
	p.addFields(&k, i.options.Service.Scopes)
	p.addLimits(&i.options, &k, now)
	p.addParent(&k)
	if p != nil {
		return keystore.Secret{}, nil, p.ofKey(&k, i.options.Service.Scopes)
	}
	secret, made := i.make(&k, now)
	made, err := i.insert(ctx, "issue", made, i.options.MaxKeys)
	if err != nil {
		return keystore.Secret{}, made, err
	}
	return secret, made, nil
}

// addParent adds that k has a parent.
func (p *problems) addParent(k *keystore.Key) {
	if k.Parent != "" {
		p.add("parent", "Only Delegate makes the child of a key.")
	}
}

// insert stores k. With [ErrExists] it returns the key that k.IssueToken made,
// if that is why.
func (i *Issuer) insert(ctx context.Context, act string, k *keystore.Key, maxKeys int) (*keystore.Key, error) {
	err := i.write(ctx, act, nil, k, maxKeys)
	if err == nil {
		return k, nil
	}
	if full := errors.Is(err, ErrTooManyKeys); full || errors.Is(err, ErrExists) {
		existing, findErr := i.issuedBefore(ctx, k.Organization, k.CreatedBy, k.IssueToken)
		switch {
		case findErr != nil:
			return nil, findErr
		case full && existing != nil: // a concurrent call with the token took the last place
			err = ErrExists
		case full && k.Parent != "":
			err = invalid("parent", "The limit of children of a key and theirs, %d, is reached. "+
				"Revoke one, or wait until one expires.", maxKeys)
		case full:
			err = invalid("organization", "The limit of an organization, %d, is reached. Revoke a key first.", maxKeys)
		}
		return existing, err
	}
	return nil, err
}

// issuedBefore returns the key that an issue token made, or nil.
func (i *Issuer) issuedBefore(ctx context.Context, organization, actor, token string) (*keystore.Key, error) {
	if token == "" {
		return nil, nil
	}
	k, err := i.store.FindIssued(ctx, organization, actor, token)
	k, err = owned(k, err, organization)
	if errors.Is(err, keystore.ErrNotFound) {
		return nil, nil
	}
	return k, err
}
