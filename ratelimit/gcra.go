package ratelimit

import (
	"math"
	"time"
)

// GCRA decides one charge by the generic cell rate algorithm. Its whole state
// is one number: tat, the theoretical arrival time, at which the bucket is full
// again under this limit; never use the tat of another one. now and tat are nanoseconds of one
// clock. For a new bucket, any tat up to now will do.
//
// It returns the tat to store and the State that follows. A Wait of 0 means
// that the charge is admitted. After exactly that Wait it is admitted, a
// nanosecond earlier it is not; for a cost of 1 it is at most one interval. Any
// window of time W admits at most burst + floor(W/Interval) units.
//
// A denial or a cost of 0 returns the tat it was given, with one exception. A
// clock that stepped back can leave a tat that is further ahead than a full
// burst. It counts as a full burst, and a denial returns it as that. Store it,
// or the bucket stays denied until the old tat is near.
//
// GCRA panics on a limit or a cost that Check refuses.
func GCRA(now, tat int64, l Limit, cost int64) (next int64, s State) {
	p, err := l.pace()
	if err != nil {
		panic("ratelimit: GCRA: " + err.Error())
	}
	if cost < 0 || cost > l.Capacity() {
		panic("ratelimit: GCRA: cost is not between 0 and the burst")
	}
	next, wait := p.advance(now, tat, cost)
	s = p.state(now, next)
	s.Wait = wait
	return next, s
}

// advance charges a cost between 0 and the burst. It returns the tat to store
// and how long to wait.
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

// later is now + d. It saturates at the end of an int64. A bucket then looks
// fuller than it is, and nobody is locked out.
func later(now int64, d uint64) int64 {
	return now + int64(min(d, uint64(math.MaxInt64-max(now, 0))))
}

func (p pace) state(now, tat int64) State {
	debt := p.debt(now, tat)
	return State{Remaining: int64((p.full - debt) / p.interval), Reset: time.Duration(debt)}
}

// debt is the time until the bucket is full. The subtraction is unsigned
// because the difference of two int64 may exceed an int64.
func (p pace) debt(now, tat int64) uint64 {
	if tat <= now {
		return 0
	}
	return min(uint64(tat)-uint64(now), p.full)
}
