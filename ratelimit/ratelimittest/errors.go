package ratelimittest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

var errorRules = []rule{
	{"Error/Cost",
		"A cost over the burst, of one charge or of all from one bucket, is an error " +
			"that wraps ErrCost, not a denial, and charges nothing.",
		nil, func(e *env) {
			p, other := e.hourly("", 10), e.hourly("other", 10)
			for _, cost := range []int64{11, 20, math.MaxInt64} {
				for _, charges := range [][]ratelimit.Charge{
					one(p, "x", cost),
					{{Policy: other, Bucket: "x", Cost: 1}, {Policy: p, Bucket: "x", Cost: cost}},
				} {
					d, err := e.store.Take(e.t.Context(), charges)
					if !errors.Is(err, ratelimit.ErrCost) || d.Allowed {
						e.failf("cost %d of a burst of 10: error %v and Allowed %v, want ErrCost", cost, err, d.Allowed)
					}
				}
			}
			d, err := e.store.Take(e.t.Context(), append(one(p, "x", 6), one(p, "x", 6)...))
			if !errors.Is(err, ratelimit.ErrCost) || d.Allowed {
				e.failf("twice a cost of 6 from one bucket with a burst of 10: error %v and Allowed %v, want ErrCost",
					err, d.Allowed)
			}
			if a, b := e.remaining(p, "x"), e.remaining(other, "x"); a != 10 || b != 10 {
				e.failf("%d and %d of 10 remain", a, b)
			}
		}},
	{"Error/Nonsense", "Charges that no store accepts are errors that do not wrap ErrCost, and nothing is charged.",
		nil, func(e *env) {
			good := ratelimit.Charge{Policy: e.hourly("", 10), Bucket: "x", Cost: 1}
			for name, charges := range map[string][]ratelimit.Charge{
				"five charges":    {good, good, good, good, good},
				"no policy":       {good, {Bucket: "x", Cost: 1}},
				"a negative cost": {good, {Policy: good.Policy, Bucket: "x", Cost: -1}},
				"the zero limit":  {good, {Policy: e.policy("z", ratelimit.Limit{}), Bucket: "x", Cost: 0}},
				"a negative burst": {good, {Policy: e.policy("n", ratelimit.Limit{Count: 1, Period: time.Second, Burst: -1}),
					Bucket: "x", Cost: 0}},
			} {
				d, err := e.store.Take(e.t.Context(), charges)
				if err == nil || errors.Is(err, ratelimit.ErrCost) || d.Allowed {
					e.failf("%s: error %v and Allowed %v", name, err, d.Allowed)
				}
			}
			if got := e.remaining(good.Policy, "x"); got != 10 {
				e.failf("%d of 10 remain", got)
			}
		}},
	{"Error/Cancelled",
		"Under a cancelled context Take decides or returns an error that wraps context.Canceled; " +
			"it does not hang, and the store serves others as before.",
		nil, func(e *env) {
			p := e.hourly("", 10)
			ctx, cancel := context.WithCancel(e.t.Context())
			cancel()
			d, err := e.store.Take(ctx, one(p, "x", 1))
			if err != nil && !errors.Is(err, context.Canceled) {
				e.failf("Take returned the error %v", err)
			}
			if err == nil && !d.Allowed {
				e.failf("a charge of a fresh bucket was denied")
			}
			if n, _ := e.exhaust(p, "x"); n < 9 || n > 10 {
				e.failf("%d of 10 were admitted after one take that was cancelled", n)
			}
		}},
	{"Error/Unavailable", "A store that cannot be reached returns an error: it neither admits, nor denies, nor panics.",
		func(s Suite) bool { return s.Unavailable != nil }, func(e *env) {
			store := e.suite.Unavailable(e.t)
			p := e.hourly("", 10)
			for _, charges := range [][]ratelimit.Charge{
				one(p, "x", 1),
				one(p, "x", 0),
				{{Policy: p, Bucket: "x", Cost: 1}, {Policy: p, Bucket: "y", Cost: 1}},
			} {
				ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
				defer cancel()
				d, err := store.Take(ctx, charges)
				if err == nil || errors.Is(err, ratelimit.ErrCost) || d.Allowed {
					e.failf("error %v and Allowed %v", err, d.Allowed)
				}
			}
		}},
}
