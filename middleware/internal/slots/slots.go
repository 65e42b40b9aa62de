// Package slots caps how many requests are worked on at one time.
package slots

import "sync"

// Slots caps how many slots each bucket holds at one time. It remembers only
// buckets that hold a slot.
type Slots struct {
	most int

	mu    sync.Mutex
	taken map[string]int
}

// New returns a cap of most, which is positive, for each bucket.
func New(most int) *Slots { return &Slots{most: most, taken: make(map[string]int)} }

// Acquire takes one of the bucket's slots and reports whether one was free.
// After true, call Release once.
func (s *Slots) Acquire(bucket string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[bucket] >= s.most {
		return false
	}
	s.taken[bucket]++
	return true
}

// Release frees a slot.
func (s *Slots) Release(bucket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[bucket]--; s.taken[bucket] <= 0 {
		delete(s.taken, bucket)
	}
}
