package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// clock is now, for claims with leases. Others do not need it, and reading the
// clock twice takes a tenth of a short create.
func (r *Runner) clock() (now time.Time) {
	if r.backend.local == nil {
		now = time.Now()
	}
	return now
}

// lapsed reports whether a lease is over that the store gave when it was asked,
// or later. The monotonic clock may stand still while the machine does, and the
// wall clock can be set back: the one that ran further counts.
func (r *Runner) lapsed(asked time.Time) bool {
	now := r.clock()
	return max(now.Sub(asked), r.wall(now).Sub(asked.Round(0))) >= r.lease
}

// wallClock takes the monotonic reading from a time.
func wallClock(t time.Time) time.Time { return t.Round(0) }

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
