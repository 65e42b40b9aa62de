package ratelimittest

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

var countRules = []rule{
	{"Count/Burst", "A fresh bucket admits its burst at once, and not one unit more.", nil, func(e *env) {
		for i, l := range []ratelimit.Limit{
			{Count: 10, Period: time.Hour},
			{Count: 10, Period: time.Hour, Burst: 3},
			{Count: 3, Period: time.Hour, Burst: 10},
			{Count: 1, Period: 24 * time.Hour},
		} {
			want := l.Capacity()
			if got, _ := e.exhaust(e.policy("", l), strconv.Itoa(i)); got != want {
				e.failf("%d units of %+v were admitted, want %d", got, l, want)
			}
		}
	}},
	{"Count/Cost", "A charge spends its whole cost or nothing.", nil, func(e *env) {
		p := e.hourly("", 10)
		for _, step := range []struct{ cost, left int64 }{{4, 6}, {5, 1}, {1, 0}} {
			if d := e.admitted(one(p, "b", step.cost)...); d.States[0].Remaining != step.left {
				e.failf("cost %d leaves %d, want %d", step.cost, d.States[0].Remaining, step.left)
			}
		}
		e.denied(one(p, "b", 1)...)
	}},
	{"Count/Peek", "A cost of 0 is admitted, reads the bucket, and changes nothing.", nil, func(e *env) {
		p := e.hourly("", 3)
		for range 5 {
			if d := e.admitted(one(p, "b", 0)...); d.States[0] != (ratelimit.State{Remaining: 3}) {
				e.failf("reading a fresh bucket of 3 gives %+v", d.States[0])
			}
		}
		if n, _ := e.exhaust(p, "b"); n != 3 {
			e.failf("%d of 3 were admitted after reading", n)
		}
		if got := e.remaining(p, "b"); got != 0 {
			e.failf("reading an exhausted bucket gives %d units", got)
		}
	}},
	{"Count/Race", "However many callers race for a bucket, exactly its burst is admitted.", nil, func(e *env) {
		p := e.hourly("", 100)
		if got := e.race(64, 10, one(p, "b", 1)); got != 100 {
			e.failf("%d of 640 racing charges were admitted, want 100", got)
		}
	}},
	{"Count/CostRace", "Callers that race with costs spend exactly what was admitted.", atomicOnly, func(e *env) {
		p := e.hourly("", 100)
		if got := e.race(16, 10, one(p, "b", 3)); got != 33 {
			e.failf("%d charges of 3 out of 100 were admitted, want 33", got)
		}
		if got := e.remaining(p, "b"); got != 1 {
			e.failf("%d remain, want 1", got)
		}
	}},
	{"Count/DenialWritesNothing",
		"A denial leaves the bucket as it was: the units that are left " +
			"are there for a smaller cost, and more denials do not lengthen the wait.",
		func(s Suite) bool { return s.DenialWritesNothing }, func(e *env) {
			p := e.hourly("", 10)
			e.admitted(one(p, "b", 5)...)
			before := e.denied(one(p, "b", 6)...)
			for range 50 {
				e.denied(one(p, "b", 10)...)
			}
			after := e.denied(one(p, "b", 6)...)
			if after.States[0].Remaining != 5 || after.Wait > before.Wait {
				e.failf("50 denials made %+v into %+v", before.States[0], after.States[0])
			}
			e.admitted(one(p, "b", 5)...)
		}},
}

// race lets callers take n times each, all at once, each with one of the lists
// of charges. It returns how many decisions admitted.
func (e *env) race(callers, n int, lists ...[]ratelimit.Charge) int64 {
	var wg sync.WaitGroup
	var admitted atomic.Int64
	failed := make(chan error, callers)
	start := make(chan struct{})
	for i := range callers {
		charges := lists[i%len(lists)]
		wg.Go(func() {
			<-start
			for range n {
				d, err := e.store.Take(e.t.Context(), charges)
				if err == nil {
					err = inconsistent(charges, d)
				}
				if err != nil {
					failed <- err
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	select {
	case err := <-failed:
		e.failf("in a race: %v", err)
	default:
	}
	return admitted.Load()
}
