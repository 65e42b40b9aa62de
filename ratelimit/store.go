// Package ratelimit counts what a bucket may take under one or several limits.
//
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
	// ErrUnavailable is wrapped by the error for takes that need a store that
	// cannot answer.
	ErrUnavailable = errors.New("ratelimit: store unavailable")
)

// Take asks for Cost units of Policy from the bucket of that name.
type Take struct {
	Policy *Policy
	Bucket string // any bytes; two policies never share a counter, whatever their buckets are called
	Cost   int64  // 0 looks at the bucket and leaves it as it is
}

// State is one bucket as the decision left it.
type State struct {
	Remaining int64         // whole units that could be taken now
	Reset     time.Duration // until the bucket is full again; 0 when it is
	Wait      time.Duration // 0, or how long until this take alone would be admitted, if nobody else takes
}

// Decision is the answer to all takes of one request.
type Decision struct {
	Allowed bool
	Takes   int // how many of States are filled in, in the order of the takes
	Index   int // when denied, the violated take with the longest Wait; when allowed, the one with the smallest share of its burst left
	States  [MaxTakes]State
}

// Wait is the wait of the take that Index names: 0 when the request is allowed.
func (d Decision) Wait() time.Duration { return d.States[d.Index].Wait }

// Store decides takes.
//
// Take charges all takes or none of them, in one step that no other call can
// come between, and says in a Decision which it was. Being denied is a Decision,
// never an error; an error means that nothing could be decided. It wraps ErrCost
// for a take that no wait would admit. Stores that cannot hold to one step
// (FromLimiter) say so.
//
// Take is called by many goroutines at once. It does not keep takes.
// No takes at all are allowed; Check lists which ones are errors.
type Store interface {
	Take(ctx context.Context, takes []Take) (Decision, error)
}

// Check returns the error that every store returns for takes that make no sense:
// more than MaxTakes, one without a policy or with a limit that Validate refuses,
// a negative cost, or a cost over the burst (ErrCost). Authors of stores call it
// first.
func Check(takes []Take) error {
	if len(takes) > MaxTakes {
		return fmt.Errorf("ratelimit: %d takes in one decision, at most %d are possible", len(takes), MaxTakes)
	}
	for i := range takes {
		t := &takes[i]
		if t.Policy == nil {
			return errors.New("ratelimit: take without a policy")
		}
		if err := t.Policy.Limit.Validate(); err != nil {
			return fmt.Errorf("ratelimit: policy %q: %w", t.Policy.Name, errors.Unwrap(err))
		}
		if t.Cost < 0 {
			return fmt.Errorf("ratelimit: policy %q: negative cost %d", t.Policy.Name, t.Cost)
		}
		if t.Cost > t.Policy.Limit.burst() {
			return fmt.Errorf("%w: policy %q, cost %d, burst %d", ErrCost, t.Policy.Name, t.Cost, t.Policy.Limit.burst())
		}
	}
	return nil
}

// Decide makes a Decision of the states that takes led to: allowed when none of
// them has to wait. It is for authors of stores.
func Decide(takes []Take, states [MaxTakes]State) Decision {
	d := Decision{Allowed: true, Takes: len(takes), States: states}
	least := 2.0
	for i := range takes {
		if states[i].Wait > 0 {
			if d.Allowed || states[i].Wait > states[d.Index].Wait {
				d.Index = i
			}
			d.Allowed = false
		}
		if share := float64(states[i].Remaining) / float64(takes[i].Policy.Limit.burst()); d.Allowed && share < least {
			d.Index, least = i, share
		}
	}
	return d
}
