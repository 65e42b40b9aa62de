package ratelimit

import (
	"math"
	"time"
)

// GCRA decides one take by the generic cell rate algorithm, whose whole state is
// one number: tat, the time at which the bucket is full again. now and tat are
// nanoseconds of one clock; a bucket that was never used has any tat up to now.
//
// It returns the tat to keep and the state that follows, in which a Wait of 0
// means admitted. After exactly that Wait the take is admitted, a nanosecond
// earlier it is not; for a cost of 1 it is at most one interval. Any window of
// time W admits at most burst + floor(W/Interval) units.
//
// A denial, like a cost of 0, returns the tat it was given, with one exception: a
// tat further ahead than a full burst, left behind by a clock that stepped back or
// by a larger plan, counts as a full burst, and a denial returns it as that. If it
// is not kept, the bucket stays denied until the old tat is near.
//
// GCRA panics when Check would refuse the limit or the cost.
func GCRA(now, tat int64, l Limit, cost int64) (next int64, s State) {
	p, err := l.pace()
	if err != nil {
		panic("ratelimit: GCRA: " + err.Error())
	}
	if cost < 0 || cost > l.burst() {
		panic("ratelimit: GCRA: cost outside of 0 to burst")
	}
	next, wait := p.advance(now, tat, cost)
	s = p.state(now, next)
	s.Wait = wait
	return next, s
}

// advance takes a cost between 0 and the burst. It returns the tat to keep and how
// long to wait.
func (p pace) advance(now, tat, cost int64) (next int64, wait time.Duration) {
	after := p.debt(now, tat) + p.interval*uint64(cost)
	switch {
	case after > p.full:
		return min(tat, later(now, p.full)), time.Duration(after - p.full)
	case cost == 0:
		return tat, 0
	}
	return later(now, after), 0
}

// later is now + d. At the end of an int64 it saturates: a bucket looks fuller than
// it is, and nobody is locked out.
func later(now int64, d uint64) int64 {
	return now + int64(min(d, uint64(math.MaxInt64-max(now, 0))))
}

func (p pace) state(now, tat int64) State {
	debt := p.debt(now, tat)
	return State{Remaining: int64((p.full - debt) / p.interval), Reset: time.Duration(debt)}
}

// debt is how long the bucket takes to be full. The difference is taken unsigned,
// because that of two int64 may exceed an int64.
func (p pace) debt(now, tat int64) uint64 {
	if tat <= now {
		return 0
	}
	return min(uint64(tat)-uint64(now), p.full)
}
