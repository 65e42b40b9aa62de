package ratelimittest

import (
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func smoothOnly(s Suite) bool { return s.Smooth }

// brisk gives back one unit each half second: long enough for a few calls of a
// store in real time.
var brisk = ratelimit.Limit{Count: 3, Period: 1500 * time.Millisecond}

var timeRules = []rule{
	{"Time/Wait", "After Wait the charge is admitted, if nobody else took units.", nil, func(e *env) {
		p := e.policy("", brisk)
		for _, cost := range []int64{1, 2} {
			_, d := e.exhaust(p, "b")
			if cost > 1 {
				d = e.take(one(p, "b", cost)...) // admitted if a window has just ended
			}
			if most := brisk.Period + 2*time.Second; d.Wait > most {
				e.failf("the wait for %d of 3 units per 1.5 s is %v, want %v or less", cost, d.Wait, most)
			}
			if !d.Allowed {
				e.advance(d.Wait)
				e.admitted(one(p, "b", cost)...)
			}
		}
	}},
	{"Time/Reset", "After Reset the bucket is full, and no fuller.", nil, func(e *env) {
		p := e.policy("", brisk)
		_, d := e.exhaust(p, "b")
		e.advance(d.States[0].Reset)
		d = e.admitted(one(p, "b", 3)...)
		e.advance(d.States[0].Reset + brisk.Interval())
		if got := e.remaining(p, "b"); got != 3 {
			e.failf("%d remain after a long time, want 3", got)
		}
	}},
	{"Time/Fast", "Units come back at their rate also when more than one comes back in a millisecond.",
		smoothOnly, func(e *env) {
			l := ratelimit.Limit{Count: 4000, Period: time.Second}
			p := e.policy("", l)
			began := e.now()
			e.admitted(one(p, "b", l.Count)...)
			e.advance(200 * time.Millisecond)
			got, passed := e.remaining(p, "b"), e.now().Sub(began)
			if most := min(l.Count, int64(passed/l.Interval())+1); got < 790 || got > most {
				e.failf("%d of 4000 per second came back in %v, want from 790 to %d", got, passed, most)
			}
		}},
	{"Time/ShortestWait", "The wait for one unit is at most one interval, and passes as time does.",
		smoothOnly, func(e *env) {
			p := e.policy("", brisk)
			_, first := e.exhaust(p, "b")
			interval := p.Limit.Interval()
			if first.Wait > interval {
				e.failf("the wait for one unit is %v, want %v or less", first.Wait, interval)
			}
			asked := e.now()
			e.advance(first.Wait / 2)
			passed := e.now().Sub(asked)
			second := e.take(one(p, "b", 1)...)
			// A millisecond for stores that count in larger units.
			if most := first.Wait - passed + time.Millisecond; !second.Allowed && second.Wait > most {
				e.failf("the wait was %v, and is %v when %v have passed", first.Wait, second.Wait, passed)
			}
		}},
	{"Time/NoEarly", "Before its Wait is over the charge is denied.", smoothOnly, func(e *env) {
		p := e.policy("", brisk)
		began := e.now()
		_, d := e.exhaust(p, "b")
		e.advance(d.Wait * 9 / 10)
		again := e.take(one(p, "b", 1)...)
		// In real time the machine may have slept for longer than it was
		// asked to.
		if passed := e.now().Sub(began); again.Allowed && passed < d.Wait {
			e.failf("admitted at most %v after a denial with a wait of %v", passed, d.Wait)
		}
	}},
	{"Time/Window", "Any window of time W admits at most burst + floor(W/interval), also across the end of a period.",
		smoothOnly, func(e *env) {
			slow := e.now()
			for range 3 {
				e.remaining(e.hourly("", 1), "b")
			}
			// A slow store has to use the units up, too.
			interval := max(100*time.Millisecond, e.now().Sub(slow))
			l := ratelimit.Limit{Count: 10, Period: 10 * interval}
			p := e.policy("", l)
			began := e.now()
			total := int64(0)
			for range 6 {
				n, _ := e.exhaust(p, "b")
				total += n
				e.advance(interval * 27 / 10)
			}
			window := e.now().Sub(began)
			if most := l.Count + int64(window/l.Interval()); total > most {
				e.failf("%d of 10 per %v were admitted in %v, want %d or fewer", total, l.Period, window, most)
			}
			if least := l.Count + 13; total < least { // 5 times 2.7 intervals
				e.failf("%d of 10 per %v were admitted in %v, want %d or more", total, l.Period, window, least)
			}
		}},
}
