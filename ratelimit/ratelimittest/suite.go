// Package ratelimittest checks implementations of ratelimit.Store against their
// contract.
//
// A store's own test is one call:
//
//	func TestStore(t *testing.T) {
//		ratelimittest.Suite{
//			New: newStore, // func(t *testing.T) ratelimit.Store
//			Atomic: true, Smooth: true, DenialWritesNothing: true,
//		}.Run(t)
//	}
//
// Each rule is a subtest whose name does not change. A store that cannot keep
// one can leave it out with go test -skip, and say so.
package ratelimittest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Suite checks one implementation of ratelimit.Store.
//
// With neither Bubble nor Advance it waits in real time: some ten seconds in
// all for a store that is not Smooth, less for one that is.
type Suite struct {
	// New returns a store that is ready to use. It is required. It may return
	// the same store many times, or stores with other contents: each rule uses
	// policies of its own, in every run.
	New func(t *testing.T) ratelimit.Store

	// Unavailable returns a store whose backend cannot be reached. If it is
	// nil, the rule that needs one is left out.
	Unavailable func(t *testing.T) ratelimit.Store

	Atomic              bool // all charges of a decision are one step
	Smooth              bool // units come back one by one, by GCRA, not all at the end of a window
	DenialWritesNothing bool // a denial costs the bucket nothing, whatever the cost was

	// Advance moves the clock of the stores that New returned.
	Advance func(d time.Duration)

	// Bubble checks each rule in a bubble of testing/synctest, in which waiting
	// takes no time. It is for stores that read the clock of package time and
	// talk to nothing outside this process.
	Bubble bool
}

// rule is a sentence of the contract and the check of it.
type rule struct {
	name  string
	text  string             // printed when the rule is broken
	needs func(s Suite) bool // nil: every store must keep it
	check func(e *env)
}

func rules() []rule {
	return slices.Concat(countRules, timeRules, severalRules, bucketRules, errorRules)
}

// Run checks each rule as a subtest of t. It leaves out the rules for what the
// suite does not claim.
func (s Suite) Run(t *testing.T) {
	if s.New == nil {
		t.Fatal("ratelimittest: Suite.New is required")
	}
	for _, r := range rules() {
		if r.needs != nil && !r.needs(s) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			s.check(t, r, func(t *testing.T, message string) { t.Fatalf("%s\nthe rule: %s", message, r.text) })
		})
	}
}

// check checks one rule. If the store breaks it, fail ends the check: with the
// test, or for the tests of this package without.
func (s Suite) check(t *testing.T, r rule, fail func(t *testing.T, message string)) {
	check := func(t *testing.T) {
		r.check(&env{t: t, fail: fail, suite: s, store: s.New(t), tag: "t" + rand.Text()[:10]})
	}
	if s.Bubble {
		synctest.Test(t, check)
	} else {
		check(t)
	}
}

// env is what a check works with. Its methods end the check when the store
// breaks the contract.
type env struct {
	t     *testing.T
	fail  func(t *testing.T, message string)
	suite Suite
	store ratelimit.Store
	tag   string        // part of every policy's name
	ahead time.Duration // by Suite.Advance
}

func (e *env) failf(format string, args ...any) { e.fail(e.t, fmt.Sprintf(format, args...)) }

func (e *env) advance(d time.Duration) {
	if e.suite.Advance != nil {
		e.suite.Advance(d)
		e.ahead += d
		return
	}
	time.Sleep(d)
}

// now is the time, with what Advance added.
func (e *env) now() time.Time { return time.Now().Add(e.ahead) }

// hourly returns a policy of which no unit comes back while a check runs.
func (e *env) hourly(name string, count int64) *ratelimit.Policy {
	return e.policy(name, ratelimit.Limit{Count: count, Period: time.Hour})
}

func (e *env) policy(name string, l ratelimit.Limit) *ratelimit.Policy {
	return &ratelimit.Policy{Name: e.tag + name, Limit: l}
}

func one(p *ratelimit.Policy, bucket string, cost int64) []ratelimit.Charge {
	return []ratelimit.Charge{{Policy: p, Bucket: bucket, Cost: cost}}
}

// take decides, and fails if the decision contradicts itself.
func (e *env) take(charges ...ratelimit.Charge) ratelimit.Decision {
	d, err := e.store.Take(e.t.Context(), charges)
	if err != nil {
		e.failf("Take returned the error %v", err)
	}
	if err := inconsistent(charges, d); err != nil {
		e.failf("%v", err)
	}
	return d
}

// admitted charges and fails when it is denied, denied the other way round.
func (e *env) admitted(charges ...ratelimit.Charge) ratelimit.Decision {
	d := e.take(charges...)
	if !d.Allowed {
		e.failf("denied with a wait of %v, want it admitted", d.Wait)
	}
	return d
}

func (e *env) denied(charges ...ratelimit.Charge) ratelimit.Decision {
	d := e.take(charges...)
	if d.Allowed {
		e.failf("admitted, want it denied")
	}
	return d
}

// remaining reads the bucket.
func (e *env) remaining(p *ratelimit.Policy, bucket string) int64 {
	return e.admitted(one(p, bucket, 0)...).States[0].Remaining
}

// exhaust charges units one by one until one is denied, and returns how many
// were admitted and the denial.
func (e *env) exhaust(p *ratelimit.Policy, bucket string) (int64, ratelimit.Decision) {
	began := e.now()
	for n := int64(0); n < 10_000; n++ {
		if passed := e.now().Sub(began); passed > time.Minute {
			e.failf("%d units of %d per %v were admitted in %v: is a call of the store too slow to use them up?",
				n, p.Limit.Count, p.Limit.Period, passed)
		}
		if d := e.take(one(p, bucket, 1)...); !d.Allowed {
			return n, d
		}
	}
	e.failf("10000 units of %d per %v were admitted", p.Limit.Count, p.Limit.Period)
	panic("not reached")
}

func inconsistent(charges []ratelimit.Charge, d ratelimit.Decision) error {
	if d.Limiting < 0 || d.Limiting >= max(1, len(charges)) {
		return fmt.Errorf("a decision of %d charges has Limiting = %d", len(charges), d.Limiting)
	}
	longest := time.Duration(0)
	for i, t := range charges {
		s := d.States[i]
		burst := t.Policy.Limit.Capacity()
		switch {
		case s.Remaining < 0 || s.Remaining > burst:
			return fmt.Errorf("%d units remain of a burst of %d", s.Remaining, burst)
		case s.Reset < 0 || s.Wait < 0:
			return fmt.Errorf("negative Reset %v or Wait %v", s.Reset, s.Wait)
		case s.Remaining < burst && s.Reset == 0:
			return fmt.Errorf("%d units of %d remain, and Reset says the bucket is full", s.Remaining, burst)
		}
		longest = max(longest, s.Wait)
	}
	switch {
	case d.Allowed != (longest == 0):
		return fmt.Errorf("a decision with Allowed %v has a longest Wait of %v", d.Allowed, longest)
	case d.Wait != longest:
		return fmt.Errorf("the Wait of a decision is %v, the longest is %v", d.Wait, longest)
	}
	return nil
}
