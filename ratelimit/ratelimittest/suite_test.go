package ratelimittest_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// moved is a store with a clock of its own.
type moved struct {
	mu   sync.Mutex
	now  int64
	tats map[string]int64
}

func (m *moved) Take(_ context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if err := ratelimit.Check(charges); err != nil {
		return ratelimit.Decision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var states [ratelimit.MaxCharges]ratelimit.State
	next := map[string]int64{}
	for i, c := range charges {
		key := string(c.AppendKey(nil))
		if _, twice := next[key]; !twice {
			next[key] = m.tats[key]
		}
		next[key], states[i] = ratelimit.GCRA(m.now, next[key], c.Policy.Limit, c.Cost)
	}
	d := ratelimit.Decide(charges, states)
	for key, tat := range next {
		if d.Allowed {
			m.tats[key] = tat
		}
	}
	for i, c := range charges {
		if !d.Allowed && states[i].Wait == 0 {
			_, d.States[i] = ratelimit.GCRA(m.now, m.tats[string(c.AppendKey(nil))], c.Policy.Limit, 0)
		}
	}
	return d, nil
}

// One store for all rules, whose clock the suite moves. It waits for nothing.
func TestAdvance(t *testing.T) {
	m := &moved{tats: map[string]int64{}}
	ratelimittest.Suite{
		New:     func(t *testing.T) ratelimit.Store { return m },
		Advance: func(d time.Duration) { m.now += int64(d) },
		Atomic:  true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// A store behind a slow network is right, too.
func TestSlow(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return broken{&ratelimit.Memory{}, func(m *memory, ctx context.Context, charges []charge) (decision, error) {
				time.Sleep(150 * time.Millisecond)
				return m.Take(ctx, charges)
			}}
		},
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// byClock counts in windows that end with the clock, as a key with the hour in
// it does.
type byClock struct {
	mu   sync.Mutex
	used map[string]int64
}

func (c *byClock) Take(_ context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if err := ratelimit.Check(charges); err != nil {
		return ratelimit.Decision{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	used := make(map[string]int64)
	var states [ratelimit.MaxCharges]ratelimit.State
	look := func(i int, cost int64) {
		l := charges[i].Policy.Limit
		window := now.Truncate(l.Period)
		key := string(charges[i].AppendKey(nil)) + window.String()
		if _, twice := used[key]; !twice {
			used[key] = c.used[key]
		}
		end := window.Add(l.Period).Sub(now)
		states[i] = ratelimit.State{Wait: end}
		if used[key]+cost <= l.Capacity() {
			used[key] += cost
			states[i].Wait = 0
		}
		if states[i].Remaining = l.Capacity() - used[key]; used[key] > 0 {
			states[i].Reset = end
		}
	}
	for i, t := range charges {
		look(i, t.Cost)
	}
	d := ratelimit.Decide(charges, states)
	if d.Allowed {
		maps.Copy(c.used, used)
		return d, nil
	}
	clear(used)
	for i := range charges {
		if wait := states[i].Wait; wait == 0 {
			look(i, 0)
		}
	}
	d.States = states
	return d, nil
}

// Windows may end at any time, also in the middle of a check.
func TestWindowsByTheClock(t *testing.T) {
	for _, begin := range []time.Duration{0, 1200 * time.Millisecond, 24*time.Hour - 5*time.Second} {
		ratelimittest.Suite{
			New: func(t *testing.T) ratelimit.Store {
				time.Sleep(begin)
				return &byClock{used: make(map[string]int64)}
			},
			Bubble: true, Atomic: true, DenialWritesNothing: true,
		}.Run(t)
	}
}
