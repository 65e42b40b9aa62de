package idem

import (
	"errors"
	"fmt"
	"time"
)

// A Quota is how many units an account may use in a period. Do not write to a
// Quota that is in use.
type Quota struct {
	Name   string // clients see it
	Units  int64  // positive
	Period Period
	// ReportOnly counts and reports, and refuses nothing.
	ReportOnly bool
}

// Unlimited says that there is no quota, where one is chosen. Compare with ==.
var Unlimited = &Quota{Name: "unlimited"}

// A Usage is what was used of a quota.
type Usage struct {
	Quota *Quota
	// Of says whose the quota is: "organization", "key" or "child".
	Of   string
	Used int64 // may be more than Quota.Units
	// Resets is when the period ends; zero for Lifetime.
	Resets time.Time
}

// Left returns what may still be used.
func (u Usage) Left() int64 { return max(u.Quota.Units-u.Used, 0) }

// Period is the time in which a [Quota] may be used: Month, Day or Lifetime.
type Period uint8

const (
	Month    Period = iota // a month of the calendar, in UTC
	Day                    // a day, in UTC
	Lifetime               // for ever: a budget
)

func (p Period) String() string {
	if p > Lifetime {
		return fmt.Sprintf("Period(%d)", uint8(p))
	}
	return [...]string{Month: "month", Day: "day", Lifetime: "lifetime"}[p]
}

// Bounds returns the beginning of the period that a time lies in, and of the next
// one. For Lifetime both are zero.
func (p Period) Bounds(t time.Time) (begin, next time.Time) {
	year, month, day := t.UTC().Date()
	switch p {
	case Month:
		return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC), time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	case Day:
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC), time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
	}
	return time.Time{}, time.Time{}
}

// Validate returns every mistake in the quota.
func (q *Quota) Validate() error {
	var errs []error
	if q.Name == "" {
		errs = append(errs, errors.New("idem: a quota has no name"))
	}
	if q.Units <= 0 {
		errs = append(errs, fmt.Errorf("idem: quota %q has %d units", q.Name, q.Units))
	}
	if q.Period > Lifetime {
		errs = append(errs, fmt.Errorf("idem: quota %q has the unknown period %d", q.Name, q.Period))
	}
	return errors.Join(errs...)
}
