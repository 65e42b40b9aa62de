package ratelimit

import (
	"context"
	"time"

	"github.com/ulule/limiter/v3"

	"github.com/sallyport-go/sallyport/internal/arguments"
)

// FromLimiter makes a Store of any store of ulule/limiter: its Redis store, or
// one that a team wrote. It keeps less than the contract of Store:
//
//   - The store counts in fixed windows. A bucket can spend its burst at the
//     end of a window and again at the start of the next, and a denial lasts to
//     the end of the window. Wait is rounded up to the end of the second in
//     which ulule says that the window ends. A window is the time in which a
//     burst comes back (Period, when Burst is Count), rounded up to a
//     millisecond.
//   - The store decides one counter at a time. Several charges, and a cost over
//     1, are first compared with all counters and then made one after another.
//     If another call comes between, a charge may be denied although others of
//     its request were made. More than the limit is never admitted.
//   - A single charge of cost 1 is one call of the store, which counts it even
//     when it is denied. That changes no decision before the window ends.
//
// Errors of the store are returned as they are. Some charges may then be made.
//
// For counters in this process use Memory: ulule's memory store allocates,
// grows with the number of buckets, and runs a goroutine that ends only when
// the garbage collector finds the store.
func FromLimiter(s limiter.Store) Store {
	if arguments.Absent(s) {
		panic("ratelimit: FromLimiter: nil store")
	}
	return limiterStore{s}
}

type limiterStore struct{ store limiter.Store }

func (s limiterStore) Take(ctx context.Context, charges []Charge) (Decision, error) {
	if err := Check(charges); err != nil {
		return Decision{}, err
	}
	var states [MaxCharges]State
	if len(charges) > 1 || len(charges) == 1 && charges[0].Cost != 1 {
		fits := true
		for i := range charges {
			c := &charges[i]
			key, need := limiterKey(c), c.Cost
			r, err := s.store.Peek(ctx, key, limiterRate(c))
			if err != nil {
				return Decision{}, err
			}
			for before := range charges[:i] {
				if states[before].Wait == 0 && limiterKey(&charges[before]) == key {
					need += charges[before].Cost
				}
			}
			denied := r.Remaining < need
			states[i] = limiterState(r, denied)
			fits = fits && !denied
		}
		if !fits {
			return Decide(charges, states), nil
		}
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost == 0 {
			continue // ulule's Redis store would create a counter for it
		}
		r, err := s.store.Increment(ctx, limiterKey(c), c.Cost, limiterRate(c))
		if err != nil {
			return Decision{}, err
		}
		states[i] = limiterState(r, r.Reached)
	}
	return Decide(charges, states), nil
}

func limiterKey(c *Charge) string { return string(c.AppendKey(make([]byte, 0, 128))) }

func limiterRate(c *Charge) limiter.Rate {
	l := c.Policy.Limit
	if burst := l.Capacity(); burst != l.Count {
		l = Limit{Count: burst, Period: l.Interval() * time.Duration(burst)}
	}
	// Redis gets whole milliseconds, and a window of 0 ms never ends.
	const ms = time.Millisecond
	return limiter.Rate{Limit: l.Count, Period: (l.Period-1)/ms*ms + ms}
}

func limiterState(r limiter.Context, denied bool) State {
	s := State{Remaining: r.Remaining}
	// Reset is the end of the window cut to a second. The window may end at any
	// time before the next second.
	left := max(time.Until(time.Unix(r.Reset+1, 0)), 1)
	if r.Remaining < r.Limit {
		s.Reset = left
	}
	if denied {
		s.Wait = left
	}
	return s
}
