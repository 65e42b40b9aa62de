package ratelimit_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

const second = int64(time.Second)

func TestGCRA(t *testing.T) {
	perMinute := ratelimit.Limit{Count: 10, Period: time.Minute} // one per 6 s
	for _, tt := range []struct {
		name      string
		now, tat  int64
		limit     ratelimit.Limit
		cost      int64
		next      int64
		remaining int64
		reset     time.Duration
		wait      time.Duration
	}{
		{"fresh", 100 * second, 0, perMinute, 1, 106 * second, 9, 6 * time.Second, 0},
		{"fresh, all of it", 100 * second, 0, perMinute, 10, 160 * second, 0, time.Minute, 0},
		{"refilled", 100 * second, 99 * second, perMinute, 1, 106 * second, 9, 6 * time.Second, 0},
		{"half spent", 100 * second, 130 * second, perMinute, 3, 148 * second, 2, 48 * time.Second, 0},
		{"exhausted", 100 * second, 160 * second, perMinute, 1, 160 * second, 0, time.Minute, 6 * time.Second},
		{"nearly back", 100*second + 1, 154*second + 2, perMinute, 1, 154*second + 2, 0, 54*time.Second + 1, 1},
		{"back", 100*second + 1, 154*second + 1, perMinute, 1, 160*second + 1, 0, time.Minute, 0},
		{"too little for the cost", 100 * second, 130 * second, perMinute, 10, 130 * second, 5, 30 * time.Second, 30 * time.Second},
		{"a look", 100 * second, 130 * second, perMinute, 0, 130 * second, 5, 30 * time.Second, 0},
		{"a look at nothing left", 100 * second, 160 * second, perMinute, 0, 160 * second, 0, time.Minute, 0},
		{"the clock stepped back an hour", 100 * second, 3700 * second, perMinute, 1, 160 * second, 0, time.Minute, 6 * time.Second},
		{"the clock stepped back an hour, a look", 100 * second, 3700 * second, perMinute, 0, 3700 * second, 0, time.Minute, 0},
		{"the clock stepped back by 584 years", math.MinInt64, math.MaxInt64, perMinute, 1, math.MinInt64 + 60*second, 0, time.Minute, 6 * time.Second},
		{"a clock before zero", -100 * second, -130 * second, perMinute, 1, -94 * second, 9, 6 * time.Second, 0},
		{"a clock at its end", math.MaxInt64, 0, perMinute, 1, math.MaxInt64, 10, 0, 0},
		{"a small burst", 0, 0, ratelimit.Limit{Count: 10, Period: time.Minute, Burst: 2}, 2, 12 * second, 0, 12 * time.Second, 0},
		{"exhausted, of a hundred", 100 * second, 160 * second, ratelimit.Limit{Count: 100, Period: time.Minute}, 1, 160 * second, 0, time.Minute, 600 * time.Millisecond},
		{"an hour beyond a full burst, all of it", 100 * second, 3700 * second, perMinute, 10, 160 * second, 0, time.Minute, time.Minute},
	} {
		next, s := ratelimit.GCRA(tt.now, tt.tat, tt.limit, tt.cost)
		want := ratelimit.State{Remaining: tt.remaining, Reset: tt.reset, Wait: tt.wait}
		if next != tt.next || s != want {
			t.Errorf("%s: next %d and %+v, want %d and %+v", tt.name, next, s, tt.next, want)
		}
	}
}

func TestGCRAPanics(t *testing.T) {
	valid := ratelimit.MustParse("10-M")
	for _, tt := range []struct {
		limit ratelimit.Limit
		cost  int64
	}{{ratelimit.Limit{}, 0}, {valid, 11}, {valid, -1}} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.HasPrefix(v, "ratelimit: GCRA: ") {
					t.Errorf("GCRA with %+v and cost %d panics with %q", tt.limit, tt.cost, v)
				}
			}()
			ratelimit.GCRA(0, 0, tt.limit, tt.cost)
		}()
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
		burst := max(l.Burst, 1)
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

// FuzzGCRA checks that one step agrees with its State, for any numbers.
func FuzzGCRA(f *testing.F) {
	f.Add(int64(0), int64(0), int64(10), int64(time.Minute), int64(0), int64(1))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(1), int64(1<<62), int64(1), int64(1))
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), int64(1), int64(1<<40), int64(1<<22), int64(1<<22))
	f.Fuzz(func(t *testing.T, now, tat, count, period, burst, cost int64) {
		l := ratelimit.Limit{Count: count, Period: time.Duration(period), Burst: burst}
		if most := max(burst, 0); ratelimit.Valid(l) == nil && cost >= 0 && (cost <= most || burst == 0 && cost <= count) {
			checkGCRA(t, now, tat, l, cost)
		}
	})
}

func checkGCRA(t *testing.T, now, tat int64, l ratelimit.Limit, cost int64) {
	t.Helper()
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	interval := int64(l.Interval())
	full := interval * burst
	next, s := ratelimit.GCRA(now, tat, l, cost)
	if s.Remaining < 0 || s.Remaining > burst || s.Reset < 0 || int64(s.Reset) > full || s.Wait < 0 || int64(s.Wait) > full {
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
