package keystore

import (
	"context"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// An Issuer makes keys.
type Issuer struct {
	Registry *scope.Registry // nil: scope.Contract(); set before first use

	manager Manager
	format  Format
}

// NewIssuer returns an Issuer.
func NewIssuer(m Manager, f Format) *Issuer { return &Issuer{manager: m, format: f} }

// A Grant is what a key is issued with.
type Grant struct {
	Organization string
	Actor        string
	Name         string
	Environment  Environment
	Scopes       []scope.Name
	ExpiresAt    time.Time
	Token        string
}

// A Problem is one mistake in a [Grant].
type Problem struct {
	Field   string
	Message string
}

// A GrantError holds all problems of a [Grant].
type GrantError struct{ Problems []Problem }

func (e *GrantError) Error() string { return "keystore: grant" }

func (i *Issuer) Issue(ctx context.Context, g Grant) (Secret, *Key, error) { panic("not yet") }

func (i *Issuer) Rotate(ctx context.Context, organization, id, actor string, overlap time.Duration, token string) (Secret, *Key, error) {
	panic("not yet")
}

func (i *Issuer) Revoke(ctx context.Context, organization, id string) (*Key, error) {
	panic("not yet")
}

func (i *Issuer) Suspend(ctx context.Context, organization, id string) (*Key, error) {
	panic("not yet")
}

func (i *Issuer) Resume(ctx context.Context, organization, id string) (*Key, error) {
	panic("not yet")
}

func (i *Issuer) Rename(ctx context.Context, organization, id, name string) (*Key, error) {
	panic("not yet")
}

func (i *Issuer) Import(ctx context.Context, g Grant, token string) (*Key, error) { panic("not yet") }
