package ratelimittest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

type (
	memory   = ratelimit.Memory
	charge   = ratelimit.Charge
	decision = ratelimit.Decision
	takeFunc = func(*memory, context.Context, []charge) (decision, error)
)

// broken is a Memory that breaks a rule.
type broken struct {
	*memory
	take takeFunc
}

func (b broken) Take(ctx context.Context, charges []charge) (decision, error) {
	return b.take(b.memory, ctx, charges)
}

// edited changes the charges before the store sees them.
func edited(edit func(t *charge)) takeFunc {
	return func(m *memory, ctx context.Context, charges []charge) (decision, error) {
		if err := ratelimit.Check(charges); err != nil {
			return decision{}, err
		}
		charges = slices.Clone(charges)
		for i := range charges {
			p := *charges[i].Policy
			charges[i].Policy = &p
			edit(&charges[i])
		}
		return m.Take(ctx, charges)
	}
}

// retold changes the decision before the caller sees it.
func retold(retell func(charges []charge, d *decision)) takeFunc {
	return func(m *memory, ctx context.Context, charges []charge) (decision, error) {
		d, err := m.Take(ctx, charges)
		if err == nil {
			retell(charges, &d)
		}
		return d, err
	}
}

// waits changes every wait that is not 0.
func waits(change func(t charge, w time.Duration) time.Duration) takeFunc {
	return retold(func(charges []charge, d *decision) {
		for i, t := range charges {
			if w := d.States[i].Wait; w > 0 {
				d.States[i].Wait = change(t, w)
			}
		}
		d.Wait = d.States[d.Limiting].Wait
	})
}

// oneByOne decides each charge by itself.
func oneByOne(m *memory, ctx context.Context, charges []charge) (decision, error) {
	if err := ratelimit.Check(charges); err != nil {
		return decision{}, err
	}
	var states [ratelimit.MaxCharges]ratelimit.State
	for i := range charges {
		d, _ := m.Take(ctx, charges[i:i+1])
		states[i] = d.States[0]
	}
	return ratelimit.Decide(charges, states), nil
}

// byKey keeps counters by a key. It leaves time between the decision and the
// charge: in a bubble, a nanosecond is enough for all other callers to read.
func byKey(pause time.Duration, key func(t charge) string) takeFunc {
	var mu sync.Mutex
	tats := map[string]int64{}
	start := time.Now()
	return func(_ *memory, _ context.Context, charges []charge) (decision, error) {
		if err := ratelimit.Check(charges); err != nil {
			return decision{}, err
		}
		now := int64(time.Since(start))
		var states [ratelimit.MaxCharges]ratelimit.State
		var next [ratelimit.MaxCharges]int64
		mu.Lock()
		for i, t := range charges {
			next[i], states[i] = ratelimit.GCRA(now, tats[key(t)], t.Policy.Limit, t.Cost)
		}
		mu.Unlock()
		time.Sleep(pause)
		d := ratelimit.Decide(charges, states)
		if d.Allowed {
			mu.Lock()
			for i, t := range charges {
				tats[key(t)] = next[i]
			}
			mu.Unlock()
		}
		return d, nil
	}
}

func byName(t charge) string { return t.Policy.Name + " " + t.Bucket }

func readThenWrite() takeFunc {
	return byKey(time.Nanosecond, func(t charge) string { return string(t.AppendKey(nil)) })
}

// lazy makes the charges of a decision only at the next call.
func lazy() takeFunc {
	var kept []charge
	return func(m *memory, ctx context.Context, charges []charge) (decision, error) {
		if kept != nil {
			m.Take(ctx, kept)
		}
		kept = charges
		look := slices.Clone(charges)
		for i := range look {
			look[i].Cost = 0
		}
		return m.Take(ctx, look)
	}
}

func with(f takeFunc) func() takeFunc { return func() takeFunc { return f } }

// Each store breaks the rules in its row, and perhaps others.
var brokenStores = []struct {
	name  string
	fails []string
	take  func() takeFunc
}{
	{"admits one too many", []string{"Count/Burst", "Count/Race"},
		with(edited(func(t *charge) { t.Policy.Limit.Burst = t.Policy.Limit.Count + 1 }))},
	{"knows no burst", []string{"Count/Burst"}, with(edited(func(t *charge) { t.Policy.Limit.Burst = 0 }))},
	{"counts requests, not costs", []string{"Count/Cost"}, with(edited(func(t *charge) { t.Cost = min(t.Cost, 1) }))},
	{"charges for looking", []string{"Count/Peek"}, with(edited(func(t *charge) { t.Cost = max(t.Cost, 1) }))},
	{"denies a look at an empty bucket", []string{"Count/Peek"}, with(retold(func(_ []charge, d *decision) {
		if d.States[0].Remaining == 0 && d.States[0].Wait == 0 {
			d.Allowed, d.States[0].Wait = false, time.Second
		}
	}))},
	{"reads, then writes", []string{"Count/Race", "Count/CostRace", "Several/Race", "Several/Twice"}, readThenWrite},
	{"charges what it denies", []string{"Count/DenialWritesNothing"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			d, err := m.Take(ctx, charges)
			if err == nil && !d.Allowed && d.States[0].Remaining > 0 {
				m.Take(ctx, []charge{{Policy: charges[0].Policy, Bucket: charges[0].Bucket, Cost: d.States[0].Remaining}})
			}
			return d, err
		})},
	{"says half the wait", []string{"Time/Wait"},
		with(waits(func(_ charge, w time.Duration) time.Duration { return w / 2 }))},
	{"says the wait for one unit", []string{"Time/Wait"},
		with(waits(func(t charge, w time.Duration) time.Duration { return min(w, t.Policy.Limit.Interval()) }))},
	{"counts in milliseconds", []string{"Time/Fast"}, with(edited(func(t *charge) {
		l := t.Policy.Limit
		whole := max(time.Microsecond, l.Interval().Truncate(time.Millisecond))
		t.Policy.Limit = ratelimit.Limit{Count: 1, Period: whole, Burst: l.Capacity()}
	}))},
	{"counts in milliseconds, rounded up", []string{"Time/Fast"}, with(edited(func(t *charge) {
		l := t.Policy.Limit
		whole := (l.Interval() + time.Millisecond - 1).Truncate(time.Millisecond)
		t.Policy.Limit = ratelimit.Limit{Count: 1, Period: whole, Burst: l.Capacity()}
	}))},
	{"says no wait", []string{"Time/Wait"}, with(waits(func(charge, time.Duration) time.Duration { return 0 }))},
	{"says to wait for ever", []string{"Time/Wait"},
		with(waits(func(charge, time.Duration) time.Duration { return time.Hour }))},
	{"says an interval, whatever is left of it", []string{"Time/ShortestWait"},
		with(waits(func(t charge, _ time.Duration) time.Duration { return t.Policy.Limit.Interval() }))},
	{"says two intervals", []string{"Time/ShortestWait"},
		with(waits(func(_ charge, w time.Duration) time.Duration { return 2 * w }))},
	{"lets the impatient in", []string{"Time/NoEarly"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			d, err := m.Take(ctx, charges)
			if err == nil && d.Wait > 0 && d.Wait < charges[0].Policy.Limit.Interval() {
				d = decision{Allowed: true, States: [ratelimit.MaxCharges]ratelimit.State{{Reset: 1}}}
			}
			return d, err
		})},
	{"is too slow for the suite", []string{"Time/Wait"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			time.Sleep(time.Second)
			return m.Take(ctx, charges)
		})},
	{"counts in windows", []string{"Time/Window"}, func() takeFunc {
		c := &byClock{used: make(map[string]int64)}
		return func(_ *memory, ctx context.Context, charges []charge) (decision, error) { return c.Take(ctx, charges) }
	}},
	{"says that it is full too early", []string{"Time/Reset"}, with(retold(func(_ []charge, d *decision) {
		d.States[0].Reset /= 2
	}))},
	{"decides charge by charge", []string{"Several/AllOrNothing", "Several/Race"}, with(oneByOne)},
	{"makes the first charge alone", []string{"Several/AllCharged"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			charges = slices.Clone(charges)
			for i := 1; i < len(charges); i++ {
				charges[i].Cost = 0
			}
			return m.Take(ctx, charges)
		})},
	{"denies no charges", []string{"Several/None"},
		with(retold(func(charges []charge, d *decision) { d.Allowed = d.Allowed && len(charges) > 0 }))},
	{"names the first charge", []string{"Several/LeastShare", "Several/LongestWait"},
		with(retold(func(_ []charge, d *decision) { d.Limiting = 0 }))},
	{"has a wait for all", []string{"Several/LongestWait"}, with(retold(func(charges []charge, d *decision) {
		for i := range charges {
			d.States[i].Wait = d.Wait
		}
	}))},
	{"reports charges that it denied as made", []string{"Several/AllOrNothing"},
		with(retold(func(charges []charge, d *decision) {
			for i := range charges {
				if s := &d.States[i]; !d.Allowed && s.Wait == 0 {
					s.Remaining, s.Reset = s.Remaining-charges[i].Cost, s.Reset+1
				}
			}
		}))},
	{"folds case", []string{"Bucket/Isolated"}, with(edited(func(t *charge) { t.Bucket = strings.ToLower(t.Bucket) }))},
	{"trims space", []string{"Bucket/Isolated"}, with(edited(func(t *charge) { t.Bucket = strings.TrimSpace(t.Bucket) }))},
	{"ends at a zero byte", []string{"Bucket/Isolated"},
		with(edited(func(t *charge) { t.Bucket, _, _ = strings.Cut(t.Bucket, "\x00") }))},
	{"repairs UTF-8", []string{"Bucket/Isolated"},
		with(edited(func(t *charge) { t.Bucket = strings.ToValidUTF8(t.Bucket, "?") }))},
	{"cuts long names", []string{"Bucket/Isolated"},
		with(edited(func(t *charge) { t.Bucket = t.Bucket[:min(len(t.Bucket), 255)] }))},
	{"forgets", []string{"Bucket/Isolated", "Count/Peek"},
		with(func(_ *memory, ctx context.Context, charges []charge) (decision, error) {
			return (&ratelimit.Memory{}).Take(ctx, charges)
		})},
	{"counts by bucket alone", []string{"Bucket/Policies"}, with(edited(func(t *charge) { t.Policy.Name = "all" }))},
	{"runs policy and bucket together", []string{"Bucket/Policies"},
		with(edited(func(t *charge) { t.Bucket, t.Policy.Name = t.Policy.Name+t.Bucket, "all" }))},
	{"separates them by a colon", []string{"Bucket/Policies"},
		with(edited(func(t *charge) { t.Bucket, t.Policy.Name = t.Policy.Name+":"+t.Bucket, "all" }))},
	{"knows no limits apart", []string{"Bucket/Limits"}, func() takeFunc { return byKey(0, byName) }},
	{"knows limits apart by their burst", []string{"Bucket/Limits"}, func() takeFunc {
		return byKey(0, func(t charge) string { return fmt.Sprint(byName(t), t.Policy.Limit.Capacity()) })
	}},
	{"knows limits apart by their interval", []string{"Bucket/Limits"}, func() takeFunc {
		return byKey(0, func(t charge) string { return fmt.Sprint(byName(t), t.Policy.Limit.Interval()) })
	}},
	{"keeps the charges", []string{"Bucket/SlicesAreTheCallers"}, lazy},
	{"denies a cost over the burst", []string{"Error/Cost"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			d, err := m.Take(ctx, charges)
			if errors.Is(err, ratelimit.ErrCost) {
				d.States[0].Wait, err = time.Second, nil
			}
			return d, err
		})},
	{"returns ErrCost for every error", []string{"Error/Nonsense"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			d, err := m.Take(ctx, charges)
			if err != nil {
				err = ratelimit.ErrCost
			}
			return d, err
		})},
	{"charges before it checks", []string{"Error/Nonsense", "Error/Cost"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			if err := ratelimit.Check(charges); err != nil {
				m.Take(ctx, charges[:1])
			}
			return m.Take(ctx, charges)
		})},
	{"has an error of its own for a cancelled context", []string{"Error/Cancelled"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			if ctx.Err() != nil {
				return decision{}, errors.New("i/o timeout")
			}
			return m.Take(ctx, charges)
		})},
	{"denies when cancelled", []string{"Error/Cancelled"},
		with(func(m *memory, ctx context.Context, charges []charge) (decision, error) {
			if ctx.Err() != nil {
				return denial, nil
			}
			return m.Take(ctx, charges)
		})},
}

// unavailable stores break the rule about them.
var unavailable = map[string]takeFunc{
	"admits": (*memory).Take,
	"denies": func(*memory, context.Context, []charge) (decision, error) { return denial, nil },
	"admits with an error": func(*memory, context.Context, []charge) (decision, error) {
		return decision{Allowed: true}, errors.New("down")
	},
}

var denial = decision{Wait: time.Second, States: [ratelimit.MaxCharges]ratelimit.State{{Wait: time.Second}}}

func TestBrokenStores(t *testing.T) {
	tripped := map[string]bool{"Error/Unavailable": true, "Reset/Full": true}
	for _, b := range brokenStores {
		t.Run(b.name, func(t *testing.T) {
			for _, rule := range b.fails {
				tripped[rule] = true
				s := ratelimittest.Suite{Bubble: true, New: func(t *testing.T) ratelimit.Store {
					return broken{&ratelimit.Memory{}, b.take()}
				}}
				if err := s.Check(t, rule); err == nil {
					t.Errorf("a store that %s passes %s", b.name, rule)
				}
			}
		})
	}
	for name, take := range unavailable {
		s := ratelimittest.Suite{
			New:         func(t *testing.T) ratelimit.Store { return &ratelimit.Memory{} },
			Unavailable: func(t *testing.T) ratelimit.Store { return broken{&ratelimit.Memory{}, take} },
		}
		if err := s.Check(t, "Error/Unavailable"); err == nil {
			t.Errorf("a store that %s when it is unavailable passes", name)
		}
	}
	for _, rule := range ratelimittest.Rules() {
		if !tripped[rule] {
			t.Errorf("no broken store shows that %s can fail", rule)
		}
	}
}
