package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// moment is a time on both clocks, from the start of the Runner. The monotonic
// clock may stand still while the machine does, and the wall clock can be set
// back: of a lease counts the one that ran further.
type moment struct{ monotonic, wall time.Duration }

// moment is now, for claims with leases. Others do not need it, and reading the
// clock twice takes a tenth of a short create.
func (r *Runner) moment() moment {
	if r.backend.local != nil {
		return moment{}
	}
	now := time.Now()
	return moment{now.Sub(r.epoch), r.wall(now)}
}

func wallFrom(t time.Time) func(time.Time) time.Duration {
	t = t.Round(0) // without its monotonic reading
	return func(now time.Time) time.Duration { return now.Sub(t) }
}

// lapsed reports whether a lease is over that the store gave when it was asked,
// or later.
func (r *Runner) lapsed(asked moment) bool {
	now := r.moment()
	return max(now.monotonic-asked.monotonic, now.wall-asked.wall) >= r.lease
}

var (
	errTooLate   = fmt.Errorf("%w: the lease is over by the server's clock: it stood still, or the clock was set", ErrLost)
	errLateClaim = errors.New("idem: the store's answer came when the lease was over")
)

// leased is the context of a handler. A process that stood still goes on before
// its timers fire, so whoever asks looks at the clock.
type leased struct {
	context.Context
	execution *Execution
}

func (c leased) Done() <-chan struct{} {
	c.execution.expire()
	return c.Context.Done()
}

func (c leased) Err() error {
	c.execution.expire()
	return c.Context.Err()
}

// expire ends the contexts if the lease is over.
func (e *Execution) expire() {
	if asked := e.asked.Load(); asked != nil && e.runner.lapsed(*asked) {
		e.lose(errTooLate)
	}
}
