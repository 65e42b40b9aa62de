// Package bounded calls functions that may not return when their context is
// done.
package bounded

import (
	"context"
	"errors"
)

// Result is what a call returned.
type Result[T any] struct {
	Value T
	Err   error
}

// ErrNoReturn is the error of a call that ended its goroutine.
var ErrNoReturn = errors.New("the call ended its goroutine")

// Call calls do in a goroutine and returns its result. When ctx is done first
// it leaves the goroutine behind: the error is that of ctx, and late receives
// the result, if there ever is one. Otherwise late is nil.
func Call[T any](ctx context.Context, do func() (T, error)) (r Result[T], late <-chan Result[T]) {
	done := make(chan Result[T], 1)
	go func() {
		r := Result[T]{Err: ErrNoReturn} // unless do returns: it may call runtime.Goexit
		defer func() { done <- r }()
		r.Value, r.Err = do()
	}()
	select {
	case r = <-done:
		return r, nil
	case <-ctx.Done():
	}
	// Both may be ready, and select chooses at random: a result that is there
	// counts.
	select {
	case r = <-done:
		return r, nil
	default:
		return Result[T]{Err: ctx.Err()}, done
	}
}
