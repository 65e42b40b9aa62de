package ratelimit

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/ulule/limiter/v3"
)

// Limit allows Count units every Period, and Burst of them at once.
//
// The zero value is not a limit: Validate refuses it, and so does every Store.
type Limit struct {
	Count  int64
	Period time.Duration
	Burst  int64 // 0 means Count
}

const (
	// Stores outside the process count in microseconds, so a shorter interval
	// would be another limit there.
	minInterval = time.Microsecond
	// What a full burst takes to refill, 146 years in nanoseconds, is bounded so
	// that no sum of it and a cost overflows.
	maxFull = 1 << 62
)

// Parse reads the notation of [limiter.NewRateFromFormatted]: a count, a dash
// and one of S, M, H and D, as in "100-S" or "5000-H". Unlike there, a unit in
// lower case is an error, and so are signs and whatever Validate refuses.
func Parse(s string) (Limit, error) {
	l, err := parse(s)
	if err != nil {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: %w", s, err)
	}
	return l, nil
}

func parse(s string) (Limit, error) {
	count, unit, ok := strings.Cut(s, "-")
	switch {
	case !ok || count == "":
		return Limit{}, errors.New(`want a count, a dash and a unit, as in "100-S"`)
	case strings.Trim(count, "0123456789") != "":
		return Limit{}, fmt.Errorf("count %q is not a number of digits alone", count)
	case unit != "S" && unit != "M" && unit != "H" && unit != "D":
		return Limit{}, fmt.Errorf("unit %q is none of S, M, H and D", unit)
	}
	rate, err := limiter.NewRateFromFormatted(s)
	if err != nil {
		// All that is left is a count beyond an int64.
		return Limit{}, fmt.Errorf("count %s is too large", count)
	}
	l := Limit{Count: rate.Limit, Period: rate.Period}
	_, err = l.pace()
	return l, err
}

// MustParse is Parse for limits that stand in the program. It panics where Parse
// returns an error.
func MustParse(s string) Limit {
	l, err := Parse(s)
	if err != nil {
		panic(err.Error())
	}
	return l
}

// FromRate takes over a rate of ulule/limiter. Its Formatted text plays no part.
func FromRate(r limiter.Rate) (Limit, error) {
	l := Limit{Count: r.Limit, Period: r.Period}
	if err := l.Validate(); err != nil {
		return Limit{}, err
	}
	return l, nil
}

// Rate is the limit in ulule's vocabulary, which has no word for Burst.
// Formatted is empty when Period is not a second, minute, hour or day.
func (l Limit) Rate() limiter.Rate {
	r := limiter.Rate{Period: l.Period, Limit: l.Count}
	switch l.Period {
	case time.Second:
		r.Formatted = strconv.FormatInt(l.Count, 10) + "-S"
	case time.Minute:
		r.Formatted = strconv.FormatInt(l.Count, 10) + "-M"
	case time.Hour:
		r.Formatted = strconv.FormatInt(l.Count, 10) + "-H"
	case 24 * time.Hour:
		r.Formatted = strconv.FormatInt(l.Count, 10) + "-D"
	}
	return r
}

// Validate reports why the limit cannot be kept: a Count or Period that is not
// positive, a negative Burst, more than one unit per microsecond, or a Burst that
// takes over 146 years to refill.
func (l Limit) Validate() error {
	if _, err := l.pace(); err != nil {
		return fmt.Errorf("ratelimit: %w", err)
	}
	return nil
}

// Interval is the emission interval, the time that one unit takes to come back:
// Period/Count, rounded up to a nanosecond so that rounding never adds a unit.
// It is 0 for a limit that Validate refuses.
func (l Limit) Interval() time.Duration {
	p, _ := l.pace()
	return time.Duration(p.interval)
}

func (l Limit) burst() int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

// pace is a valid limit in the terms of the algorithm, in nanoseconds.
type pace struct {
	interval uint64 // one unit
	full     uint64 // a whole burst
}

func (l Limit) pace() (pace, error) {
	switch {
	case l.Count <= 0:
		return pace{}, fmt.Errorf("count %d is not positive", l.Count)
	case l.Period <= 0:
		return pace{}, fmt.Errorf("period %v is not positive", l.Period)
	case l.Burst < 0:
		return pace{}, fmt.Errorf("burst %d is negative", l.Burst)
	}
	if l.Count > int64(l.Period/minInterval) {
		return pace{}, fmt.Errorf("%d per %v is more than one per %v", l.Count, l.Period, minInterval)
	}
	interval := uint64(l.Period-1)/uint64(l.Count) + 1
	hi, full := bits.Mul64(interval, uint64(l.burst()))
	if hi != 0 || full > maxFull {
		return pace{}, fmt.Errorf("a burst of %d at one per %v takes over 146 years to refill", l.burst(), time.Duration(interval))
	}
	return pace{interval, full}, nil
}
