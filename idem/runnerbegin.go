package idem

import (
	"context"
	"math"
	"time"
)

// Request is a request as a [Runner] sees it.
type Request struct {
	Key Key
	// Owner is on whose account the request runs, waits and takes room in the
	// store: usually an organization.
	Owner       string
	Fingerprint Fingerprint
	// Waiting, unless nil, is called once when the caller is about to wait.
	// Release large buffers there: many callers may wait.
	Waiting func()
}

// Begin claims the key, or waits for the execution that holds it.
//
// With an Execution the caller must run the request and settle the Execution,
// whatever happens. Without one, and without an error, the Record says what to
// answer: [Done], [Unknown] or [InFlight]. InFlight means that the caller has
// waited as long as it may, or may not wait: Options.Wait is negative, the
// Runner is draining or has too many waiters. Record.RetryAfter is then a hint
// for when to come back, 0 where there is none.
//
// The errors are [ErrMismatch], also while the first request is in flight;
// [ErrTooMany], before the store was asked; [ErrFull], with Record.RetryAfter;
// [ErrNoTurn], in joined mode;
// ctx.Err() when ctx is done before the store is asked or while waiting; and
// anything else when the store could not answer. After such an error the claim
// that may have been made is undone in the background.
//
// The end of ctx does not cut a call of the store short, because its answer
// would be lost. An Execution may therefore be returned to a caller whose ctx
// is done, and must be run or settled as [NotStarted] like any other.
//
// The first caller with a key asks the store. If another process holds the
// claim, this caller polls. Callers that come later wait for the first one,
// while it asks, polls or runs. So a key costs the store one call at a time,
// however many duplicates there are.
func (r *Runner) Begin(ctx context.Context, req Request) (Record, *Execution, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, nil, err
	}
	w := waiter{runner: r, ctx: ctx, owner: req.Owner, fingerprint: req.Fingerprint, waiting: req.Waiting}
	defer w.leave()
	for {
		e, first, err := r.enter(ctx, &req)
		switch {
		case err != nil:
			return Record{}, nil, err
		case first:
			return w.ask(e)
		}
		if record, err, decided := w.await(e); decided {
			return record, nil, err
		}
	}
}

// enter returns the execution of the key, and whether the caller is its first
// and must ask the store.
func (r *Runner) enter(ctx context.Context, req *Request) (e *Execution, first bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.executions[req.Key]; e != nil {
		return e, false, nil
	}
	if !r.startExecution(req.Owner) {
		return nil, false, ErrTooMany
	}
	e = &Execution{runner: r, key: req.Key, owner: req.Owner, fingerprint: req.Fingerprint, ctx: ctx, counted: true}
	r.executions[req.Key] = e
	return e, true, nil
}

// How long the first caller waits before it asks again while another process
// holds the claim.
const (
	firstPoll   = 25 * time.Millisecond
	longestPoll = 500 * time.Millisecond
)

// forever is the lease of a claim in a Memory. A lease ends the claim of a
// process that died; a claim in a Memory is gone with its process.
const forever = time.Duration(math.MaxInt64)

// waiter is one call of Begin.
type waiter struct {
	runner      *Runner
	ctx         context.Context
	owner       string
	fingerprint Fingerprint
	waiting     func()
	counted     bool             // as a waiter of the owner
	timeout     <-chan time.Time // of the wait; nil until it waits
	mustNotWait bool             // its time is over, or the Runner drains
}

// ask asks the store for the claim, and polls while another process holds it.
func (w *waiter) ask(e *Execution) (record Record, _ *Execution, err error) {
	r := w.runner
	c := Claim{
		Key: e.key, Token: r.newToken(), Owner: w.owner, Fingerprint: w.fingerprint,
		Lease: r.options.Lease, Retention: r.options.Retention, Reexecute: r.options.Reexecute,
	}
	if r.memory != nil {
		c.Lease, c.Retention = forever, forever
	}
	// Without a claim the execution ends here, also when Request.Waiting
	// panics: nobody else would wake its waiters. They share record, and
	// shared, the error.
	var shared error
	claimed := false
	defer func() {
		if !claimed {
			r.finish(e, &record, shared)
		}
	}()
	for delay := firstPoll; ; delay = min(2*delay, longestPoll) {
		asked := r.clock()
		var joined Joined
		record, joined, err = r.begin(w.ctx, c)
		if (record.State == Unknown || record.State == InFlight) && r.isUndone(e.key) {
			// The record is probably a claim of this process that never ran.
			// It is about to be freed, so its fingerprint does not count.
			record = Record{State: InFlight, RetryAfter: longestRetry}
		}
		// A Joiner may not be able to read what another transaction holds.
		unread := record.State == InFlight && record.Fingerprint == Fingerprint{}
		switch {
		case err != nil:
			// A Join ends when its caller leaves, which says nothing about the
			// store: the others must ask for themselves.
			if r.joiner == nil || w.ctx.Err() == nil {
				shared = err
			}
			return record, nil, err
		case record.State == Claimed:
			claimed = true
			e.start(c.Token, record.Attempt, joined, asked)
			return record, e, nil
		case record.Fingerprint != c.Fingerprint && !unread:
			// The record is no answer to this request or to its waiters.
			return Record{}, nil, ErrMismatch
		case record.State != InFlight:
			return record, nil, nil
		}
		ends := r.now() + record.RetryAfter
		again, err := w.poll(e, ends, delay, !unread)
		if !again {
			record.RetryAfter = max(ends-r.now(), 0)
			return record, nil, err
		}
	}
}

// poll waits until it is time to ask the store again. It returns false when the
// caller has waited long enough or has left. known says that the store gave the
// fingerprint of the key's first request.
func (w *waiter) poll(e *Execution, leaseEnds, delay time.Duration, known bool) (again bool, err error) {
	r := w.runner
	e.leaseEnds.Store(int64(leaseEnds))
	r.mu.Lock()
	r.uncount(e) // it does not run here
	if known {
		e.advance(elsewhere)
	}
	may := w.mayWait(true)
	r.mu.Unlock()
	for may && !again {
		if err := w.pause(nil, time.After(jittered(delay))); err != nil || w.mustNotWait {
			return false, err
		}
		r.mu.Lock()
		// Asking counts as an execution. While the owner has too many, go on
		// waiting.
		again = r.startExecution(e.owner)
		e.counted = again
		r.mu.Unlock()
	}
	return again, nil
}

// await waits for the execution of another caller. When that ends with nothing
// to share, decided is false and this caller must enter again.
func (w *waiter) await(e *Execution) (record Record, err error, decided bool) {
	for {
		record, decided, changed, err := w.look(e)
		if changed == nil {
			return record, err, decided
		}
		// Without the lock: pause calls Request.Waiting, which may panic.
		if err := w.pause(changed, nil); err != nil {
			return Record{}, err, true
		}
	}
}

// look says what the execution of another caller means for this one, or returns
// a channel that is closed when it is worth another look.
func (w *waiter) look(e *Execution) (record Record, decided bool, changed <-chan struct{}, err error) {
	r := w.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	// Until the store answers, the fingerprint of the first caller is not
	// confirmed: the record in the store may match this caller.
	confirmed := e.phase != asking
	switch {
	case e.phase == endedEmpty && e.err != nil:
		return Record{RetryAfter: e.retryAfter}, true, nil, e.err
	case e.phase == endedEmpty:
		return Record{}, false, nil, nil
	case confirmed && e.fingerprint != w.fingerprint:
		return Record{}, true, nil, ErrMismatch
	case e.phase == answered || e.phase == ended:
		return Record{State: Done, Fingerprint: e.fingerprint, Payload: e.payload, Retained: e.whole}, true, nil, nil
	case w.mayWait(confirmed):
		return Record{}, false, e.wait(), nil
	case confirmed:
		left := time.Duration(e.leaseEnds.Load()) - r.now()
		return Record{State: InFlight, Fingerprint: e.fingerprint, RetryAfter: max(left, 0)}, true, nil, nil
	}
	return Record{State: InFlight}, true, nil, nil
}

// mayWait reports whether the caller may wait, and counts it as a waiter. runs
// says that the request is known to run; otherwise the caller only waits for
// the store to say whether it does. Runner.mu is held.
func (w *waiter) mayWait(runs bool) bool {
	if w.mustNotWait || runs && w.runner.options.Wait < 0 {
		return false
	}
	if !w.counted {
		w.counted = w.runner.startWaiting(w.owner)
	}
	return w.counted
}

// pause waits for one of the channels, for the end of the caller's time or for
// draining. It returns an error only when the caller has left.
func (w *waiter) pause(changed <-chan struct{}, poll <-chan time.Time) error {
	if w.timeout == nil {
		d := w.runner.options.Wait
		if d < 0 {
			d = w.runner.options.Timeout
		}
		w.timeout = time.After(d)
		if w.waiting != nil {
			w.waiting()
		}
	}
	select {
	case <-changed:
	case <-poll:
	case <-w.timeout:
		w.mustNotWait = true
	case <-w.runner.options.Draining:
		w.mustNotWait = true
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

func (w *waiter) leave() {
	if w.counted {
		w.runner.mu.Lock()
		w.runner.endWaiting(w.owner)
		w.runner.mu.Unlock()
	}
}
