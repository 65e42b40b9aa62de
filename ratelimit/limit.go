package ratelimit

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/ulule/limiter/v3"
)

// Limit allows Count units every Period, and Burst of them at once.
//
// Every Store refuses a Count or Period that is not positive, a negative Burst,
// more than one unit per microsecond, and a burst that takes over 146 years to
// refill. So the zero value is not valid.
type Limit struct {
	Count  int64
	Period time.Duration
	Burst  int64 // 0 means Count
}

const (
	// Stores outside this process count in microseconds. A shorter interval
	// would be another limit there.
	minInterval = time.Microsecond
	// The time in which a full burst refills is at most this many nanoseconds,
	// 146 years, so that the sum of it and a cost does not overflow.
	maxFull = 1 << 62
)

// Parse reads the notation of [limiter.NewRateFromFormatted]: a count, a dash
// and one of S, M, H and D, as in "100-S" or "5000-H". Unlike that function, it
// returns an error for a unit in lower case, for a sign, and for a limit that
// is not valid.
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
		// The only mistake left is a count beyond an int64.
		return Limit{}, fmt.Errorf("count %s is too large", count)
	}
	l := Limit{Count: rate.Limit, Period: rate.Period}
	_, err = l.pace()
	return l, err
}

// MustParse is Parse for limits that are written in the program. It panics
// where Parse returns an error.
func MustParse(s string) Limit {
	l, err := Parse(s)
	if err != nil {
		panic(err.Error())
	}
	return l
}

// Interval is the emission interval, the time in which one unit comes back:
// Period/Count, rounded up to a nanosecond so that rounding never adds a unit.
// It is 0 for a limit that is not valid.
func (l Limit) Interval() time.Duration {
	p, _ := l.pace()
	return time.Duration(p.interval)
}

// Capacity is how many units a full bucket holds: Burst, or Count when Burst
// is 0.
func (l Limit) Capacity() int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

// pace is a valid limit in the terms of the algorithm, in nanoseconds.
type pace struct {
	interval uint64 // in which one unit comes back
	full     uint64 // in which a whole burst does
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
	hi, full := bits.Mul64(interval, uint64(l.Capacity()))
	if hi != 0 || full > maxFull {
		return pace{}, fmt.Errorf("a burst of %d at one per %v takes over 146 years to refill",
			l.Capacity(), time.Duration(interval))
	}
	return pace{interval, full}, nil
}
