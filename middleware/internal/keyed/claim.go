package keyed

import (
	"context"
	"sync/atomic"
)

// A Claim is what a handler is told of its claim, and says about it. A test of a
// handler may put one into the context by [WithClaim].
type Claim struct {
	Executions int // how often the operation was begun, this time included

	Freed       atomic.Bool // the handler did nothing
	NotRetained atomic.Bool // the response must not be kept
}

type claimKey struct{}

// WithClaim returns a context whose request runs under c, and not in the stage.
func WithClaim(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimOf returns the claim of WithClaim, or nil.
func ClaimOf(ctx context.Context) *Claim {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	return c
}
