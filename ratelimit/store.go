// Package ratelimit decides whether a request may be served under one or
// several limits.
//
//	store := &ratelimit.Memory{}
//	organization := &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("100-S")}
//	exports := &ratelimit.Policy{Name: "exports", Limit: ratelimit.MustParse("1-H")}
//	for range 2 {
//		d, err := store.Take(ctx, []ratelimit.Charge{
//			{Policy: organization, Bucket: "org_1", Cost: 1},
//			{Policy: exports, Bucket: "org_1", Cost: 1},
//		})
//		if err != nil {
//			return err
//		}
//		fmt.Println(d.Allowed, d.Wait.Round(time.Minute)) // true 0s, then false 1h0m0s
//	}
//
// A Policy names a Limit. A Charge asks for units of a policy from a bucket,
// such as those of one organization. A Store decides all charges of a request
// in one step: it makes all of them or none. Memory keeps the counters in this
// process, FromLimiter in any store of ulule/limiter, and Failover decides when
// such a store cannot answer.
//
// Limits follow the generic cell rate algorithm (GCRA). A limit of 100 a second
// admits 100 at once and then one every 10 ms, so up to 199 may pass within one
// second. A smaller Burst makes it stricter. There are no windows: a caller who
// is denied waits for the missing units, and is then admitted if nobody else
// took them.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// MaxCharges is how many charges one decision can hold.
const MaxCharges = 4

// ErrCost is wrapped by the error for a charge that costs more than its
// policy's burst. No wait would ever admit it, so it is not a denial.
var ErrCost = errors.New("ratelimit: cost exceeds the burst")

// Charge asks for Cost units of Policy from a bucket.
type Charge struct {
	Policy *Policy
	Bucket string // any bytes; two policies, or two limits of one name, never share a bucket
	Cost   int64  // 0 charges nothing and reads the bucket
}

// State is one bucket after a decision. A denied decision has charged nothing.
type State struct {
	Remaining int64         // whole units that are left
	Reset     time.Duration // until the bucket is full; 0 if it is
	// Wait is 0 if this charge is admitted, or else how long until it would be.
	// Charges before it from the same bucket count as made.
	Wait time.Duration
}

// Decision is the answer to all charges of one request.
type Decision struct {
	Allowed bool
	// Limiting is the index of the charge with the longest Wait or, when
	// allowed, of the one with the smallest share of its burst left: what a
	// response says of the limit.
	Limiting int
	Wait     time.Duration     // that of the limiting charge: 0 when allowed
	States   [MaxCharges]State // in the order of the charges
}

// Store decides charges.
//
// Take makes all charges or none, in one step that no other call comes between,
// and says in a Decision which it was. A denial is a Decision, not an error,
// and charges nothing. An error means that nothing was decided. Check makes the
// errors for charges that no store accepts; the one for a charge that no wait
// would admit wraps ErrCost. A store that needs several steps says so, as
// FromLimiter does.
//
// Take is called by many goroutines at once and does not keep the slice. Its
// ctx bounds the wait for the answer; a store that answers at once may ignore
// it. No charges at all are allowed.
type Store interface {
	Take(ctx context.Context, charges []Charge) (Decision, error)
}

// Check returns the error with which every store refuses charges: more than
// MaxCharges, one without a policy or with an invalid limit, a negative cost, a
// cost over the burst, or several from one bucket that together are over it
// (ErrCost). Stores call it first.
func Check(charges []Charge) error {
	if len(charges) > MaxCharges {
		return fmt.Errorf("ratelimit: %d charges in one decision, at most %d are possible",
			len(charges), MaxCharges)
	}
	for i := range charges {
		c := &charges[i]
		p, err := c.pace()
		if err != nil {
			return err
		}
		left := c.Policy.Limit.Capacity() - c.Cost
		for _, before := range charges[:i] {
			if before.Bucket != c.Bucket || before.Policy.Name != c.Policy.Name {
				continue
			}
			if other, _ := before.pace(); other != p {
				continue
			}
			if left -= before.Cost; left < 0 {
				return fmt.Errorf("%w: policy %q, more than one charge of a bucket, burst %d",
					ErrCost, c.Policy.Name, c.Policy.Limit.Capacity())
			}
		}
	}
	return nil
}

// AppendKey appends a key that is unique to the policy's name, Interval,
// Capacity and bucket. Stores that keep counters by name use it. The length of
// the policy's name is in the key because name and bucket may hold any bytes:
// it says where the one ends.
func (c *Charge) AppendKey(b []byte) []byte {
	l := c.Policy.Limit
	b = append(strconv.AppendInt(b, l.Capacity(), 10), '/')
	b = append(strconv.AppendInt(b, int64(l.Interval()), 10), ':')
	b = append(strconv.AppendInt(b, int64(len(c.Policy.Name)), 10), ':')
	return append(append(append(b, c.Policy.Name...), ':'), c.Bucket...)
}

// pace is that of the charge's limit, if Check accepts the charge by itself.
func (c *Charge) pace() (pace, error) {
	if c.Policy == nil {
		return pace{}, errors.New("ratelimit: charge without a policy")
	}
	p, err := c.Policy.Limit.pace()
	switch {
	case err != nil:
		return pace{}, fmt.Errorf("ratelimit: policy %q: %w", c.Policy.Name, err)
	case c.Cost < 0:
		return pace{}, fmt.Errorf("ratelimit: policy %q: cost %d is negative", c.Policy.Name, c.Cost)
	case c.Cost > c.Policy.Limit.Capacity():
		return pace{}, fmt.Errorf("%w: policy %q, cost %d, burst %d",
			ErrCost, c.Policy.Name, c.Cost, c.Policy.Limit.Capacity())
	}
	return p, nil
}

// Decide makes the Decision for charges from their states, in the same order.
// It allows them when none has a Wait. If one has, the others are not charged
// either, and their states have to say so: what [GCRA] returns for a cost of 0.
// Stores call it last; they have called Check.
func Decide(charges []Charge, states [MaxCharges]State) Decision {
	d := Decision{States: states}
	d.summarize(charges)
	return d
}

// summarize sets what follows from States.
func (d *Decision) summarize(charges []Charge) {
	d.Allowed = true
	for i := range charges {
		if w := d.States[i].Wait; w > d.Wait {
			d.Allowed, d.Limiting, d.Wait = false, i, w
		}
	}
	if !d.Allowed {
		return
	}
	for i := 1; i < len(charges); i++ {
		if d.share(charges, i) < d.share(charges, d.Limiting) {
			d.Limiting = i
		}
	}
}

func (d *Decision) share(charges []Charge, i int) float64 {
	return float64(d.States[i].Remaining) / float64(charges[i].Policy.Limit.Capacity())
}
