package meter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/meter"
)

// store is a Counter in memory. In a bubble its clock begins at the start of the
// year 2000.
type store struct {
	idem.Counter // nil: a Meter calls Used alone

	mu      sync.Mutex
	charges []charge
	ahead   time.Duration // its clock, of the one of this process
	jumps   time.Duration // its clock, at each call
	delay   time.Duration // half before it looks, half after
	err     error
	panics  bool
	hangs   chan struct{} // until it is closed, whatever becomes of ctx
	calls   []call
	open    map[idem.Account]int
	most    int // calls that were open at once for one account
}

type charge struct {
	account idem.Account
	at      time.Time
	units   int64
}

type call struct {
	account idem.Account
	at      time.Time
	since   time.Time
}

func (s *store) now() time.Time { return time.Now().Add(s.ahead) }

func (s *store) Used(ctx context.Context, a idem.Account, since time.Time) (units int64, now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{a, time.Now(), since})
	if s.open == nil {
		s.open = map[idem.Account]int{}
	}
	s.open[a]++
	s.most = max(s.most, s.open[a])
	defer func() { s.open[a]-- }()
	if hangs := s.hangs; hangs != nil {
		s.mu.Unlock()
		<-hangs
		s.mu.Lock()
	}
	wait := func() {
		s.mu.Unlock()
		defer s.mu.Lock()
		select {
		case <-time.After(s.delay / 2):
		case <-ctx.Done():
		}
	}
	wait()
	s.ahead += s.jumps
	for _, c := range s.charges {
		if strings.HasPrefix(string(c.account), string(a)) && !c.at.Before(since) {
			units += c.units
		}
	}
	now = s.now()
	wait()
	if s.panics {
		panic("out of order")
	}
	return units, now, errors.Join(s.err, ctx.Err())
}

// charge counts units, in this process or another.
func (s *store) charge(a idem.Account, units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charges = append(s.charges, charge{a, s.now(), units})
}

func (s *store) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *store) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

var (
	tenant = idem.NewAccount("tenant")
	apiKey = idem.NewAccount("tenant", "key")
)

func monthly(units int64) *idem.Quota { return &idem.Quota{Name: "monthly", Units: units} }

func limit(q *idem.Quota) []meter.Limit { return []meter.Limit{{tenant, q}} }

// hold returns what a Verdict says in a word, and the Hold.
func hold(t *testing.T, m *meter.Meter, units int64, limits []meter.Limit) (string, *meter.Hold) {
	t.Helper()
	h, v, err := m.Hold(t.Context(), units, limits)
	if (h == nil) != (err != nil || v.Refused != nil) {
		t.Errorf("got a hold: %t, with %+v and %v", h != nil, v, err)
	}
	switch {
	case err != nil:
		return "error", h
	case v.Refused != nil && v.Held:
		return "held", h
	case v.Refused != nil:
		return "used up", h
	case v.Fault != nil:
		return "fault", h
	case v.Reported != nil:
		return "reported", h
	}
	return "admitted", h
}

func want(t *testing.T, m *meter.Meter, units int64, limits []meter.Limit, want string) *meter.Hold {
	t.Helper()
	got, h := hold(t, m, units, limits)
	if got != want {
		t.Errorf("%d units: got %s, want %s", units, got, want)
	}
	return h
}

// An account is charged to the last unit of its quota, by the store's sum.
func TestUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{ahead: 40*24*time.Hour + time.Minute} // 10 February 2000
		s.charge(tenant, 90)
		s.charge(apiKey, 5)
		s.charge(idem.NewAccount("tenant2"), 1000)
		for period, resets := range map[idem.Period]time.Time{
			idem.Month:    time.Date(2000, 3, 1, 0, 0, 0, 0, time.UTC),
			idem.Day:      time.Date(2000, 2, 11, 0, 0, 0, 0, time.UTC),
			idem.Lifetime: {},
		} {
			m, q := meter.New(s), &idem.Quota{Name: "quota", Units: 100, Period: period}
			want(t, m, 5, limit(q), "admitted").End(0)
			h, v, err := m.Hold(t.Context(), 6, limit(q))
			if h != nil || err != nil || v.Refused != q || v.Held || v.Reported != nil || !v.Resets.Equal(resets) {
				t.Errorf("period %d: got %v, %+v and %v, want %v refused until %s", period, h, v, err, q, resets)
			}
		}
	})
}

// What operations hold is not charged: over the quota with it, another try may
// succeed. What they are charged is read before the quota is called used up.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		m, limits := meter.New(s), limit(monthly(10))
		a, b := want(t, m, 5, limits, "admitted"), want(t, m, 5, limits, "admitted")
		want(t, m, 1, limits, "held")
		if n := s.reads(); n != 1 {
			t.Errorf("the store was read %d times, want 1", n)
		}
		a.End(0)
		want(t, m, 6, limits, "held")
		c := want(t, m, 5, limits, "admitted")

		s.charge(tenant, 5)
		b.End(5)
		want(t, m, 1, limits, "held") // by c
		want(t, m, 1, limits, "held")
		if n := s.reads(); n != 2 {
			t.Errorf("the store was read %d times, want 2", n)
		}
		s.charge(tenant, 5)
		c.End(5)
		want(t, m, 1, limits, "used up")
		want(t, m, 1, limits, "used up")
		if n := s.reads(); n != 3 {
			t.Errorf("the store was read %d times, want 3", n)
		}
		(*meter.Hold)(nil).End(5)
	})
}

// An operation may be charged for more than it held.
func TestChargedMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		m, limits := meter.New(s), limit(monthly(10))
		h := want(t, m, 1, limits, "admitted")
		s.charge(tenant, 25)
		h.End(25)
		want(t, m, 1, limits, "used up")
	})
}

// A charge that the meter counts here, and that the store does not have in the end,
// is not in the way.
func TestStoreDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, limits := meter.New(&store{}), limit(monthly(10))
		want(t, m, 10, limits, "admitted").End(10)
		want(t, m, 10, limits, "admitted")
	})
}

// While a read goes on, charges may be in it or not. They count until the next one,
// maybe twice, and use nothing up.
func TestChargedDuringRead(t *testing.T) {
	for name, early := range map[string]bool{"in the read": true, "not in the read": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				m, limits := meter.New(s), limit(monthly(10))
				h := want(t, m, 4, limits, "admitted")
				time.Sleep(time.Second)
				s.delay = 100 * time.Millisecond
				go func() { want(t, m, 1, limits, "admitted").End(0) }()
				time.Sleep(25 * time.Millisecond)
				if !early {
					time.Sleep(50 * time.Millisecond)
				}
				s.charge(tenant, 4)
				h.End(4)
				time.Sleep(time.Second / 2)
				before := s.reads()
				want(t, m, 7, limits, "used up")
				want(t, m, 6, limits, "admitted").End(0)
				if n := s.reads() - before; n != 1 {
					t.Errorf("the store was read %d times, want once more because of the charge", n)
				}
			})
		})
	}
}

// An operation that comes during a read is not called held by what that read may
// have counted twice.
func TestNewReadAfterArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{delay: 100 * time.Millisecond}
		m, limits := meter.New(s), limit(monthly(10))
		h := want(t, m, 10, limits, "admitted")
		time.Sleep(time.Second)
		go hold(t, m, 1, limits)
		time.Sleep(10 * time.Millisecond)
		s.charge(tenant, 10)
		h.End(10)
		want(t, m, 1, limits, "used up")
		s.set(func() { s.charges = nil })
		time.Sleep(time.Second)
		want(t, m, 10, limits, "admitted")
	})
}

// Under load the store is read once a second for an account, and not more often by
// more quotas of the same period.
func TestReadsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{delay: 5 * time.Millisecond}
		m := meter.New(s)
		limits := []meter.Limit{{tenant, monthly(1 << 40)}, {tenant, &idem.Quota{Name: "report", Units: 1, ReportOnly: true}}}
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 1000 {
					h := want(t, m, 3, limits, "reported")
					time.Sleep(10 * time.Millisecond)
					s.charge(tenant, 3)
					h.End(3)
				}
			})
		}
		wg.Wait()
		// The first charges are in the way of the report-only quota, until it is used up.
		for i := 4; i < len(s.calls); i++ {
			if after := s.calls[i].at.Sub(s.calls[i-1].at); after < time.Second {
				t.Errorf("read %d came %v after the one before", i, after)
			}
		}
		if n := len(s.calls); n < 10 || n > 13 || s.most != 1 {
			t.Errorf("the store was read %d times in 10 seconds, %d at once", n, s.most)
		}
	})
}

// What other processes have used is known within a second.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, period := range []idem.Period{idem.Month, idem.Day, idem.Lifetime} {
			s := &store{}
			m, limits := meter.New(s), limit(&idem.Quota{Name: "quota", Units: 10, Period: period})
			want(t, m, 1, limits, "admitted").End(0)
			s.charge(tenant, 10)
			time.Sleep(time.Second - 1)
			want(t, m, 1, limits, "admitted").End(0)
			time.Sleep(time.Nanosecond)
			want(t, m, 1, limits, "used up")
		}
	})
}

// A report-only quota refuses nothing, used up or not.
func TestReportOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		m := meter.New(s)
		report := &idem.Quota{Name: "report", Units: 10, ReportOnly: true}
		limits := []meter.Limit{{tenant, report}, {apiKey, monthly(30)}}
		a := want(t, m, 10, limits, "admitted")
		b := want(t, m, 10, limits, "reported")
		s.charge(apiKey, 20)
		a.End(10)
		b.End(10)
		h, v, err := m.Hold(t.Context(), 10, limits)
		if h == nil || v != (meter.Verdict{Reported: report}) || err != nil {
			t.Errorf("got %v, %+v and %v", h, v, err)
		}
		_, v, err = m.Hold(t.Context(), 10, limits)
		if v.Refused != limits[1].Quota || !v.Held || v.Reported != report || err != nil {
			t.Errorf("got %+v and %v", v, err)
		}
	})
}

// All limits admit an operation, or it holds nothing on any.
func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New(&store{})
		wide, narrow := monthly(10), &idem.Quota{Name: "budget", Units: 5, Period: idem.Lifetime}
		limits := []meter.Limit{{tenant, wide}, {apiKey, narrow}}
		want(t, m, 6, limits, "used up")
		h := want(t, m, 3, limits, "admitted")
		want(t, m, 3, limits, "held")
		want(t, m, 7, limit(wide), "admitted") // what the first one left
		want(t, m, 1, limit(wide), "held")
		h.End(0)
		want(t, m, 3, limit(wide), "admitted")
	})
}

// One quota that is used up goes before another that may be free soon, else the first.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		m := meter.New(s)
		s.charge(apiKey, 5)
		open, full := &idem.Quota{Name: "open", Units: 10}, &idem.Quota{Name: "full", Units: 5, Period: idem.Lifetime}
		report := &idem.Quota{Name: "report", Units: 1, ReportOnly: true}
		report2 := &idem.Quota{Name: "another", Units: 1, ReportOnly: true}
		full2 := &idem.Quota{Name: "full", Units: 4, Period: idem.Day}
		want(t, m, 5, []meter.Limit{{tenant, open}}, "admitted")
		for _, c := range []struct {
			limits []meter.Limit
			want   *idem.Quota
		}{
			{[]meter.Limit{{tenant, open}, {apiKey, full}}, full},
			{[]meter.Limit{{apiKey, full}, {tenant, open}}, full},
			{[]meter.Limit{{tenant, open}, {apiKey, full2}, {apiKey, full}}, full2},
			{[]meter.Limit{{tenant, open}}, open},
			{[]meter.Limit{{tenant, open}, {tenant, monthly(6)}}, open},
			{[]meter.Limit{{tenant, report}, {tenant, open}, {tenant, report2}}, open},
		} {
			_, v, err := m.Hold(t.Context(), 1, c.limits)
			if r := v.Reported; r != nil && r != report {
				t.Errorf("got %v reported, want the first", r)
			}
			if v.Refused != c.want || v.Held != (c.want == open) || v.Resets.IsZero() != (c.want == full) || err != nil {
				t.Errorf("got %+v and %v, want %s", v, err, c.want.Name)
			}
		}
	})
}

// Two quotas of one account and period hold an operation's units once, and one that
// has many limits holds them on all.
func TestSameGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter.New(&store{})
		h := want(t, m, 4, []meter.Limit{{tenant, monthly(10)}, {tenant, monthly(8)}}, "admitted")
		want(t, m, 4, limit(monthly(8)), "admitted").End(0)
		h.End(0)
		want(t, m, 8, limit(monthly(8)), "admitted").End(0)

		var limits []meter.Limit
		for i := range 6 {
			limits = append(limits, meter.Limit{idem.NewAccount(strconv.Itoa(i)), monthly(10)})
		}
		h = want(t, m, 10, limits, "admitted")
		for i := range limits {
			want(t, m, 1, limits[i:i+1], "held")
		}
		h.End(0)
		for i := range limits {
			want(t, m, 10, limits[i:i+1], "admitted")
		}
	})
	if h, v, err := meter.New(&store{}).Hold(t.Context(), 5, nil); h == nil || v != (meter.Verdict{}) || err != nil {
		t.Errorf("without limits: got %v, %+v and %v", h, v, err)
	}
}

// Sums do not overflow.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = int64(1) << 62
		s := &store{}
		m, limits := meter.New(s), limit(monthly(math.MaxInt64))
		a, b := want(t, m, many, limits, "admitted"), want(t, m, many-1, limits, "admitted")
		want(t, m, many, limits, "held")
		want(t, m, math.MaxInt64, limits, "held")
		a.End(many) // without the store, twice
		want(t, m, many, limits, "admitted").End(math.MaxInt64)
		b.End(math.MaxInt64)
		s.charge(tenant, math.MaxInt64)
		want(t, m, 1, limit(monthly(1000)), "used up")
		want(t, m, 1, limits, "used up")
		want(t, m, math.MaxInt64, limits, "used up")

		report := []meter.Limit{{apiKey, &idem.Quota{Name: "report", Units: 10, ReportOnly: true}}}
		var holds []*meter.Hold
		for range 5 {
			holds = append(holds, want(t, m, many, report, "reported"))
			want(t, m, 1, report, "reported").End(0)
		}
		for _, h := range holds {
			h.End(0)
		}
		want(t, m, 10, report, "admitted")
	})
}

// Of many operations at once exactly as many begin as the quota has units for.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		s := &store{delay: 10 * time.Millisecond}
		m, limits := meter.New(s), limit(monthly(n))
		var admitted, held atomic.Int64
		var wg sync.WaitGroup
		for range 10 * n {
			wg.Go(func() {
				switch got, _ := hold(t, m, 1, limits); got {
				case "admitted":
					admitted.Add(1)
				case "held":
					held.Add(1)
				default:
					t.Errorf("got %s", got)
				}
			})
		}
		wg.Wait()
		if admitted.Load() != n || held.Load() != 9*n || s.reads() != 1 {
			t.Errorf("got %d admitted and %d held after %d reads", admitted.Load(), held.Load(), s.reads())
		}
	})
}

// Operations that end at any time, charged or not, use a quota exactly up, however
// long the store takes: an operation is admitted in the end if and only if there
// are units for it.
func TestExactlyUsedUp(t *testing.T) {
	for _, delay := range []time.Duration{0, 3 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 500
				s := &store{delay: delay}
				m := meter.New(s)
				budget := &idem.Quota{Name: "budget", Units: n + 50, Period: idem.Lifetime}
				limits := []meter.Limit{{tenant, monthly(n)}, {apiKey, budget}}
				var wg sync.WaitGroup
				for range 40 {
					wg.Go(func() {
						for {
							got, h := hold(t, m, 1, limits)
							switch got {
							case "used up":
								return
							case "held":
								time.Sleep(10 * time.Millisecond)
								continue
							case "error":
								t.Error("got an error")
								return
							}
							time.Sleep(rand.N(20 * time.Millisecond))
							if rand.N(3) == 0 {
								h.End(0)
								continue
							}
							s.charge(apiKey, 1)
							time.Sleep(rand.N(2 * time.Millisecond))
							h.End(1)
						}
					})
				}
				wg.Wait()
				if len(s.charges) != n {
					t.Errorf("%d units were charged, want %d", len(s.charges), n)
				}
				if s.most != 1 {
					t.Errorf("%d reads of one account at once", s.most)
				}
				t.Logf("%d reads", s.reads())
			})
		})
	}
}

// In a new month the whole quota is there, but for what operations from before hold
// until they end: they may be charged in it.
func TestMonthEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before = 300 * time.Millisecond
		s := &store{ahead: 31*24*time.Hour - before}
		m, limits := meter.New(s), limit(monthly(10))
		s.charge(tenant, 4)
		long := want(t, m, 6, limits, "admitted")
		want(t, m, 1, limits, "held")
		time.Sleep(before - 1)
		want(t, m, 1, limits, "held")
		want(t, m, 7, limits, "used up")
		time.Sleep(time.Nanosecond)
		// The meter does not wait for the second to pass.
		short := want(t, m, 4, limits, "admitted")
		want(t, m, 1, limits, "held")
		s.charges = append(s.charges, charge{tenant, s.now().Add(-before), 6}) // it counts where it began
		long.End(6)
		want(t, m, 6, limits, "admitted").End(0)
		s.charge(tenant, 4)
		short.End(4)
		h, v, err := m.Hold(t.Context(), 7, limits)
		if h != nil || v.Held || !v.Resets.Equal(time.Date(2000, 3, 1, 0, 0, 0, 0, time.UTC)) || err != nil {
			t.Errorf("got %v, %+v and %v", h, v, err)
		}
		want(t, m, 6, limits, "admitted")
		january, february := 0, 0
		for _, c := range s.calls {
			if c.since.Month() == time.January {
				january++
			} else {
				february++
			}
		}
		if january != 1 || february != 3 {
			t.Errorf("the store was asked %d times for January and %d times for February", january, february)
		}
	})
}

// A charge of an operation from before, that the store counts in the new month, is
// known before it is read.
func TestChargedAfterMonthEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{ahead: 31*24*time.Hour - time.Millisecond}
		m, limits := meter.New(s), limit(monthly(10))
		long := want(t, m, 10, limits, "admitted")
		time.Sleep(time.Millisecond)
		want(t, m, 1, limits, "held")
		s.charge(tenant, 10)
		long.End(10)
		want(t, m, 1, limits, "used up")
	})
}

// A period begins when it has begun in the store, whatever this process and the
// time that a read takes make of it.
func TestPeriodOfStore(t *testing.T) {
	day := &idem.Quota{Name: "daily", Units: 10, Period: idem.Day}
	for name, c := range map[string]struct {
		ahead, delay time.Duration
		calls        int // in the first read
	}{
		"the same day":           {0, 0, 1},
		"behind":                 {-time.Nanosecond, 0, 2},
		"days ahead":             {50 * time.Hour, 0, 2},
		"midnight during a read": {-30 * time.Millisecond, 40 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{ahead: c.ahead, delay: c.delay}
				m := meter.New(s)
				s.charges = []charge{{tenant, s.now().Add(-24 * time.Hour), 7}}
				s.charge(tenant, 4)
				_, v, err := m.Hold(t.Context(), 12, limit(day))
				_, next := day.Period.Bounds(s.calls[len(s.calls)-1].at.Add(c.ahead + c.delay/2))
				if !v.Resets.Equal(next) || v.Held || err != nil {
					t.Errorf("got %+v and %v, want it to be refused until %s", v, err, next)
				}
				if n := s.reads(); n != c.calls {
					t.Errorf("the store was asked %d times, want %d", n, c.calls)
				}
				before := s.reads()
				time.Sleep(time.Second)
				want(t, m, 1, limit(day), "admitted")
				if n := s.reads() - before; name != "behind" && n != 1 {
					t.Errorf("the store was asked %d times for the second read, want 1", n)
				}
			})
		})
	}
}

// The store's clock jumps forward and back: within a second the meter is in the
// same month. A clock that jumps at each call is an error.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const month = 31 * 24 * time.Hour
		s := &store{}
		m, limits := meter.New(s), limit(monthly(10))
		s.charge(tenant, 9)
		h := want(t, m, 1, limits, "admitted")
		want(t, m, 2, limits, "used up")
		s.ahead += month
		want(t, m, 2, limits, "used up")
		time.Sleep(time.Second)
		want(t, m, 9, limits, "admitted").End(0)
		want(t, m, 10, limits, "held")
		s.ahead -= month
		want(t, m, 9, limits, "admitted").End(0)
		time.Sleep(time.Second)
		want(t, m, 1, limits, "held")
		h.End(0)
		want(t, m, 2, limits, "used up")
		want(t, m, 1, limits, "admitted").End(0)

		time.Sleep(time.Second)
		s.jumps = month
		before := s.reads()
		want(t, m, 1, limits, "error")
		s.jumps = -month
		want(t, m, 1, limits, "error")
		if n := s.reads() - before; n != 6 {
			t.Errorf("the store was asked %d times, want 3 for each", n)
		}
		before = s.reads()
		s.jumps = 0
		want(t, m, 1, limits, "admitted").End(0)
		if n := s.reads() - before; n > 2 {
			t.Errorf("the store was asked %d times, want 2", n)
		}
	})
}

// While the store does not answer, nothing is admitted, and it is asked again by
// the next operation.
func TestStoreFails(t *testing.T) {
	gone := errors.New("gone")
	for name, fail := range map[string]func(*store){
		"an error": func(s *store) { s.err = gone },
		"a panic":  func(s *store) { s.panics = true },
		"slow":     func(s *store) { s.delay = 5 * time.Second },
		"hung":     func(s *store) { s.hangs = make(chan struct{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &store{}
				m, limits := meter.New(s), limit(monthly(10))
				want(t, m, 1, limits, "admitted").End(0)
				s.set(func() { fail(s) })
				hangs := s.hangs
				want(t, m, 1, limits, "admitted").End(0) // by what was read before
				time.Sleep(time.Second)
				for range 3 {
					start, before := time.Now(), s.reads()
					var wg sync.WaitGroup
					for range 10 {
						wg.Go(func() {
							h, v, err := m.Hold(context.WithoutCancel(t.Context()), 1, limits)
							if h != nil || v != (meter.Verdict{}) || err == nil || errors.Is(err, gone) != (s.err != nil) {
								t.Errorf("got %v, %+v and %v", h, v, err)
							}
						})
					}
					wg.Wait()
					if took := time.Since(start); took > 2*time.Second {
						t.Errorf("it took %v", took)
					}
					if n := s.reads() - before; n > 10 || name == "hung" && n != 1 {
						t.Errorf("the store was asked %d times", n)
					}
				}
				s.set(func() { s.err, s.panics, s.delay, s.hangs = nil, false, 0, nil })
				want(t, m, 10, limits, "admitted").End(0)
				if hangs != nil {
					s.charge(tenant, 10)
					time.Sleep(time.Second)
					want(t, m, 1, limits, "used up")
					s.set(func() { s.charges = nil })
					close(hangs) // what was left behind does not count
					synctest.Wait()
					want(t, m, 1, limits, "used up")
				}
			})
		})
	}
}

// A report-only quota that cannot be read refuses nothing, and another one does.
func TestReportOnlyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{hangs: make(chan struct{})}
		defer close(s.hangs)
		m := meter.New(s)
		report := meter.Limit{tenant, &idem.Quota{Name: "report", Units: 1, ReportOnly: true}}
		enforced := meter.Limit{apiKey, monthly(10)}
		want(t, m, 5, []meter.Limit{report}, "fault").End(5)
		for _, limits := range [][]meter.Limit{{report, enforced}, {enforced, report}} {
			start := time.Now()
			want(t, m, 5, limits, "error")
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("the error came after %v, want 2 seconds", took)
			}
			synctest.Wait() // the other read ends at the same time
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h, v, err := m.Hold(ctx, 5, []meter.Limit{report})
		if h == nil || err != nil || !errors.Is(v.Fault, context.DeadlineExceeded) {
			t.Errorf("got %v, %v and %v of an operation that waits no longer", h, v.Fault, err)
		}
		h.End(5)
	})
}

// The end of an operation's context ends its wait, and not the read for which others
// wait too.
func TestReadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{delay: time.Second / 2}
		m, limits := meter.New(s), limit(monthly(10))
		given := errors.New("given up")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			_, _, err := m.Hold(ctx, 1, limits)
			if took := time.Since(start); !errors.Is(err, given) || took != time.Second/4 {
				t.Errorf("got %v after %v", err, took)
			}
		})
		time.Sleep(time.Second / 4)
		for range 5 {
			wg.Go(func() { want(t, m, 1, limits, "admitted") })
		}
		cancel(given)
		wg.Wait()
		if n := s.reads(); n != 1 {
			t.Errorf("the store was read %d times, want 1", n)
		}
	})
}

// A store that takes longer than its answer is valid is read once for an operation,
// and once more if another read went on.
func TestSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{delay: 1500 * time.Millisecond}
		m, limits := meter.New(s), limit(monthly(100))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				start := time.Now()
				h := want(t, m, 1, limits, "admitted")
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("it took %v", took)
				}
				h.End(1)
			})
		}
		wg.Wait()
		if n := s.reads(); n != 2 {
			t.Errorf("the store was read %d times, want 2", n)
		}
	})
}

// Calls of the store that never return are no more than the slots.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 8
		s := &store{hangs: make(chan struct{})}
		m := meter.New(s)
		m.SetSlots(slots) // with 1024, the deadlines of a bubble together break the race detector (golang/go#78156)
		var wg sync.WaitGroup
		for i := range slots + 20 {
			wg.Go(func() { want(t, m, 1, []meter.Limit{{idem.NewAccount(strconv.Itoa(i)), monthly(1)}}, "error") })
		}
		wg.Wait()
		if n := s.reads(); n != slots {
			t.Errorf("%d calls hang, want %d", n, slots)
		}
		close(s.hangs)
		synctest.Wait()
		want(t, m, 1, limit(monthly(1)), "admitted")
	})
}

// A gauge that was not asked for in a minute is forgotten by and by, unless an
// operation holds units on it. No more are kept than were asked for in a minute.
func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		m := meter.New(s)
		const n = 1000
		holds := want(t, m, 1, limit(monthly(1)), "admitted")
		none := want(t, m, 0, []meter.Limit{{apiKey, monthly(1)}}, "admitted")
		account := 0
		for range 5 {
			for range n {
				account++
				want(t, m, 1, []meter.Limit{{idem.NewAccount(fmt.Sprint(account)), monthly(1)}}, "admitted").End(0)
				if mapped, listed := m.Gauges(); mapped > n+2 || listed != mapped {
					t.Fatalf("there are %d gauges, and %d in the list", mapped, listed)
				}
			}
			time.Sleep(time.Minute)
		}
		for range n {
			h, _, _ := m.Hold(t.Context(), 1, []meter.Limit{{idem.NewAccount("one"), monthly(1)}})
			h.End(0)
		}
		if mapped, _ := m.Gauges(); mapped != 3 {
			t.Errorf("there are %d gauges, want those of two operations and the last one", mapped)
		}
		want(t, m, 1, limit(monthly(1)), "held")
		none.End(1)
		s.charge(apiKey, 1)
		want(t, m, 1, []meter.Limit{{apiKey, monthly(1)}}, "used up")
		holds.End(0)
		time.Sleep(time.Second)
		want(t, m, 1, limit(monthly(1)), "used up") // by the key
	})
}
