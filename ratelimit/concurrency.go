package ratelimit

import (
	"hash/maphash"
	"sync"
)

// Concurrency caps what each bucket has under way at one time.
//
// It remembers only buckets with something under way, and starts nothing.
type Concurrency struct {
	max    int
	seed   maphash.Seed
	shards [64]inFlight
}

type inFlight struct {
	mu      sync.Mutex
	buckets map[string]int
	peak    int // how many buckets the map has had at one time
	_       [40]byte
}

// NewConcurrency returns a cap of max for each bucket. It panics if max is not
// positive.
func NewConcurrency(max int) *Concurrency {
	if max <= 0 {
		panic("ratelimit: NewConcurrency: not a positive maximum")
	}
	return &Concurrency{max: max, seed: maphash.MakeSeed()}
}

// Acquire takes one of the bucket's slots and reports whether there was one. Who
// gets true calls Release, once, when done.
func (c *Concurrency) Acquire(bucket string) bool {
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

// Release gives the slot back. Without an Acquire it does nothing if the bucket has
// nothing under way, and frees another caller's slot if it has.
func (c *Concurrency) Release(bucket string) {
	s := c.shard(bucket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets[bucket] > 1 {
		s.buckets[bucket]--
		return
	}
	delete(s.buckets, bucket)
	// A map does not shrink, so after a flood it is dropped.
	if len(s.buckets) == 0 && s.peak > 64 {
		s.buckets, s.peak = nil, 0
	}
}

func (c *Concurrency) shard(bucket string) *inFlight {
	return &c.shards[maphash.String(c.seed, bucket)%uint64(len(c.shards))]
}
