// Package slots caps how many requests are worked on at one time.
package slots

import (
	"hash/maphash"
	"sync"
)

// Slots caps how many slots each bucket holds at one time.
//
// It remembers only buckets that hold a slot, and starts nothing.
type Slots struct {
	max    int
	seed   maphash.Seed
	shards [64]inFlight
}

type inFlight struct {
	mu      sync.Mutex
	buckets map[string]int
	peak    int // the most buckets that the map has held
	_       [40]byte
}

// New returns a cap of max, which is positive, for each bucket.
func New(max int) *Slots {
	return &Slots{max: max, seed: maphash.MakeSeed()}
}

// Acquire takes one of the bucket's slots and reports whether one was free.
// After true, call Release once.
func (c *Slots) Acquire(bucket string) bool {
	s := c.shard(bucket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[bucket] >= c.max {
		return false
	}
	if s.buckets == nil {
		s.buckets = make(map[string]int)
	}
	s.buckets[bucket]++
	s.peak = max(s.peak, len(s.buckets))
	return true
}

// Release frees a slot. Without an Acquire it frees another caller's slot, or
// does nothing if the bucket holds none.
func (c *Slots) Release(bucket string) {
	s := c.shard(bucket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[bucket] > 1 {
		s.buckets[bucket]--
		return
	}
	delete(s.buckets, bucket)
	// A map does not shrink, so drop it after a flood.
	if len(s.buckets) == 0 && s.peak > 64 {
		s.buckets, s.peak = nil, 0
	}
}

func (c *Slots) shard(bucket string) *inFlight {
	return &c.shards[maphash.String(c.seed, bucket)%uint64(len(c.shards))]
}
