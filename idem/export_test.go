package idem

import (
	"sync/atomic"
	"time"
)

// StandStill returns a function that lets the wall clock run, and not the
// monotonic one. It is called before the Runner is used.
func (r *Runner) StandStill() func(time.Duration) {
	var still atomic.Int64
	wall := r.wall
	r.wall = func(now time.Time) time.Time { return wall(now).Add(time.Duration(still.Load())) }
	return func(d time.Duration) { still.Add(int64(d)) }
}

// An Outage reads its clock under its lock.
type Outage struct{ outage }

// Told records a result at a time that now returns, and Locked reports whether
// somebody holds the lock.
func (o *Outage) Told(err error, now func() time.Time) {
	o.now, o.probe = now, func() {}
	o.told(err, time.Time{})
}

func (o *Outage) Locked() bool {
	free := o.mu.TryLock()
	if free {
		o.mu.Unlock()
	}
	return !free
}

// Undoing returns how many claims are undone on a shard.
func (r *Runner) Undoing(shard string) int {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	if s := r.backend.shards[shard]; s != nil {
		return s.undoing
	}
	return 0
}
