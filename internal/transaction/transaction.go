// Package transaction marks the context of a handler whose rows and reply are one
// transaction, as in the joined mode of package middleware. An issuer that gets
// such a context writes nothing and returns an error that wraps
// [errors.ErrUnsupported]: it cannot write in the transaction. A key would stay
// when that is rolled back, and in a database with one writer the two would wait
// for each other.
package transaction

import "context"

type key struct{}

// With returns a context that is marked.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// In reports whether ctx, or one that it came from, is marked.
func In(ctx context.Context) bool { return ctx.Value(key{}) != nil }
