package keystore

import (
	"context"
	"errors"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/scope"
)

// An Issuer makes keys, replaces them and ends them. All it does is bound to
// the organization it is told; the caller has to make sure that whoever asks
// is an administrator of it.
//
// Over a [Cached], a key that the Issuer revokes is refused as soon as the
// call returns. An Issuer is safe for concurrent use.
type Issuer struct {
	// Registry holds the scopes that can be granted. Nil means
	// [scope.Contract]. It must be set before the Issuer is used.
	Registry *scope.Registry

	manager Manager
	format  Format
}

// NewIssuer returns an Issuer of keys in m. It panics when m is nil or the
// prefix of f is not valid.
func NewIssuer(m Manager, f Format) *Issuer {
	if m == nil {
		panic("keystore: NewIssuer with a nil Manager")
	}
	f.prefix()
	return &Issuer{manager: m, format: f}
}

// Issue makes a key. The Secret is the only copy of the token there will ever
// be. A key without scopes is allowed, and authenticates without permitting
// anything.
//
// It returns a [*GrantError] when g is not valid. When g.Token made a key
// already, it returns that key, no secret, and [ErrExists]: whoever lost the
// first answer can rotate the key or revoke it. After any other error it is
// not known whether a key was made, and repeating the call with the same
// non-empty g.Token makes no second one.
func (i *Issuer) Issue(ctx context.Context, g Grant) (Secret, *Key, error) {
	now := instant()
	if err := g.check(i.registry(), now); err != nil {
		return Secret{}, nil, err
	}
	secret := i.format.Generate(g.Environment)
	k, err := i.insert(ctx, g.key(secret.Reveal(), now))
	if err != nil {
		return Secret{}, k, err
	}
	return secret, k, nil
}

// Import stores a key for a token that another system issued. [Format.Parse]
// decides whether it is acceptable, as it does for every request later, so
// nothing is imported that would then be refused; its [*FormatError] is
// returned as it is. g.Environment must be the one that the token names.
//
// Only the digest of the token is kept, so a token that a person made up, and
// not a random generator, must not be imported.
//
// Import returns [ErrExists] when there is such a key already, and the key too
// when it belongs to the organization.
func (i *Issuer) Import(ctx context.Context, g Grant, token string) (*Key, error) {
	environment, err := i.format.Parse(token)
	if err != nil {
		return nil, err
	}
	now := instant()
	problems := g.problems(i.registry(), now)
	if g.Environment.Known() && g.Environment != environment {
		problems = append(problems, Problem{"environment", "The token is a " + string(environment) + " key."})
	}
	if problems != nil {
		return nil, &GrantError{problems}
	}
	k, err := i.insert(ctx, g.key(token, now))
	if !errors.Is(err, ErrExists) || k != nil {
		return k, err
	}
	if existing, lookupErr := i.manager.Lookup(ctx, DigestOf(token)); lookupErr == nil && existing.Organization == g.Organization {
		k = existing.Clone()
	}
	return k, err
}

// Revoke ends a key for good, now. Revoking it again changes nothing and is no
// error. It returns [ErrNotFound] for a key of another organization.
func (i *Issuer) Revoke(ctx context.Context, organization, id string) (*Key, error) {
	return i.retire(ctx, organization, id, instant())
}

// Suspend refuses a key until [Issuer.Resume].
func (i *Issuer) Suspend(ctx context.Context, organization, id string) (*Key, error) {
	return i.suspend(ctx, organization, id, true)
}

// Resume takes a suspension back. A key that is revoked or has expired stays
// refused.
func (i *Issuer) Resume(ctx context.Context, organization, id string) (*Key, error) {
	return i.suspend(ctx, organization, id, false)
}

func (i *Issuer) suspend(ctx context.Context, organization, id string, suspended bool) (*Key, error) {
	return i.change(ctx, organization, id, func(k *Key) bool {
		changed := k.Suspended != suspended
		k.Suspended = suspended
		return changed
	})
}

// Rename gives a key another name. It returns a [*GrantError] when the name is
// not one.
func (i *Issuer) Rename(ctx context.Context, organization, id, name string) (*Key, error) {
	if problem := nameProblem(name); problem != "" {
		return nil, &GrantError{[]Problem{{"name", problem}}}
	}
	return i.change(ctx, organization, id, func(k *Key) bool {
		changed := k.Name != name
		k.Name = name
		return changed
	})
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
	// Each conflict means that somebody else succeeded. So many in a row mean
	// that the store is wrong about versions.
	const attempts = 32
	for range attempts {
		k, err := i.manager.Find(ctx, organization, id)
		if err != nil {
			return nil, err
		}
		if !edit(k) {
			// Another process may have made this very change, and a cache in
			// this one may not know of it yet.
			if cache, ok := i.manager.(interface{ Forget(Digest) }); ok {
				cache.Forget(k.Digest)
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
	k, err := i.manager.FindIssued(ctx, organization, actor, token)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return k, err
}

func (i *Issuer) registry() *scope.Registry {
	if i.Registry == nil {
		return scope.Contract()
	}
	return i.Registry
}

func newID() string { return "key_" + xid.New().String() }

// instant returns the wall clock's time as every store can keep it.
func instant() time.Time { return storable(time.Now()) }

func storable(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
