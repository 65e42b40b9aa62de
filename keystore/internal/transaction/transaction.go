// Package transaction marks the context of a transaction in which no key is to
// be written.
package transaction

import "context"

type key struct{}

// With returns a context that is marked.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// In reports whether ctx, or one that it came from, is marked.
func In(ctx context.Context) bool { return ctx.Value(key{}) != nil }
