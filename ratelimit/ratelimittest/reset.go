package ratelimittest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

var resetRules = []rule{{
	name: "Reset/Full",
	text: "Of a ratelimit.Resetter: Reset makes the buckets of its charges full, whatever their cost, " +
		"and changes no other.",
	check: func(e *env) {
		store, ok := e.store.(ratelimit.Resetter)
		if !ok {
			return
		}
		p, other := e.hourly("p", 3), e.hourly("other", 3)
		daily := e.policy("p", ratelimit.Limit{Count: 3, Period: 24 * time.Hour})
		reset := func(charges ...ratelimit.Charge) error {
			before := slices.Clone(charges)
			err := store.Reset(e.t.Context(), charges)
			if !slices.Equal(charges, before) {
				e.failf("Reset changed the charges of its caller")
			}
			return err
		}
		charges := []ratelimit.Charge{{Policy: p, Bucket: "a", Cost: math.MaxInt64}, {Policy: other, Bucket: "b"}}
		switch err := reset(charges...); {
		case errors.Is(err, errors.ErrUnsupported):
			return
		case err != nil:
			e.failf("Reset of fresh buckets returned the error %v", err)
		}
		for _, bucket := range []string{"a", "b"} {
			e.exhaust(p, bucket)
			e.exhaust(other, bucket)
			e.exhaust(daily, bucket)
		}
		if err := reset(charges...); err != nil {
			e.failf("Reset returned the error %v", err)
		}
		if a, b, c := e.remaining(p, "b"), e.remaining(other, "a"), e.remaining(daily, "a"); a != 0 || b != 0 || c != 0 {
			e.failf("%d, %d and %d units are left in buckets that were not reset", a, b, c)
		}
		if a, b := e.remaining(p, "a"), e.remaining(other, "b"); a != 3 || b != 3 {
			e.failf("%d and %d of 3 are left in buckets that were reset", a, b)
		}
		if n, _ := e.exhaust(p, "a"); n != 3 {
			e.failf("%d of 3 were admitted after Reset", n)
		}
		if err := reset(ratelimit.Charge{Bucket: "a"}); err == nil {
			e.failf("Reset of a charge without a policy returned no error")
		}
		if err := reset(); err != nil {
			e.failf("Reset of no charges returned the error %v", err)
		}
	},
}}
