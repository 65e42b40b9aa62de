// Package ratelimittest holds implementations of ratelimit.Store to their contract.
//
// A store's own test is one call:
//
//	func TestStore(t *testing.T) {
//		ratelimittest.Suite{
//			New:    func(t *testing.T) ratelimit.Store { return mystore.New(client(t)) },
//			Atomic: true, Smooth: true, DenialWritesNothing: true,
//		}.Run(t)
//	}
//
// Each rule is a subtest whose name does not change, so that a store which cannot
// keep one can leave it out with go test -skip and say so.
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
// With neither Bubble nor Advance it waits in real time, some ten seconds in all
// for a store that is not Smooth and less for one that is.
type Suite struct {
	// New returns a store that is ready to use. It is required. It may return one
	// store many times, or stores with other contents: every case has policies
	// and buckets of its own, in every run.
	New func(t *testing.T) ratelimit.Store

	// Unavailable returns a store whose backend cannot be reached. The rule that
	// needs one is skipped when it is nil.
	Unavailable func(t *testing.T) ratelimit.Store

	Atomic              bool // all takes of a decision are one step
	Smooth              bool // units come back one by one, by GCRA, and not all at the end of a window
	DenialWritesNothing bool // a denial costs the bucket nothing, whatever the cost was

	// Advance moves the clock of the stores that New returned.
	Advance func(d time.Duration)

	// Bubble runs each rule in a bubble of testing/synctest, in which waiting
	// takes no time. It is for stores that read the clock of package time and
	// talk to nothing outside of the process.
	Bubble bool
}

// rule is one case.
type rule struct {
	name  string
	text  string             // a sentence, printed when the rule is broken
	needs func(s Suite) bool // nil: every store is held to it
	check func(e *env)
}

func rules() []rule {
	return slices.Concat(countRules, timeRules, severalRules, bucketRules, errorRules)
}

// Run runs all rules as subtests of t. Rules about what the suite does not say
// the store has are left out.
func (s Suite) Run(t *testing.T) {
	if s.New == nil {
		t.Fatal("ratelimittest: Suite.New is required")
	}
	for _, r := range rules() {
		if r.needs != nil && !r.needs(s) {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			if err := s.check(t, r); err != nil {
				t.Errorf("%v\nthe rule: %s", err, r.text)
			}
		})
	}
}

func (s Suite) check(t *testing.T, r rule) (err error) {
	run := func(t *testing.T) {
		defer func() {
			if p := recover(); p != nil {
				var ok bool
				if err, ok = p.(violation); !ok {
					panic(p)
				}
			}
		}()
		r.check(&env{t: t, suite: s, store: s.New(t), tag: "t" + rand.Text()[:10]})
	}
	if s.Bubble {
		synctest.Test(t, run)
	} else {
		run(t)
	}
	return err
}

// violation is what a check panics with.
type violation string

func (v violation) Error() string { return string(v) }

// env is what a check works with. Its methods end the check when the store breaks
// the contract.
type env struct {
	t     *testing.T
	suite Suite
	store ratelimit.Store
	tag   string        // part of every policy's name
	ahead time.Duration // by Suite.Advance
}

func (e *env) failf(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func (e *env) advance(d time.Duration) {
	if e.suite.Advance != nil {
		e.suite.Advance(d)
		e.ahead += d
		return
	}
	time.Sleep(d)
}

// now is a clock that includes what was advanced.
func (e *env) now() time.Time { return time.Now().Add(e.ahead) }

// hourly is a policy of which nothing comes back while a check runs.
func (e *env) hourly(name string, count int64) *ratelimit.Policy {
	return e.policy(name, ratelimit.Limit{Count: count, Period: time.Hour})
}

func (e *env) policy(name string, l ratelimit.Limit) *ratelimit.Policy {
	return &ratelimit.Policy{Name: e.tag + name, Limit: l}
}

func one(p *ratelimit.Policy, bucket string, cost int64) []ratelimit.Take {
	return []ratelimit.Take{{Policy: p, Bucket: bucket, Cost: cost}}
}

// take decides, and holds the decision to be consistent in itself.
func (e *env) take(takes ...ratelimit.Take) ratelimit.Decision {
	d, err := e.store.Take(e.t.Context(), takes)
	if err != nil {
		e.failf("Take returned the error %v", err)
	}
	if err := inconsistent(takes, d); err != nil {
		e.failf("%v", err)
	}
	return d
}

// admitted takes and fails when it is denied, denied the other way round.
func (e *env) admitted(takes ...ratelimit.Take) ratelimit.Decision {
	d := e.take(takes...)
	if !d.Allowed {
		e.failf("denied with a wait of %v, want it admitted", d.Wait())
	}
	return d
}

func (e *env) denied(takes ...ratelimit.Take) ratelimit.Decision {
	d := e.take(takes...)
	if d.Allowed {
		e.failf("admitted, want it denied")
	}
	return d
}

// remaining is what a peek says.
func (e *env) remaining(p *ratelimit.Policy, bucket string) int64 {
	return e.admitted(one(p, bucket, 0)...).States[0].Remaining
}

// exhaust takes units one by one until one is denied, and returns how many were
// admitted and the denial.
func (e *env) exhaust(p *ratelimit.Policy, bucket string) (int64, ratelimit.Decision) {
	for n := int64(0); n < 10_000; n++ {
		if d := e.take(one(p, bucket, 1)...); !d.Allowed {
			return n, d
		}
	}
	e.failf("10000 units of %d per %v were admitted", p.Limit.Count, p.Limit.Period)
	panic("not reached")
}

func inconsistent(takes []ratelimit.Take, d ratelimit.Decision) error {
	if d.Takes != len(takes) {
		return fmt.Errorf("a decision about %d takes has Takes = %d", len(takes), d.Takes)
	}
	if d.Index < 0 || d.Index >= max(1, len(takes)) {
		return fmt.Errorf("a decision about %d takes has Index = %d", len(takes), d.Index)
	}
	longest := time.Duration(0)
	for i, t := range takes {
		s := d.States[i]
		burst := t.Policy.Limit.Burst
		if burst == 0 {
			burst = t.Policy.Limit.Count
		}
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
	case d.Wait() != longest:
		return fmt.Errorf("the Wait of a decision is %v, the longest is %v", d.Wait(), longest)
	}
	return nil
}
