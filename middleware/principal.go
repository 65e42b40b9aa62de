package middleware

import (
	"context"
	"log/slog"
	"slices"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A Principal is on whose behalf a request acts: one organization, in one
// environment, through one API key. It is a small value that cannot be changed
// and holds no secret. The zero Principal is nobody.
type Principal struct {
	key *keystore.Key
}

// PrincipalFrom returns the principal of the request whose context this is;
// false outside [Authenticate].
func PrincipalFrom(ctx context.Context) (Principal, bool) {
	s := stateFrom(ctx)
	if s == nil || s.key == nil {
		return Principal{}, false
	}
	return Principal{s.key}, true
}

// KeyID returns the public id of the API key.
func (p Principal) KeyID() string {
	if p.key == nil {
		return ""
	}
	return p.key.ID
}

// Organization returns the organization that the key belongs to.
func (p Principal) Organization() string {
	if p.key == nil {
		return ""
	}
	return p.key.Organization
}

// Environment returns the key's environment.
func (p Principal) Environment() keystore.Environment {
	if p.key == nil {
		return ""
	}
	return p.key.Environment
}

// Tenant returns organization and environment as one string that no other pair
// shares. Data kept under it never mixes production with sandbox.
func (p Principal) Tenant() string {
	if p.key == nil {
		return ""
	}
	return p.key.Tenant()
}

// Scopes returns a copy of the scopes that the key was issued with, unknown ones
// included.
func (p Principal) Scopes() []scope.Name {
	if p.key == nil {
		return nil
	}
	return slices.Clone(p.key.Scopes)
}

// Has reports whether the key holds a scope.
func (p Principal) Has(name scope.Name) bool {
	return p.key != nil && p.key.Granted().Has(name)
}

// LogValue logs who, without what the key may do.
func (p Principal) LogValue() slog.Value {
	return slog.GroupValue(slog.String("key", p.KeyID()), slog.String("organization", p.Organization()), slog.String("environment", string(p.Environment())))
}
