package ratelimit

import "sync"

type Concurrency struct {
	max  int
	mu   sync.Mutex
	held map[string]int
}

func NewConcurrency(max int) *Concurrency {
	return &Concurrency{max: max, held: map[string]int{}}
}

func (c *Concurrency) Acquire(bucket string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[bucket] >= c.max {
		return false
	}
	c.held[bucket]++
	return true
}

func (c *Concurrency) Release(bucket string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[bucket]--; c.held[bucket] <= 0 {
		delete(c.held, bucket)
	}
}
