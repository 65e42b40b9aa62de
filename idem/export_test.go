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

// Undoing returns how many claims are undone on a shard.
func (r *Runner) Undoing(shard string) int {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	if s := r.backend.shards[shard]; s != nil {
		return s.undoing
	}
	return 0
}
