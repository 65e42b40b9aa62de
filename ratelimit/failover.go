package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"weak"

	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/internal/calls"
)

// FailoverOptions adjust a Failover. The zero value is ready to use.
type FailoverOptions struct {
	// Timeout is how long the store may take for one call; 0 means 50 ms. A
	// store that usually needs longer never decides: every call is decided
	// without it. Raise it in a container whose CPU is throttled: a pause of the
	// process counts.
	Timeout time.Duration
	Logger  *slog.Logger // nil means slog.Default()
}

// Failover is a Store that decides within its timeout, whatever happens to the
// store behind it.
//
// A call fails when it returns an error, panics, or does not return within the
// timeout. Each policy's Fallback then decides: Local counts in a Memory of
// the Failover, Open admits, and one Closed policy makes Take return an error
// with nothing charged. After five failures in a row the store is not called,
// except by one call a second. The first of these to succeed brings the store
// back. What was counted locally is not carried over.
//
// A client may have to connect first, which can take longer than the timeout.
// So until the store's first answer, and for at most a second, a call that
// times out is decided without the store but is not one of the failures in a
// row.
//
// If a store ignores its context, the call is left behind in a goroutine. There
// are never more than about a thousand of these. A charge that such a call
// makes later stays. ErrCost is an answer and not a failure. The end of the
// caller's own context is not a failure either: Take returns that context's
// error.
//
// A store that is not called is asked about once a second also without
// requests, by a charge of a policy named "probe", until it answers or nothing
// refers to the Failover.
//
// One line is logged when the store is no longer called and one when it is
// back, none per call.
type Failover struct {
	store     Store
	local     *Memory
	timeout   time.Duration
	breaker   breaker
	fallbacks atomic.Int64
	observed  // the calls "take"
}

// observed has methods for metrics and traces, which are no part of the surface.
type observed = calls.Observed

// NewFailover panics if s is nil or the timeout is negative.
func NewFailover(s Store, o FailoverOptions) *Failover {
	if arguments.Absent(s) {
		panic("ratelimit: NewFailover: nil store")
	}
	if o.Timeout < 0 {
		panic("ratelimit: NewFailover: negative timeout")
	}
	f := &Failover{
		store:   s,
		local:   new(Memory),
		timeout: cmp.Or(o.Timeout, 50*time.Millisecond),
		breaker: breaker{log: cmp.Or(o.Logger, slog.Default())},
	}
	f.breaker.probe = f.probeLater
	return f
}

// probeLater asks the store after the cooldown, and again while it does not
// answer in the same outage. Between two questions there is a timer and no
// goroutine.
func (f *Failover) probeLater(outage int) {
	unused := weak.Make(f)
	time.AfterFunc(cooldown+rand.N(cooldown/4), func() {
		f := unused.Value()
		if f == nil {
			return
		}
		probe := &Policy{Name: "probe", Limit: Limit{Count: 1000, Period: time.Second}}
		_, _ = f.call(context.Background(), []Charge{{Policy: probe, Cost: 1}})
		if f.breaker.lasts(outage) {
			f.probeLater(outage)
		}
	})
}

// FailoverStats are figures of a [Failover].
type FailoverStats struct {
	Down      bool  // the store is not called at present, after failures in a row
	Fallbacks int64 // calls decided without the store since the start, errors of Closed policies included
}

// Stats returns the figures of f.
func (f *Failover) Stats() FailoverStats {
	f.breaker.mu.Lock()
	defer f.breaker.mu.Unlock()
	return FailoverStats{Down: f.breaker.open, Fallbacks: f.fallbacks.Load()}
}

// Take decides charges, as Store says, with or without the store.
func (f *Failover) Take(ctx context.Context, charges []Charge) (Decision, error) {
	if err := Check(charges); err != nil {
		return Decision{}, err
	}
	d, err := f.call(ctx, charges)
	switch {
	case err == nil || errors.Is(err, ErrCost):
		return d, err
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	}
	f.fallbacks.Add(1)
	return f.fallback(ctx, charges, err)
}

// call calls the store, if the breaker lets it.
func (f *Failover) call(ctx context.Context, charges []Charge) (Decision, error) {
	c, err := f.breaker.begin()
	if errors.Is(err, errCrowded) {
		f.breaker.failed(c, err)
	}
	if err != nil {
		return Decision{}, err
	}

	type answer struct {
		Decision
		err error
	}
	traced, take := calls.Begin(ctx, &f.observed, f.breaker.log, "take")
	bounded, cancel := context.WithTimeout(traced, f.timeout)
	defer cancel()
	answers := make(chan answer, 1) // room for one, so that the goroutine ends also after a timeout
	// The store may still read its charges when the caller has reused the
	// slice.
	own := append([]Charge(nil), charges...)
	go func() {
		a := answer{err: errNoReturn} // unless Take returns: it may call runtime.Goexit
		// Nothing else would recover in this goroutine.
		defer func() {
			if v := recover(); v != nil {
				a.err = fmt.Errorf("ratelimit: store panicked: %v", v)
			}
			f.breaker.returned(c)
			answers <- a
		}()
		a.Decision, a.err = f.store.Take(bounded, own)
	}()

	var a answer
	select {
	case a = <-answers:
	case <-bounded.Done():
		a.err = bounded.Err()
	}
	answered := a.err == nil || errors.Is(a.err, ErrCost)
	take.End(answered, a.err)
	switch {
	case answered:
		f.breaker.answered(c)
	case ctx.Err() != nil:
		f.breaker.abandoned(c)
	case bounded.Err() != nil:
		a.err = f.breaker.failed(c, fmt.Errorf("%w of %v", errTimeout, f.timeout))
	default:
		f.breaker.failed(c, a.err)
	}
	return a.Decision, a.err
}

// fallback decides without the store.
func (f *Failover) fallback(ctx context.Context, charges []Charge, cause error) (Decision, error) {
	var local [MaxCharges]Charge
	var index [MaxCharges]int
	n := 0
	for i, c := range charges {
		switch c.Policy.Fallback {
		case Local:
			local[n], index[n] = c, i
			n++
		case Open:
		default:
			return Decision{}, fmt.Errorf("ratelimit: store unavailable: policy %q: %w", c.Policy.Name, cause)
		}
	}
	counted, err := f.local.Take(ctx, local[:n])
	if err != nil {
		return Decision{}, err
	}
	var states [MaxCharges]State
	for i, c := range charges {
		states[i].Remaining = c.Policy.Limit.Capacity()
	}
	for i := range n {
		states[index[i]] = counted.States[i]
	}
	return Decide(charges, states), nil
}
