package keyed

import (
	"context"
	"sync/atomic"
)

// A Fake stands for the claim of a request in tests of handlers. Package
// middlewaretest puts it into contexts.
type Fake struct {
	Attempt    int
	NotStarted atomic.Bool
}

type fakeKey struct{}

// WithFake returns a context whose request runs under a fake claim.
func WithFake(ctx context.Context, f *Fake) context.Context {
	return context.WithValue(ctx, fakeKey{}, f)
}

// FakeOf returns the fake claim of a context, or nil.
func FakeOf(ctx context.Context) *Fake {
	f, _ := ctx.Value(fakeKey{}).(*Fake)
	return f
}
