// Package calls tells metrics and traces of the calls of a store.
package calls

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

type (
	observer = func(ctx context.Context, call string, took time.Duration, answered bool)
	tracer   = func(ctx context.Context, call string) (traced context.Context, end func(error))
)

// An Observed calls a store. What embeds one can be given an observer and a
// tracer, at any time and from any goroutine.
type Observed struct {
	observer atomic.Pointer[observer]
	tracer   atomic.Pointer[tracer]
}

// ObserveCalls lets f know of each call of the store when it ends: what the call
// is named, how long it took, and whether the store answered in time. f is called
// from many goroutines at once and must be quick; its panic goes to the log and
// changes nothing. It takes the place of one that was given before.
func (o *Observed) ObserveCalls(f func(ctx context.Context, call string, took time.Duration, answered bool)) {
	o.observer.Store(&f)
}

// TraceCalls lets f know of each call of the store when it begins, and of each
// "wait" for another request. The store gets the context that f returns, and end
// is told of the end: with an error if the store did not answer in time. Both
// are as f of ObserveCalls otherwise.
func (o *Observed) TraceCalls(f func(ctx context.Context, call string) (traced context.Context, end func(error))) {
	o.tracer.Store(&f)
}

// A Call has begun, and is ended once.
type Call struct {
	Observed *Observed // whose observer is told; nil: none

	ctx   context.Context
	log   *slog.Logger
	name  string
	began time.Time
	end   func(error)
}

// Begin tells of a call that begins. The store gets the context.
func Begin(ctx context.Context, o *Observed, log *slog.Logger, name string) (context.Context, Call) {
	c := begin(ctx, o, log, name)
	c.Observed = o
	return c.ctx, c
}

// Wait tells the tracer alone, of a wait for another request.
func Wait(ctx context.Context, o *Observed, log *slog.Logger) Call { return begin(ctx, o, log, "wait") }

func begin(ctx context.Context, o *Observed, log *slog.Logger, name string) (c Call) {
	c = Call{ctx: ctx, log: log, name: name, began: time.Now(), end: func(error) {}}
	if f := o.tracer.Load(); f != nil {
		defer contain(ctx, log)
		c.ctx, c.end = (*f)(ctx, name)
	}
	return c
}

// End tells of the end of a call, and whether the store answered. An error that
// is an answer is none.
func (c Call) End(answered bool, err error) {
	defer contain(c.ctx, c.log)
	if answered {
		err = nil
	}
	defer c.end(err)
	if c.Observed == nil {
		return
	}
	if f := c.Observed.observer.Load(); f != nil {
		(*f)(c.ctx, c.name, time.Since(c.began), answered)
	}
}

// contain is deferred, and logs a panic.
func contain(ctx context.Context, log *slog.Logger) {
	if p := recover(); p != nil {
		log.ErrorContext(ctx, "the observer of calls panicked", "panic", p, "stack", string(debug.Stack()))
	}
}
