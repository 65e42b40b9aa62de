package keystore

import (
	"context"
	"errors"
)

// An Issuer issues, rotates and revokes keys. Every method acts for one
// organization. The caller checks that the person who asks is an administrator
// of that organization.
//
// Over a [Cached], a key that the Issuer revokes is refused as soon as the
// call returns. An Issuer is safe for concurrent use.
type Issuer struct {
	manager Manager
	service Service
}

// IssuerOptions configures an [Issuer]. The zero value is ready to use.
type IssuerOptions struct {
	// Service says which scopes can be granted and what the tokens look like.
	// Zero: that of the [Cached], if the Issuer is over one, or the contract's.
	Service Service
}

// NewIssuer returns an Issuer of keys in m. It panics when m is nil, or the
// service is not valid or another one than that of m.
func NewIssuer(m Manager, o IssuerOptions) *Issuer {
	if absent(m) {
		panic("keystore: NewIssuer with a nil Manager")
	}
	service, err := o.Service.Resolve(m)
	if err != nil {
		panic(err.Error())
	}
	return &Issuer{manager: m, service: service}
}

// Service returns the service whose keys are issued.
func (i *Issuer) Service() Service { return i.service }

// Issue makes a key. The Secret is the only copy of the token there will ever
// be: an endpoint that issues keys under an Idempotency-Key calls
// middleware.NotRetained, so that no stored reply holds it. A key without
// scopes is allowed, and authenticates without permitting anything.
//
// It returns a [*GrantError] when g is not valid. When g.IssueToken made a key
// already, it returns that key, no secret, and [ErrExists]: a caller who lost
// the first answer can rotate the key or revoke it. After any other error the
// key may or may not exist. Repeating the call with the same non-empty
// g.IssueToken makes no second one.
func (i *Issuer) Issue(ctx context.Context, g Grant) (Secret, *Key, error) {
	now := instant()
	if err := g.Validate(i.service.Scopes); err != nil {
		return Secret{}, nil, err
	}
	secret := i.service.Generate(g.Environment)
	k, err := i.insert(ctx, g.key(DigestOf(secret.Reveal()), hintOf(secret.Reveal()), now))
	if err != nil {
		return Secret{}, k, err
	}
	return secret, k, nil
}

// insert stores k. With [ErrExists] it returns the key that k.IssueToken made,
// if that is why.
func (i *Issuer) insert(ctx context.Context, k *Key) (*Key, error) {
	err := i.manager.Insert(ctx, k)
	if err == nil {
		return k, nil
	}
	if errors.Is(err, ErrExists) {
		existing, findErr := i.issuedBefore(ctx, k.Organization, k.CreatedBy, k.IssueToken)
		if findErr != nil {
			return nil, findErr
		}
		return existing, err
	}
	return nil, err
}

// issuedBefore returns the key that an issue token made, or nil.
func (i *Issuer) issuedBefore(ctx context.Context, organization, actor, token string) (*Key, error) {
	if token == "" {
		return nil, nil
	}
	k, err := i.Issued(ctx, organization, actor, token)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return k, err
}
