// Package meter decides whether operations may use units of their quotas.
package meter

import (
	"context"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A Meter knows what accounts have used, as its store said within the last
// second, and what operations of this process hold and have used since. It is safe
// for concurrent use.
type Meter struct{ counter idem.Counter }

// New returns a Meter for a store. A process has one for each.
func New(c idem.Counter) *Meter { return &Meter{c} }

// A Limit is the quota of an account.
type Limit struct {
	Account idem.Account
	Quota   *idem.Quota
}

// A Verdict says what the limits decided. Each part is nil unless a quota is in
// the way: Refused one that is not report-only, Reported another.
type Verdict struct {
	Refused, Reported *idem.Quota
	// Resets is when the period of Refused ends; zero for Lifetime.
	Resets time.Time
	// Held is set when Refused is not used up, but would be if all operations in
	// progress were charged: another try may succeed.
	Held bool
}

// Hold holds units on all limits for an operation that is about to begin, unless
// one refuses. Without a Refused the caller ends the Hold.
func (m *Meter) Hold(ctx context.Context, units int64, limits []Limit) (*Hold, Verdict, error) {
	return &Hold{}, Verdict{}, nil
}

// A Hold is units that are held for an operation that runs.
type Hold struct{}

// End ends the hold of an operation that was charged for so many units, which may
// be none. It is called once, on nil too.
func (h *Hold) End(charged int64) {}
