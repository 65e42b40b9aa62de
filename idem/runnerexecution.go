package idem

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// phase is how far an execution has come. It never goes back.
type phase uint8

const (
	asking    phase = iota // the first caller waits for the store's answer
	elsewhere              // another process holds the claim, and the first caller polls
	running                // this process holds the claim
	answered               // there is a reply, which may not be saved yet
	ended                  // it is over, and there is an error or nothing to share
)

// Execution is one run of a request: the right to run it, and the duty to
// settle it. The caller of [Runner.Begin] that gets one must call Settle once,
// whatever happens: until then the claim is renewed, or held in a Memory, and
// everybody who sends the key again waits.
type Execution struct {
	runner      *Runner
	claim       Claim
	ctx         context.Context // of Begin, for its values
	transaction Transaction     // nil: the claim has a lease

	// Runner.mu guards these, which are for the waiters.
	phase   phase
	counted bool          // as running, on the tenant's account
	changed chan struct{} // closed at the next change of the phase; nil while nobody waits
	reply   Record        // what they get, once answered; set by Settle before that
	err     error         // why the store could not give one
	// leaseEnds is as far as is known, and zero in this process and in joined mode.
	leaseEnds time.Time

	// asked is when the store was that gave the lease, nil without one. It has no
	// lock: a context asks for it also where another of its execution ends.
	asked atomic.Pointer[time.Time]

	// mu guards these, which Context, Settle and the renewals share.
	mu       sync.Mutex
	timer    *time.Timer // of the next renewal; nil without a lease
	failures int         // renewals in a row that failed
	cause    error       // why the contexts were cancelled
	cancels  []context.CancelCauseFunc
	settled  bool // Settle was called
	done     bool // nothing of it is left with the store
}

// start makes the execution one that runs. asked is when the store was asked.
func (e *Execution) start(t Transaction, asked time.Time) {
	r := e.runner
	e.transaction = t
	if t == nil && r.backend.local == nil {
		e.renewed(asked)
		e.mu.Lock() // the timer may fire before it is assigned
		e.timer = time.AfterFunc(r.lease/3-time.Since(asked), e.renew)
		e.mu.Unlock()
	}
	r.mu.Lock()
	e.advance(running)
	r.mu.Unlock()
}

// renewed notes that the store has given the lease. It began to count when it was
// asked, or later.
func (e *Execution) renewed(asked time.Time) {
	e.runner.mu.Lock()
	e.leaseEnds = asked.Add(e.runner.lease)
	e.runner.mu.Unlock()
	e.asked.Store(&asked)
}

// Context returns a context for the handler of the request. It is cancelled with
// the cause [ErrLost] when the claim is lost, has lapsed because the server stood
// still, or is about to because it could not be renewed, and without a cause when
// Settle returns. In joined mode it carries the transaction, and only the end of
// parent cancels it.
func (e *Execution) Context(parent context.Context) context.Context {
	if e.transaction != nil {
		return e.transaction.Context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil || e.settled {
		cancel(e.cause)
	} else {
		e.cancels = append(e.cancels, cancel)
	}
	if e.asked.Load() != nil {
		ctx = leased{ctx, e}
	}
	return ctx
}

// advance brings an execution into a phase and wakes its waiters. Runner.mu is
// held.
func (e *Execution) advance(p phase) {
	if e.phase == p {
		return
	}
	e.phase = p
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// wait returns a channel that is closed at the next change of the phase.
// Runner.mu is held.
func (e *Execution) wait() <-chan struct{} {
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// finish takes an execution out of the table. Its waiters get the reply of a
// record that is Done, or the error. With neither they start over.
func (r *Runner) finish(e *Execution, record *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.executions, e.claim.Key)
	r.uncount(e)
	if e.err == nil && record.State == Done {
		e.reply = *record
		e.advance(answered)
		return
	}
	e.advance(ended)
}

// count counts an execution among those of its tenant, if it may have one more.
func (r *Runner) count(e *Execution) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.counted = r.loads.startExecution(e.claim.Tenant, r.options.ExecutionsPerTenant)
	return e.counted
}

// uncount no longer does. r.mu is held.
func (r *Runner) uncount(e *Execution) {
	if e.counted {
		e.counted = false
		r.loads.add(e.claim.Tenant, load{executions: -1})
		r.signalIdle()
	}
}

var errNotRenewed = fmt.Errorf("%w: it could not be renewed in time", ErrLost)

// renew renews the lease; a timer calls it. If it cannot, the contexts of the
// execution are cancelled at nine tenths of the lease, while the claim is still
// held. When it has lapsed nothing is renewed: somebody may have been told so.
// But what is only to be saved holds its claim for as long as the store allows.
func (e *Execution) renew() {
	r := e.runner
	lease := r.lease
	asked := time.Now()

	e.mu.Lock()
	done, failing, settled := e.done, e.failures > 0, e.settled
	e.mu.Unlock()
	if done {
		return
	}
	leasedAt := *e.asked.Load()
	if !settled && r.lapsed(leasedAt) {
		e.lose(errTooLate)
		return
	}
	last := leasedAt.Add(lease - lease/10) // without a renewal by then the contexts are cancelled
	timeout := r.options.Timeout
	if asked.Before(last) {
		timeout = min(timeout, last.Sub(asked))
	} else if failing {
		e.lose(errNotRenewed)
	}
	err := r.backend.extend(e.ctx, &e.claim, timeout)
	next := lease / 3
	switch left := time.Until(last); {
	case err == nil:
		e.renewed(asked)
		e.expire()
	case errors.Is(err, ErrLost):
		e.lose(ErrLost)
		return
	case left > 0:
		next = min(lease/15, left)
	default:
		e.lose(errNotRenewed)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.failures = 0
	} else {
		e.failures++
		r.renewalErrors.Add(1)
	}
	if !e.done {
		e.timer.Reset(max(next, time.Millisecond))
	}
}

// lose cancels the contexts of the execution. Cancellation is final, although a
// later renewal may still keep the claim for Settle. After Settle there is
// nothing to cancel.
func (e *Execution) lose(cause error) {
	e.mu.Lock()
	over := e.cause != nil || e.settled
	if !over {
		e.cause = cause
		e.release(cause)
	}
	e.mu.Unlock()
	if !over {
		e.runner.options.Logger.ErrorContext(e.ctx, "a keyed request lost its claim and was cancelled",
			"idempotency_key", e.name(), "error", cause)
	}
}

// release cancels the contexts of the execution. e.mu is held.
func (e *Execution) release(cause error) {
	for _, cancel := range e.cancels {
		cancel(cause)
	}
	e.cancels = nil
}

// name is what logs say of the key: enough to find it in a store, and nothing
// of what the client sent.
func (e *Execution) name() string { return hex.EncodeToString(e.claim.Key[:8]) }
