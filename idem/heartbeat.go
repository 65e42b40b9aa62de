package idem

import (
	"errors"
	"time"
)

// beat renews the lease. A timer calls it, in a goroutine that lasts as long as the call.
func (e *Execution) beat() {
	r := e.runner
	lease := r.options.Lease
	asked := r.now()
	// The execution is to hear of it while it still holds the claim.
	last := time.Duration(e.flight.lease.Load()) - lease/10

	e.mu.Lock()
	ended, failing := e.ended, e.failures > 0
	e.mu.Unlock()
	if ended {
		return
	}
	timeout := r.options.Timeout
	if asked < last {
		timeout = min(timeout, last-asked)
	} else if failing {
		e.tell(ErrLeaseLapsed)
	}
	err := r.extend(e.ctx, e.flight.key, e.token, timeout)
	next := lease / 3
	switch now := r.now(); {
	case err == nil:
		// From before the call: the store's lease cannot end earlier than that.
		e.flight.lease.Store(int64(asked + lease))
	case errors.Is(err, ErrLost):
		e.tell(ErrLost)
		return
	case now < last:
		next = min(lease/15, last-now)
	default:
		e.tell(ErrLeaseLapsed)
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.failures = 0
	} else {
		e.failures++
		r.heartbeatErrors.Add(1)
	}
	if !e.ended {
		e.timer.Reset(max(next, time.Millisecond))
	}
}

// tell cancels the context of whoever runs the request. Later heartbeats may renew the claim after all, which spares those who
// wait for it, but what was told is told. Once Settle was called there is nobody to tell: its own answer says it all.
func (e *Execution) tell(cause error) {
	e.mu.Lock()
	told := e.cause != nil || e.settled
	if !told {
		e.cause = cause
		if e.cancel != nil {
			e.cancel(cause)
		}
	}
	e.mu.Unlock()
	if !told {
		e.runner.options.Logger.ErrorContext(e.ctx, "an idempotent request does not hold its claim any more, and was cancelled",
			"key", e.name(), "cause", cause)
	}
}
