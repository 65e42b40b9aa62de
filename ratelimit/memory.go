package ratelimit

import (
	"context"
	"sync"
	"time"
)

type Memory struct {
	mu   sync.Mutex
	tats map[[2]string]int64
	base time.Time
}

func NewMemory() *Memory { return NewMemorySize(100_000) }

func NewMemorySize(keys int) *Memory {
	return &Memory{tats: map[[2]string]int64{}, base: time.Now()}
}

func (m *Memory) Take(_ context.Context, takes []Take) (Decision, error) {
	if err := Check(takes); err != nil {
		return Decision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := int64(time.Since(m.base))
	var next [MaxTakes]int64
	var states [MaxTakes]State
	for i, t := range takes {
		next[i], states[i] = GCRA(now, m.tats[[2]string{t.Policy.Name, t.Bucket}], t.Policy.Limit, t.Cost)
	}
	d := Decide(takes, states)
	if d.Allowed {
		for i, t := range takes {
			m.tats[[2]string{t.Policy.Name, t.Bucket}] = next[i]
		}
	}
	return d, nil
}
