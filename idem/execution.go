package idem

import (
	"context"
	"sync"
	"time"
)

// Execution is the right, and the duty, to run one request. Whoever has it calls Settle once, whatever happens: until then the
// key's claim is renewed, or held in a Memory, and all who send the key again wait.
type Execution struct {
	runner  *Runner
	flight  *flight
	token   Token
	attempt int
	joined  Joined          // nil: the claim has a lease
	ctx     context.Context // of Begin, for its values

	mu       sync.Mutex
	timer    *time.Timer // the next heartbeat; nil in a Memory
	failures int         // heartbeats in a row that failed
	cause    error       // what the execution was told
	cancel   context.CancelCauseFunc
	settled  bool // Settle was called
	ended    bool // nothing of it is left with the store

	saving saving // once settled
}

// start hands the flight to an Execution. asked is when the store was asked for the claim.
func (r *Runner) start(ctx context.Context, f *flight, token Token, attempt int, joined Joined, asked time.Duration) *Execution {
	e := &Execution{runner: r, flight: f, token: token, attempt: attempt, joined: joined, ctx: ctx}
	if joined == nil && !r.atOnce {
		// The store began to count when it was asked, or later.
		f.lease.Store(int64(asked + r.options.Lease))
		e.mu.Lock() // the timer may fire before it is assigned
		e.timer = time.AfterFunc(r.options.Lease/3-(r.now()-asked), e.beat)
		e.mu.Unlock()
	}
	r.mu.Lock()
	f.enter(running)
	r.mu.Unlock()
	return e
}

// Context returns a context for whoever runs the request. It is cancelled with the cause [ErrLost] when the claim was lost, with
// [ErrLeaseLapsed] when it could not be renewed and is about to lapse, and without one when Settle has returned. In joined mode
// it carries the transaction, and follows parent alone.
func (e *Execution) Context(parent context.Context) context.Context {
	if e.joined != nil {
		return e.joined.Context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch earlier := e.cancel; {
	case e.cause != nil || e.settled:
		cancel(e.cause)
	case earlier != nil:
		e.cancel = func(cause error) {
			earlier(cause)
			cancel(cause)
		}
	default:
		e.cancel = cancel
	}
	return ctx
}

// Attempt is 1, or more when the claim was taken over from a run that nobody knows the outcome of.
func (e *Execution) Attempt() int { return e.attempt }

// Joined reports whether the request runs within a transaction that ends with Settle.
func (e *Execution) Joined() bool { return e.joined != nil }
