// Package ratelimit counts what a bucket may take under one or several limits.
//
// A Policy names a Limit, a Take asks for units of a policy from a bucket, and a
// Store decides all takes of a request in one step: it charges all of them or
// none. Memory keeps the counters in this process, FromLimiter in any store of
// ulule/limiter, and Failover decides when such a store cannot answer.
//
// Limits follow the generic cell rate algorithm (GCRA): a limit of 100 a second
// admits 100 at once and then one every 10 ms, so that up to 199 may pass within
// some one second. A smaller Burst makes it stricter. There are no windows to
// wait for the end of: who is denied waits for the units that are missing, and is
// then admitted if nobody else takes them.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxTakes is how many takes one decision can hold.
const MaxTakes = 4

var (
	// ErrCost is wrapped by the error for a take that costs more than its
	// policy's burst: no wait would ever admit it, so it is not a denial.
	ErrCost = errors.New("ratelimit: cost exceeds the burst")
	// ErrUnavailable is wrapped by the error of a Failover whose store cannot
	// answer, when one of the takes is of a policy that is Closed.
	ErrUnavailable = errors.New("ratelimit: store unavailable")
)

// Take asks for Cost units of Policy from a bucket.
type Take struct {
	Policy *Policy
	Bucket string // any bytes; a bucket of one policy is never that of another
	Cost   int64  // 0 looks at the bucket and leaves it as it is
}

// State is one bucket as a decision left it.
type State struct {
	Remaining int64         // whole units that could be taken now
	Reset     time.Duration // until the bucket is full again; 0 when it is
	Wait      time.Duration // 0, or how long until this take would be admitted, after those before it from the same bucket
}

// Decision is the answer to all takes of one request.
type Decision struct {
	Allowed bool
	Takes   int // how many of States are filled in, in the order of the takes
	Index   int // when denied, the take with the longest Wait; when allowed, the one with the smallest share of its burst left
	States  [MaxTakes]State
}

// Wait is that of the take at Index: 0 when the request is allowed.
func (d Decision) Wait() time.Duration { return d.States[d.Index].Wait }

// Store decides takes.
//
// Take charges all takes or none of them, in one step that no other call comes
// between, and says in a Decision which it was. A denial is a Decision and never
// an error, and it changes nothing but what GCRA says. An error means that nothing
// was decided; the one for a take that no wait would admit wraps ErrCost, and Check
// makes it. Stores that cannot keep to one step, as those of FromLimiter, say so.
//
// Take is called by many goroutines at once and does not keep takes. Its ctx
// bounds the wait for the answer; a store that answers at once need not look at
// it. The answer to no takes at all is allowed.
type Store interface {
	Take(ctx context.Context, takes []Take) (Decision, error)
}

// Check returns the error with which every store answers takes that make no
// sense: more than MaxTakes, one without a policy or with a limit that Validate
// refuses, a negative cost, a cost over the burst or several from one bucket that
// are over it together (ErrCost). Authors of stores call it first.
func Check(takes []Take) error {
	if len(takes) > MaxTakes {
		return fmt.Errorf("ratelimit: %d takes in one decision, at most %d are possible", len(takes), MaxTakes)
	}
	for i := range takes {
		t := &takes[i]
		if _, err := t.pace(); err != nil {
			return err
		}
		left := t.Policy.Limit.burst() - t.Cost
		for _, o := range takes[:i] {
			if o.Bucket != t.Bucket || o.Policy.Name != t.Policy.Name {
				continue
			}
			if left -= o.Cost; left < 0 {
				return fmt.Errorf("%w: policy %q, more than one take of a bucket, burst %d", ErrCost, t.Policy.Name, t.Policy.Limit.burst())
			}
		}
	}
	return nil
}

func (t *Take) pace() (pace, error) {
	if t.Policy == nil {
		return pace{}, errors.New("ratelimit: take without a policy")
	}
	p, err := t.Policy.Limit.pace()
	switch {
	case err != nil:
		return pace{}, fmt.Errorf("ratelimit: policy %q: %w", t.Policy.Name, err)
	case t.Cost < 0:
		return pace{}, fmt.Errorf("ratelimit: policy %q: cost %d is negative", t.Policy.Name, t.Cost)
	case t.Cost > t.Policy.Limit.burst():
		return pace{}, fmt.Errorf("%w: policy %q, cost %d, burst %d", ErrCost, t.Policy.Name, t.Cost, t.Policy.Limit.burst())
	}
	return p, nil
}

// Decide makes the Decision of the states that takes led to, in their order:
// allowed when none of them has to wait. It is for authors of stores, who have
// called Check.
func Decide(takes []Take, states [MaxTakes]State) Decision {
	d := Decision{States: states}
	d.judge(takes)
	return d
}

// judge fills in all but the States, from them.
func (d *Decision) judge(takes []Take) {
	d.Allowed, d.Takes, d.Index = true, len(takes), 0
	for i := range takes {
		if w := d.States[i].Wait; w > 0 && (d.Allowed || w > d.States[d.Index].Wait) {
			d.Allowed, d.Index = false, i
		}
	}
	if !d.Allowed {
		return
	}
	for i := 1; i < len(takes); i++ {
		if d.share(takes, i) < d.share(takes, d.Index) {
			d.Index = i
		}
	}
}

func (d *Decision) share(takes []Take, i int) float64 {
	return float64(d.States[i].Remaining) / float64(takes[i].Policy.Limit.burst())
}
