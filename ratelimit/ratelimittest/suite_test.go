package ratelimittest_test

import (
	"context"
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
