// Package calls tells metrics of the calls of a store.
package calls

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// An Observed calls a store. What embeds one can be given an observer, at any
// time and from any goroutine.
type Observed struct {
	observer atomic.Pointer[func(ctx context.Context, call string, took time.Duration, answered bool)]
}

// ObserveCalls lets f know of each call of the store when it ends: what the call
// is named, how long it took, and whether the store answered in time. f is called
// from many goroutines at once and must be quick; its panic goes to the log and
// changes nothing. It takes the place of one that was given before.
func (o *Observed) ObserveCalls(f func(ctx context.Context, call string, took time.Duration, answered bool)) {
	o.observer.Store(&f)
}

// Ended tells the observer, if there is one, of a call that began at a time.
func Ended(ctx context.Context, o *Observed, log *slog.Logger, call string, began time.Time, answered bool) {
	f := o.observer.Load()
	if f == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "the observer of calls panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	(*f)(ctx, call, time.Since(began), answered)
}
