package ratelimit

import (
	"context"
	"strconv"
	"time"

	"github.com/ulule/limiter/v3"
)

// FromLimiter serves takes from any store of ulule/limiter: its Redis store, or
// one that a team wrote for itself. It keeps less than the contract of Store:
//
//   - The store counts in fixed windows. A bucket can spend its burst at the end
//     of one and again at the start of the next, and a denial lasts to the end of
//     the window; Wait is rounded up to the second in which ulule says it ends.
//     The window is the time in which a burst comes back, Period when Burst is
//     Count, rounded up to a millisecond.
//   - The store decides one counter at a time. Several takes, and a cost over 1,
//     are first compared with all counters and then charged one after the other.
//     When another call comes between, a take may be denied although others of
//     its request were charged. More than the limit is never admitted.
//   - A take of cost 1 by itself is one call of the store, which counts it even
//     when it is denied. That changes no decision before the window ends.
//
// Errors of the store are returned as they are; some takes may then be charged.
//
// For counters in this process Memory is the better choice: ulule's memory store
// allocates, grows with the number of buckets, and runs a goroutine that ends only
// when the garbage collector finds the store.
func FromLimiter(s limiter.Store) Store {
	if s == nil {
		panic("ratelimit: FromLimiter: nil store")
	}
	return limiterStore{s}
}

type limiterStore struct{ store limiter.Store }

func (s limiterStore) Take(ctx context.Context, takes []Take) (Decision, error) {
	if err := Check(takes); err != nil {
		return Decision{}, err
	}
	var states [MaxTakes]State
	if len(takes) > 1 || len(takes) == 1 && takes[0].Cost != 1 {
		fits := true
		for i := range takes {
			t := &takes[i]
			r, err := s.store.Peek(ctx, limiterKey(t), limiterRate(t))
			if err != nil {
				return Decision{}, err
			}
			denied := r.Remaining < t.Cost
			states[i] = limiterState(r, denied)
			fits = fits && !denied
		}
		if !fits {
			return Decide(takes, states), nil
		}
	}
	for i := range takes {
		t := &takes[i]
		if t.Cost == 0 {
			continue // ulule's Redis store would create a counter for it
		}
		r, err := s.store.Increment(ctx, limiterKey(t), t.Cost, limiterRate(t))
		if err != nil {
			return Decision{}, err
		}
		states[i] = limiterState(r, r.Reached)
	}
	return Decide(takes, states), nil
}

// limiterKey cannot be the same for two policies: the length says where the name
// ends, whatever either holds.
func limiterKey(t *Take) string {
	return strconv.Itoa(len(t.Policy.Name)) + ":" + t.Policy.Name + ":" + t.Bucket
}

func limiterRate(t *Take) limiter.Rate {
	l := t.Policy.Limit
	if l.burst() != l.Count {
		l = Limit{Count: l.burst(), Period: l.Interval() * time.Duration(l.burst())}
	}
	// Redis gets whole milliseconds, and a window of none never ends.
	const ms = time.Millisecond
	l.Period = (l.Period-1)/ms*ms + ms
	return l.Rate()
}

func limiterState(r limiter.Context, denied bool) State {
	s := State{Remaining: r.Remaining}
	// Reset is the end of the window cut to a second, so it may be over any time
	// before the next one.
	left := max(time.Until(time.Unix(r.Reset+1, 0)), 1)
	if r.Remaining < r.Limit {
		s.Reset = left
	}
	if denied {
		s.Wait = left
	}
	return s
}
