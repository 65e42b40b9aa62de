package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// FailoverOptions adjust a Failover. The zero value is ready to use.
type FailoverOptions struct {
	Budget   time.Duration // for the store to answer one call; 0 means 50 ms
	Failures int           // in a row, after which the store is left alone; 0 means 5
	Cooldown time.Duration // how long until it is tried again; 0 means 1 s
	Local    Store         // counts for policies that are Local; nil means NewMemory()
	Logger   *slog.Logger  // nil means slog.Default()
}

// Failover is a Store that decides within its budget whatever becomes of the store
// behind it.
//
// A call that fails, panics, or does not return within the budget is decided by
// each policy's FailureMode: by the counters of Local, by admitting, or, if any of
// the policies is Closed, by an error that wraps ErrUnavailable with nothing
// charged. After failures in a row the store is left alone, and every Cooldown one
// call tries it; the first to succeed brings it back. What was counted locally in
// the meantime is not carried over.
//
// A store that ignores its context is left behind in a goroutine, of which there
// are never more than about a thousand. A charge that it makes after the budget
// stays. ErrCost is an answer and not a failure, and neither is it when the
// caller's context ends: Take then returns that context's error.
//
// One line is logged when the store is given up and one when it is back, and none
// per call; Fallbacks and Down are for metrics.
type Failover struct {
	store     Store
	local     Store
	budget    time.Duration
	breaker   breaker
	fallbacks atomic.Int64
}

// NewFailover panics if s is nil or an option is negative.
func NewFailover(s Store, o FailoverOptions) *Failover {
	if s == nil {
		panic("ratelimit: NewFailover: nil store")
	}
	if o.Budget < 0 || o.Failures < 0 || o.Cooldown < 0 {
		panic("ratelimit: NewFailover: negative option")
	}
	f := &Failover{store: s, local: o.Local, budget: o.Budget}
	f.breaker.limit, f.breaker.cooldown, f.breaker.log = o.Failures, o.Cooldown, o.Logger
	if f.local == nil {
		f.local = NewMemory()
	}
	if f.budget == 0 {
		f.budget = 50 * time.Millisecond
	}
	if f.breaker.limit == 0 {
		f.breaker.limit = 5
	}
	if f.breaker.cooldown == 0 {
		f.breaker.cooldown = time.Second
	}
	if f.breaker.log == nil {
		f.breaker.log = slog.Default()
	}
	return f
}

// Fallbacks counts the calls that were decided without the store, refusals by
// Closed included.
func (f *Failover) Fallbacks() int64 { return f.fallbacks.Load() }

// Down reports whether the store is left alone at present.
func (f *Failover) Down() bool {
	f.breaker.mu.Lock()
	defer f.breaker.mu.Unlock()
	return f.breaker.open
}

func (f *Failover) Take(ctx context.Context, takes []Take) (Decision, error) {
	if err := Check(takes); err != nil {
		return Decision{}, err
	}
	d, err := f.ask(ctx, takes)
	switch {
	case err == nil || errors.Is(err, ErrCost):
		return d, err
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	}
	f.fallbacks.Add(1)
	return f.fallback(ctx, takes, err)
}

// ask calls the store, if the breaker lets it.
func (f *Failover) ask(ctx context.Context, takes []Take) (Decision, error) {
	c, err := f.breaker.begin()
	if errors.Is(err, errCrowded) {
		f.breaker.failed(&call{}, err)
	}
	if err != nil {
		return Decision{}, err
	}

	type answer struct {
		Decision
		err error
	}
	bounded, cancel := context.WithTimeout(ctx, f.budget)
	defer cancel()
	answers := make(chan answer, 1)
	// The store may use its takes for longer than the caller leaves them alone.
	own := append([]Take(nil), takes...)
	go func() {
		var a answer
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
		a.err = fmt.Errorf("ratelimit: no answer within %v", f.budget)
	}
	switch {
	case a.err == nil || errors.Is(a.err, ErrCost):
		f.breaker.answered(c)
	case ctx.Err() != nil:
		f.breaker.abandoned(c)
	default:
		f.breaker.failed(c, a.err)
	}
	return a.Decision, a.err
}

// fallback decides without the store.
func (f *Failover) fallback(ctx context.Context, takes []Take, cause error) (Decision, error) {
	var local [MaxTakes]Take
	var index [MaxTakes]int
	n := 0
	for i, t := range takes {
		switch t.Policy.OnFailure {
		case Local:
			local[n], index[n] = t, i
			n++
		case Open:
		default:
			return Decision{}, fmt.Errorf("%w: policy %q: %w", ErrUnavailable, t.Policy.Name, cause)
		}
	}
	counted, err := f.local.Take(ctx, local[:n])
	if err != nil {
		return Decision{}, err
	}
	var states [MaxTakes]State
	for i, t := range takes {
		states[i].Remaining = t.Policy.Limit.burst()
	}
	for i := range n {
		states[index[i]] = counted.States[i]
	}
	return Decide(takes, states), nil
}
