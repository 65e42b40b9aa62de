package ratelimit

import (
	"errors"
	"fmt"
	"math/bits"
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

// minInterval is the shortest time between two units. Stores outside the process
// count in microseconds, so a shorter interval would be another limit there.
const minInterval = time.Microsecond

// maxDebt bounds Burst times the interval, 146 years, so that sums of a clock
// reading and a debt stay far from the end of an int64.
const maxDebt = 1 << 62

// Parse reads the notation of [limiter.NewRateFromFormatted]: a count, a dash
// and one of S, M, H and D, as in "100-S" or "5000-H". Units in lower case,
// spaces and signs are errors here, and so is whatever Validate refuses.
func Parse(s string) (Limit, error) {
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9', c == '-', c >= 'A' && c <= 'Z':
		case c >= 'a' && c <= 'z':
			return Limit{}, fmt.Errorf("ratelimit: limit %q: the unit is one of S, M, H and D, in upper case", s)
		default:
			return Limit{}, fmt.Errorf("ratelimit: limit %q: character %q is not part of a limit such as \"100-S\"", s, c)
		}
	}
	if s == "" || s[0] == '-' {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: a limit begins with a count, as in \"100-S\"", s)
	}
	rate, err := limiter.NewRateFromFormatted(s)
	if err != nil {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: %w", s, err)
	}
	l, err := FromRate(rate)
	if err != nil {
		return Limit{}, fmt.Errorf("ratelimit: limit %q: %w", s, errors.Unwrap(err))
	}
	return l, nil
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
		r.Formatted = fmt.Sprintf("%d-S", l.Count)
	case time.Minute:
		r.Formatted = fmt.Sprintf("%d-M", l.Count)
	case time.Hour:
		r.Formatted = fmt.Sprintf("%d-H", l.Count)
	case 24 * time.Hour:
		r.Formatted = fmt.Sprintf("%d-D", l.Count)
	}
	return r
}

// Validate reports why the limit cannot be kept: a Count or Period that is not
// positive, a negative Burst, more than one unit per microsecond, or a Burst that
// takes over 146 years to refill.
func (l Limit) Validate() error {
	switch {
	case l.Count <= 0:
		return fmt.Errorf("ratelimit: %w", fmt.Errorf("count %d is not positive", l.Count))
	case l.Period <= 0:
		return fmt.Errorf("ratelimit: %w", fmt.Errorf("period %v is not positive", l.Period))
	case l.Burst < 0:
		return fmt.Errorf("ratelimit: %w", fmt.Errorf("burst %d is negative", l.Burst))
	case l.Interval() < minInterval:
		return fmt.Errorf("ratelimit: %w", fmt.Errorf("%d per %v is more than one per %v", l.Count, l.Period, minInterval))
	}
	if hi, lo := bits.Mul64(uint64(l.Interval()), uint64(l.burst())); hi != 0 || lo > maxDebt {
		return fmt.Errorf("ratelimit: %w", fmt.Errorf("a burst of %d at one per %v refills too slowly", l.burst(), l.Interval()))
	}
	return nil
}

// Interval is the emission interval, the time that one unit takes to come back:
// Period/Count, rounded up to a nanosecond so that no rounding adds a unit.
// The limit must be valid.
func (l Limit) Interval() time.Duration {
	return time.Duration((int64(l.Period)-1)/l.Count + 1)
}

func (l Limit) burst() int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}
