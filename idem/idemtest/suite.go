// Package idemtest holds implementations of [idem.Store] to their contract, and
// lets a store fail on command.
//
// A store's own test is one call:
//
//	func TestStore(t *testing.T) {
//		idemtest.Suite{New: func(t *testing.T) idem.Store { return newStore(t) }}.Run(t)
//	}
package idemtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Suite checks one implementation of idem.Store. Each rule is a subtest of its
// own with a store of its own; the names are stable, for -run and -skip and for
// Skip.
type Suite struct {
	// New returns a store that knows no key, and has charged nothing. It is
	// required. One that is an [idem.Counter] keeps charges, and adds up what is
	// final within 30 s: where that takes a Run, New starts it.
	New func(t *testing.T) idem.Store

	// Advance lets the time of a store that New returned go on. When it is nil
	// the suite waits instead.
	Advance func(t *testing.T, s idem.Store, d time.Duration)

	// Bubble runs each subtest in a bubble of testing/synctest, where waiting
	// takes no time. It is for stores that take the time from package time and
	// talk to nothing outside the process.
	Bubble bool

	// Write and Rows are for stores that are an [idem.Joiner] too: with them
	// the suite has the rules of joined mode. Write writes a row in the
	// transaction that the context carries, and Rows returns the rows that are
	// committed. New then returns a store without rows.
	Write func(ctx context.Context, row string) error
	Rows  func(t *testing.T, s idem.Store) []string

	// Lease is the unit of time of the suite; the longest retention is four
	// times that. The default is 10 min with Advance or Bubble, which take no
	// time, and 400 ms without, where it has to be long enough for a few calls
	// of the store and for the machine's hiccups.
	Lease time.Duration

	// Skip maps the names of subtests to the reason for which the store does
	// not follow the rule.
	Skip map[string]string
}

// rule is one rule of the contract.
type rule struct {
	name  string
	text  string // a sentence; printed when the check fails
	check func(*env)
}

// rules returns those that the store has to follow.
func (s Suite) rules() []rule {
	all := slices.Concat(claimRules, leaseRules, takeOverRules, settleRules, retentionRules, contentRules, eraseRules,
		unitRules)
	if s.Write != nil {
		all = slices.Concat(all, joinedRules, joinedUnitRules)
	}
	return all
}

// Run runs all rules as subtests of t.
func (s Suite) Run(t *testing.T) {
	if s.New == nil {
		t.Fatal("idemtest: Suite.New is required")
	}
	if (s.Write == nil) != (s.Rows == nil) {
		t.Fatal("idemtest: Suite.Write and Suite.Rows go together")
	}
	for _, c := range s.rules() {
		t.Run(c.name, func(t *testing.T) {
			if reason, ok := s.Skip[c.name]; ok {
				t.Skip(reason)
			}
			if err := s.check(t, c); err != nil {
				t.Errorf("%v\nthe rule: %s", err, c.text)
			}
		})
	}
}

func (s Suite) check(t *testing.T, c rule) (err error) {
	if !s.Bubble {
		return s.checkIn(t, c)
	}
	synctest.Test(t, func(t *testing.T) { err = s.checkIn(t, c) })
	return err
}

func (s Suite) checkIn(t *testing.T, c rule) (err error) {
	e := &env{t: t, suite: s, store: s.New(t), lease: s.Lease, ctx: t.Context()}
	if e.lease == 0 {
		e.lease = 400 * time.Millisecond
		if s.Bubble || s.Advance != nil {
			e.lease = 10 * time.Minute
		}
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case broken:
			err = p
		default:
			panic(p)
		}
	}()
	c.check(e)
	return nil
}

// broken is what a check panics with when the store broke its rule.
type broken struct{ text string }

func (b broken) Error() string { return b.text }

// env is what a check works with. Its methods end the check when the store
// breaks the rule.
type env struct {
	t     *testing.T
	suite Suite
	store idem.Store
	ctx   context.Context
	lease time.Duration
}

func (e *env) failf(format string, args ...any) { panic(broken{fmt.Sprintf(format, args...)}) }

// leases lets so many leases go by.
func (e *env) leases(n float64) {
	d := time.Duration(n * float64(e.lease))
	if e.suite.Advance != nil {
		e.suite.Advance(e.t, e.store, d)
		return
	}
	time.Sleep(d)
}

// claim returns a claim by a token of its own, for the request that all checks
// use unless they say otherwise.
func (e *env) claim() idem.Claim {
	return idem.Claim{
		Key: idem.NewKey("organization", "key"), Token: newToken(), Fingerprint: [32]byte{1},
		Lease: e.lease, Retention: 4 * e.lease,
	}
}

// lasting returns a claim that does not lapse while the check runs.
func (e *env) lasting() idem.Claim {
	c := e.claim()
	c.Lease, c.Retention = 24*time.Hour, 24*time.Hour
	return c
}

// held returns a claim that was made and does not lapse, leased one that lapses
// after a lease, and lapsed one that has.
func (e *env) held() idem.Claim   { return e.made(e.lasting()) }
func (e *env) leased() idem.Claim { return e.made(e.claim()) }

func (e *env) lapsed() idem.Claim {
	c := e.leased()
	e.leases(1.3)
	return c
}

// retained returns a claim that was made, with a retention of so many leases.
func (e *env) retained(leases int) idem.Claim {
	c := e.claim()
	c.Retention = time.Duration(leases) * e.lease
	return e.made(c)
}

func (e *env) made(c idem.Claim) idem.Claim {
	e.mustClaim("a new key", c, 1)
	return c
}

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	rand.Read(t[:])
	return t
}

// again returns c by another token, one that takes nothing over.
func again(c idem.Claim) idem.Claim {
	c.Token, c.Reexecute = newToken(), false
	return c
}

// reexecuting returns c by another token that takes over.
func reexecuting(c idem.Claim) idem.Claim {
	c = again(c)
	c.Reexecute = true
	return c
}

func otherRequest(c idem.Claim) idem.Claim {
	c.Fingerprint = [32]byte{2}
	return c
}

func (e *env) begin(c idem.Claim) idem.Record {
	r, err := e.store.Begin(e.ctx, c)
	if err != nil {
		e.failf("Begin: got error %v, want an answer", err)
	}
	return r
}

// must begins c and wants the state.
func (e *env) must(what string, c idem.Claim, want idem.State) idem.Record {
	r := e.begin(c)
	if r.State != want {
		e.failf("%s: Begin got %v, want %v", what, r.State, want)
	}
	return r
}

// mustClaim begins c and wants it claimed as that attempt.
func (e *env) mustClaim(what string, c idem.Claim, attempt int) {
	if r := e.must(what, c, idem.Claimed); r.Attempt != attempt {
		e.failf("%s: got attempt %d, want %d", what, r.Attempt, attempt)
	}
}

// mustReplay begins c and wants the payload.
func (e *env) mustReplay(what string, c idem.Claim, payload string) {
	r := e.must(what, c, idem.Done)
	if got := string(r.Payload); got != payload {
		e.failf("%s: got the payload %s, want %s", what, brief(got), brief(payload))
	}
	if !r.Retained {
		e.failf("%s: got Retained false for a payload that is whole", what)
	}
}

// mustBeOf wants the record to have the fingerprint of a claim.
func (e *env) mustBeOf(c idem.Claim, r idem.Record) {
	if r.Fingerprint != c.Fingerprint {
		e.failf("got fingerprint %x, want that of the first request, %x", r.Fingerprint, c.Fingerprint)
	}
}

func brief(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", s[:40], len(s))
	}
	return fmt.Sprintf("%q", s)
}

func finished(payload string) idem.Settlement {
	return idem.Settlement{
		Outcome: idem.OutcomeDone, Payload: []byte(payload), Summary: []byte("summary"), Retention: time.Hour,
	}
}

// kept returns s with a retention of so many leases.
func (e *env) kept(s idem.Settlement, leases int) idem.Settlement {
	s.Retention = time.Duration(leases) * e.lease
	return s
}

var (
	outcomeFree = idem.Settlement{Outcome: idem.OutcomeFree, Retention: time.Hour}
	unknown     = idem.Settlement{Outcome: idem.OutcomeUnknown, Retention: time.Hour}
)

func (e *env) settle(what string, c idem.Claim, s idem.Settlement, want error) {
	e.mustBe(what+": Settle", e.store.Settle(e.ctx, c.Key, c.Token, s), want)
}

func (e *env) extend(what string, c idem.Claim, want error) {
	e.mustBe(what+": Extend", e.store.Extend(e.ctx, c.Key, c.Token, c.Lease), want)
}
