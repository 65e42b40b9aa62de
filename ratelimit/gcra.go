package ratelimit

import (
	"math"
	"time"
)

// GCRA decides one take by the generic cell rate algorithm, whose whole state is
// one number: tat, the time at which the bucket is full again. now and tat are
// nanoseconds of one clock; a bucket that was never used has any tat up to now.
//
// It returns the tat to keep, which is the one given when the take is denied, and
// the state that follows, in which a Wait of 0 means admitted. A tat further ahead
// than a full burst, left behind by a clock that stepped back or by a larger plan,
// counts as a full burst. The limit must be valid and the cost within its burst.
//
// Any window of time W admits at most burst + floor(W/Interval) units.
func GCRA(now, tat int64, l Limit, cost int64) (next int64, s State) {
	interval := uint64(l.Interval())
	full := interval * uint64(l.burst())

	var debt uint64
	if tat > now {
		// Unsigned, because the difference of two int64 can exceed an int64.
		debt = min(uint64(tat)-uint64(now), full)
	}
	next = tat
	if after := debt + interval*uint64(cost); after > full {
		s.Wait = time.Duration(after - full)
	} else if cost > 0 {
		debt = after
		next = math.MaxInt64
		if now <= math.MaxInt64-int64(after) {
			next = now + int64(after)
		}
	}
	s.Remaining = int64((full - debt) / interval)
	s.Reset = time.Duration(debt)
	return next, s
}
