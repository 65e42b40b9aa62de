package keyed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/meter"
)

// Units are what one request is charged for: those of its route, and what its
// handler adds until they are charged.
type Units struct {
	Counter idem.Counter
	Account idem.Account
	Route   int64
	Timeout time.Duration // of each call of Counter and of Hold
	// Hold holds units on the quotas of the request.
	Hold func(ctx context.Context, units int64) (*meter.Hold, meter.Verdict, error)

	taken atomic.Bool
	hold  *meter.Hold

	mu      sync.Mutex
	added   int64
	charged int64
	closed  bool // nothing more can be added
}

// Take reports whether the caller is the first one that wants to charge them, and
// so has to.
func (u *Units) Take() bool { return u.taken.CompareAndSwap(false, true) }

// Ask holds the units of the route for an operation that is about to begin, unless
// a quota refuses.
func (u *Units) Ask(ctx context.Context) (v meter.Verdict, err error) {
	ctx, cancel := u.detached(ctx)
	defer cancel()
	u.hold, v, err = u.Hold(ctx, u.Route)
	return v, err
}

// detached returns a context that does not end when the client leaves.
func (u *Units) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), u.Timeout)
}

// Add adds what the handler says. Its errors are for the handler's author.
func (u *Units) Add(n int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case n < 0:
		return errors.New("middleware: a negative number of units")
	case u.Route+u.added+n < 0:
		return errors.New("middleware: more units than an int64 holds")
	case u.closed:
		return errors.New("middleware: the units of this request are charged already")
	}
	u.added += n
	return nil
}

// close lets nothing more be added. It returns all units, and whether this is the
// first call.
func (u *Units) close() (all int64, first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first, u.closed = !u.closed, true
	return u.Route + u.added, first
}

// Charged returns what the request was charged for so far.
func (u *Units) Charged() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.charged
}

// Count charges, for a request that has no claim, what is not charged yet: before
// the handler runs, and with last after it.
func (u *Units) Count(ctx context.Context, last bool) error {
	n := u.Route
	if last {
		all, _ := u.close()
		n = all - u.charged
	}
	if n == 0 {
		return nil
	}
	ctx, cancel := u.detached(ctx)
	defer cancel()
	if last {
		u.hold, _, _ = u.Hold(ctx, 0) // nothing is refused; End tells the next request here
	}
	err := u.Counter.Count(ctx, u.Account, n)
	if err != nil {
		n = 0
	}
	u.end(n)
	return err
}

// end ends the hold for n units that are charged.
func (u *Units) end(n int64) {
	u.hold.End(n)
	u.hold = nil
	u.mu.Lock()
	defer u.mu.Unlock()
	u.charged += n
}

// settle settles the claim of the run with its units. A response of 2xx or 3xx
// is charged, one whose status is not known too (see bypassed), and so is an
// outcome that is not known.
func (u *Units) settle(x *Run, s idem.Settlement) error {
	all, first := u.close()
	if s.Outcome == idem.OutcomeDone && x.writer.status < 400 || s.Outcome == idem.OutcomeUnknown {
		s.Units = all
	}
	err := x.Execution.Settle(x.R.Context(), s)
	if !first {
		return err
	}
	// In lease mode, what the store did not answer is saved in the background.
	stands := err == nil || errors.Is(err, idem.ErrCommitUnknown) || !x.Stage.Join && !errors.Is(err, idem.ErrLost)
	if !stands {
		s.Units = 0
	}
	u.end(s.Units)
	return err
}
