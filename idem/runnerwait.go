package idem

import (
	"context"
	"time"

	"github.com/sallyport-go/sallyport/internal/calls"
)

// How long the first caller waits before it asks again while another process
// holds the claim.
const (
	firstPoll   = 25 * time.Millisecond
	longestPoll = 500 * time.Millisecond
)

// waiter is one call of Begin.
type waiter struct {
	runner  *Runner
	ctx     context.Context
	claim   Claim // that it would make
	waiting func()
	counted bool             // as a waiter of the tenant
	timeout <-chan time.Time // of the wait; nil until it waits
	over    bool             // its time is over, or the Runner drains
}

// poll waits until it is time to ask the store again, which said that the
// claim is in progress. It returns false when the caller has waited long
// enough or has left; the record then says how much of the lease is left.
func (w *waiter) poll(e *Execution, record *Record, delay time.Duration) (again bool, err error) {
	r := w.runner
	leaseEnds := time.Now().Add(record.RetryAfter)
	for may := w.standAside(e, leaseEnds, !unread(record)); may && !again; {
		if err = w.pause(nil, time.After(jittered(delay))); err != nil || w.over {
			break
		}
		again = r.count(e)
	}
	record.RetryAfter = max(time.Until(leaseEnds), 0)
	return again, err
}

// standAside says that the request does not run in this process, and reports
// whether the caller may wait. known says that the store gave the fingerprint
// of the key's first request.
func (w *waiter) standAside(e *Execution, leaseEnds time.Time, known bool) bool {
	r := w.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	e.leaseEnds = leaseEnds
	r.uncount(e)
	if known {
		e.advance(elsewhere)
	}
	return w.mayWait(true)
}

// await waits for the execution of another caller. When that ends with nothing
// to share, decided is false and this caller must enter again.
func (w *waiter) await(e *Execution) (record Record, err error, decided bool) {
	for {
		record, decided, changed, err := w.look(e)
		if changed == nil {
			return record, err, decided
		}
		// Without the lock: pause calls waiting, which may panic.
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
	case e.phase == ended:
		return Record{}, e.err != nil, nil, e.err
	case confirmed && e.claim.Fingerprint != w.claim.Fingerprint:
		return Record{Fingerprint: e.claim.Fingerprint}, true, nil, ErrMismatch
	case e.phase == answered:
		return e.reply, true, nil, nil
	case w.mayWait(confirmed):
		return Record{}, false, e.wait(), nil
	case confirmed:
		left := max(time.Until(e.leaseEnds), 0)
		return Record{State: InProgress, Fingerprint: e.claim.Fingerprint, RetryAfter: left}, true, nil, nil
	}
	return Record{State: InProgress}, true, nil, nil
}

// mayWait reports whether the caller may wait, and counts it as a waiter. runs
// says that the request is known to run; otherwise the caller only waits for
// the store to say whether it does. Runner.mu is held.
func (w *waiter) mayWait(runs bool) bool {
	if w.over || runs && w.runner.options.Wait < 0 {
		return false
	}
	if !w.counted {
		w.counted = w.runner.loads.startWaiting(w.claim.Tenant)
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
	wait := calls.Wait(w.ctx, &w.runner.observed, w.runner.options.Logger)
	defer wait.End(true, nil)
	select {
	case <-changed:
	case <-poll:
	case <-w.timeout:
		w.over = true
	case <-w.runner.options.Draining:
		w.over = true
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

func (w *waiter) leave() {
	if w.counted {
		w.runner.mu.Lock()
		w.runner.loads.add(w.claim.Tenant, load{waiters: -1})
		w.runner.mu.Unlock()
	}
}
