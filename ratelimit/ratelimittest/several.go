package ratelimittest

import (
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func atomicOnly(s Suite) bool { return s.Atomic }

var severalRules = []rule{
	{"Several/AllCharged", "An admitted decision makes all of its charges.", nil, func(e *env) {
		a, b := e.hourly("a", 10), e.hourly("b", 20)
		d := e.admitted(
			ratelimit.Charge{Policy: a, Bucket: "x", Cost: 1},
			ratelimit.Charge{Policy: b, Bucket: "x", Cost: 2},
			ratelimit.Charge{Policy: b, Bucket: "y", Cost: 3},
		)
		for i, want := range []int64{9, 18, 17} {
			if d.States[i].Remaining != want {
				e.failf("charge %d leaves %d, want %d", i, d.States[i].Remaining, want)
			}
		}
		if x, y, z := e.remaining(a, "x"), e.remaining(b, "x"), e.remaining(b, "y"); x != 9 || y != 18 || z != 17 {
			e.failf("%d, %d and %d remain, want 9, 18 and 17", x, y, z)
		}
	}},
	{"Several/None", "No charges at all are allowed.", nil, func(e *env) {
		e.admitted()
	}},
	{"Several/LeastShare", "When allowed, Limiting is the charge with the smallest share of its burst left.",
		nil, func(e *env) {
			a, b := e.hourly("a", 5), e.hourly("b", 1000)
			e.admitted(one(b, "x", 900)...)
			d := e.admitted(ratelimit.Charge{Policy: a, Bucket: "x", Cost: 1}, ratelimit.Charge{Policy: b, Bucket: "x", Cost: 1})
			if d.Limiting != 1 {
				e.failf("Limiting is %d with 4 of 5 and 99 of 1000 left, want 1", d.Limiting)
			}
		}},
	{"Several/LongestWait",
		"When denied, Limiting is the denied charge with the longest wait, and a charge that fits has no wait.",
		nil, func(e *env) {
			short := e.policy("short", ratelimit.Limit{Count: 1, Period: 10 * time.Minute})
			long := e.policy("long", ratelimit.Limit{Count: 1, Period: time.Hour})
			free := e.hourly("free", 10)
			e.admitted(one(short, "x", 1)...)
			e.admitted(one(long, "x", 1)...)
			d := e.denied(
				ratelimit.Charge{Policy: short, Bucket: "x", Cost: 1},
				ratelimit.Charge{Policy: long, Bucket: "x", Cost: 1},
				ratelimit.Charge{Policy: free, Bucket: "x", Cost: 1},
			)
			// By the clock, both windows may end with the hour.
			if d.States[d.Limiting].Wait != d.Wait || d.States[0].Wait == 0 || d.States[2].Wait != 0 {
				e.failf("Limiting is %d with waits of %v, %v and %v",
					d.Limiting, d.States[0].Wait, d.States[1].Wait, d.States[2].Wait)
			}
		}},
	{"Several/AllOrNothing",
		"If one charge is denied, none of the others is made, before it or after it, and their states say so.",
		nil, func(e *env) {
			spent := e.hourly("spent", 1)
			e.admitted(one(spent, "x", 1)...)
			for at := range 3 {
				var charges []ratelimit.Charge
				for i, name := range []string{"a", "b", "c"} {
					charges = append(charges, ratelimit.Charge{Policy: e.hourly(name, 10), Bucket: "x", Cost: 1})
					if i == at {
						charges[i].Policy = spent
					}
				}
				d := e.denied(charges...)
				for i, t := range charges {
					if i == at {
						continue
					}
					if said, left := d.States[i].Remaining, e.remaining(t.Policy, "x"); said != 10 || left != 10 {
						e.failf("where charge %d is denied, the state of charge %d says that %d remain, and its bucket has %d, want 10",
							at, i, said, left)
					}
				}
			}
		}},
	{"Several/Race",
		"However many callers race with several charges, each bucket is charged for what the tightest limit admits.",
		atomicOnly, func(e *env) {
			tight, wide := e.hourly("tight", 50), e.hourly("wide", 1000)
			// In both orders: a store that locks buckets one after the other
			// deadlocks.
			forth := []ratelimit.Charge{{Policy: tight, Bucket: "x", Cost: 1}, {Policy: wide, Bucket: "x", Cost: 2}}
			back := []ratelimit.Charge{forth[1], forth[0]}
			if n := e.race(32, 10, forth, back); n != 50 {
				e.failf("%d were admitted, want 50", n)
			}
			if got := e.remaining(wide, "x"); got != 900 {
				e.failf("%d of 1000 remain in the wider bucket, want 900", got)
			}
		}},
	{"Several/Twice", "Of two charges of one bucket both are made, or neither.", atomicOnly, func(e *env) {
		p := e.hourly("", 5)
		charge := ratelimit.Charge{Policy: p, Bucket: "x", Cost: 2}
		if d := e.admitted(charge, charge); d.States[1].Remaining != 1 {
			e.failf("two charges of 2 from 5 leave %d, want 1", d.States[1].Remaining)
		}
		if got := e.remaining(p, "x"); got != 1 {
			e.failf("two charges of 2 from 5 leave %d, want 1", got)
		}
		charge.Cost = 1
		e.denied(charge, charge)
		if got := e.remaining(p, "x"); got != 1 {
			e.failf("a denied pair leaves %d, want 1", got)
		}
	}},
}
