package ratelimit_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestGCRA(t *testing.T) {
	const s = int64(time.Second)
	perMinute := ratelimit.MustParse("10-M") // one per 6 s
	for _, tt := range []struct {
		name        string
		now, tat    int64
		limit       ratelimit.Limit
		cost        int64
		next        int64
		remaining   int64
		reset, wait int64
	}{
		{"fresh", 100 * s, 0, perMinute, 1, 106 * s, 9, 6 * s, 0},
		{"fresh, all of it", 100 * s, 0, perMinute, 10, 160 * s, 0, 60 * s, 0},
		{"refilled", 100 * s, 99 * s, perMinute, 1, 106 * s, 9, 6 * s, 0},
		{"half spent", 100 * s, 130 * s, perMinute, 3, 148 * s, 2, 48 * s, 0},
		{"exhausted", 100 * s, 160 * s, perMinute, 1, 160 * s, 0, 60 * s, 6 * s},
		{"nearly back", 100*s + 1, 154*s + 2, perMinute, 1, 154*s + 2, 0, 54*s + 1, 1},
		{"back", 100*s + 1, 154*s + 1, perMinute, 1, 160*s + 1, 0, 60 * s, 0},
		{"too little for the cost", 100 * s, 130 * s, perMinute, 10, 130 * s, 5, 30 * s, 30 * s},
		{"a look", 100 * s, 130 * s, perMinute, 0, 130 * s, 5, 30 * s, 0},
		{"a look at nothing left", 100 * s, 160 * s, perMinute, 0, 160 * s, 0, 60 * s, 0},
		{"the clock stepped back an hour", 100 * s, 3700 * s, perMinute, 1, 160 * s, 0, 60 * s, 6 * s},
		{"the clock stepped back an hour, a look", 100 * s, 3700 * s, perMinute, 0, 3700 * s, 0, 60 * s, 0},
		{"the clock stepped back by 584 years", math.MinInt64, math.MaxInt64, perMinute, 1,
			math.MinInt64 + 60*s, 0, 60 * s, 6 * s},
		{"a clock before zero", -100 * s, -130 * s, perMinute, 1, -94 * s, 9, 6 * s, 0},
		{"a clock at its end", math.MaxInt64, 0, perMinute, 1, math.MaxInt64, 10, 0, 0},
		{"a small burst", 0, 0, ratelimit.Limit{Count: 10, Period: time.Minute, Burst: 2}, 2, 12 * s, 0, 12 * s, 0},
		{"exhausted, of a hundred", 100 * s, 160 * s, ratelimit.MustParse("100-M"), 1, 160 * s, 0, 60 * s, s * 6 / 10},
		{"an hour beyond a full burst, all of it", 100 * s, 3700 * s, perMinute, 10, 160 * s, 0, 60 * s, 60 * s},
	} {
		next, got := ratelimit.GCRA(tt.now, tt.tat, tt.limit, tt.cost)
		want := ratelimit.State{Remaining: tt.remaining, Reset: time.Duration(tt.reset), Wait: time.Duration(tt.wait)}
		if next != tt.next || got != want {
			t.Errorf("%s: next %d and %+v, want %d and %+v", tt.name, next, got, tt.next, want)
		}
	}
}

// TestGCRAExtremes checks numbers near the ends of their range.
func TestGCRAExtremes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	// Of any magnitude, sometimes at an end of the range.
	number := func() int64 {
		n := int64(random.Uint64() >> (1 + random.IntN(63)))
		switch random.IntN(5) {
		case 0:
			return math.MaxInt64 - n
		case 1:
			return n + 1
		}
		return n
	}
	valid := 0
	for range 100_000 {
		l := ratelimit.Limit{Count: number(), Period: time.Duration(number()), Burst: number()}
		if ratelimit.Valid(l) != nil {
			continue
		}
		valid++
		now, tat := number(), number()
		if random.IntN(2) == 0 {
			now = -now
		}
		if random.IntN(2) == 0 {
			tat = now + random.Int64N(1<<40)
		}
		burst := l.Capacity()
		for _, cost := range []int64{0, 1, min(burst, 1+number()), burst} {
			if cost >= 0 {
				checkGCRA(t, now, tat, l, cost)
			}
		}
	}
	if valid < 2_000 {
		t.Errorf("only %d limits were valid", valid)
	}
}

// checkGCRA wants one step to agree with its State.
func checkGCRA(t *testing.T, now, tat int64, l ratelimit.Limit, cost int64) {
	t.Helper()
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	interval := int64(l.Interval())
	full := interval * burst
	next, s := ratelimit.GCRA(now, tat, l, cost)
	if s.Remaining < 0 || s.Remaining > burst || s.Reset < 0 || int64(s.Reset) > full ||
		s.Wait < 0 || int64(s.Wait) > full {
		t.Fatalf("GCRA(%d, %d, %+v, %d) gives %+v", now, tat, l, cost, s)
	}
	if now > math.MaxInt64-2*full {
		return // where the clock saturates
	}
	if s.Wait == 0 {
		if cost > 0 && next != now+int64(s.Reset) {
			t.Fatalf("GCRA(%d, %d, %+v, %d): next %d with a Reset of %v", now, tat, l, cost, next, s.Reset)
		}
		return
	}
	if next != min(tat, now+full) {
		t.Fatalf("GCRA(%d, %d, %+v, %d): a denial changed the tat to %d", now, tat, l, cost, next)
	}
	tat = next
	if _, s := ratelimit.GCRA(now+int64(s.Wait), tat, l, cost); s.Wait != 0 {
		t.Fatalf("GCRA(%d, %d, %+v, %d): denied after its wait, which goes on for %v", now, tat, l, cost, s.Wait)
	}
	if _, s := ratelimit.GCRA(now+int64(s.Wait)-1, tat, l, cost); s.Wait != 1 {
		t.Fatalf("GCRA(%d, %d, %+v, %d): a nanosecond before its wait is over, the wait is %v", now, tat, l, cost, s.Wait)
	}
	if cost == 1 && int64(s.Wait) > interval {
		t.Fatalf("GCRA(%d, %d, %+v, 1): a wait of %v", now, tat, l, s.Wait)
	}
}

// FuzzWindow is a random client. It counts what every window admits.
func FuzzWindow(f *testing.F) {
	f.Add(int64(10), int64(time.Second), int64(0), uint64(1))
	f.Add(int64(3), int64(time.Second), int64(1), uint64(2))
	f.Add(int64(7), int64(time.Minute), int64(20), uint64(3))
	f.Fuzz(func(t *testing.T, count, period, burst int64, seed uint64) {
		l := ratelimit.Limit{Count: count, Period: time.Duration(period), Burst: burst}
		if ratelimit.Valid(l) != nil || period > int64(1000*time.Hour) {
			return
		}
		if burst == 0 {
			burst = count
		}
		interval := int64(l.Interval())
		random := rand.New(rand.NewPCG(seed, 0))
		var now, tat int64
		var times, costs []int64
		for range 300 {
			switch random.IntN(4) {
			case 0:
				now += random.Int64N(2 * interval)
			case 1:
				now += interval
			case 2:
				now += random.Int64N(int64(l.Period))
			}
			cost := 1 + random.Int64N(min(burst, 5))
			next, s := ratelimit.GCRA(now, tat, l, cost)
			if tat = next; s.Wait == 0 {
				times, costs = append(times, now), append(costs, cost)
			}
		}
		for i := range times {
			sum := int64(0)
			for j := i; j < len(times); j++ {
				sum += costs[j]
				if w := times[j] - times[i]; sum > burst+w/interval {
					t.Fatalf("%+v: %d admitted within %v, want at most %d", l, sum, time.Duration(w), burst+w/interval)
				}
			}
		}
	})
}
