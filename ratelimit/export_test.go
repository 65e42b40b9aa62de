package ratelimit

import "time"

// NewMemorySize returns a Memory for fewer buckets than users have.
func NewMemorySize(buckets int) *Memory {
	m := new(Memory)
	m.once.Do(func() { m.beginWith(buckets) })
	return m
}

// Places returns how many buckets m has room for now.
func Places(m *Memory) (n int) {
	for i := range m.shards {
		n += len(m.shards[i].sets) * ways
	}
	return n
}

// Late calls f while the clock of m is behind by d.
func Late(m *Memory, d time.Duration, f func()) {
	m.start = m.start.Add(d)
	f()
	m.start = m.start.Add(-d)
}

// Count makes f count what Local policies charge in m.
func (f *Failover) Count(m *Memory) { f.local = m }

// Valid returns the mistake in a limit.
func Valid(l Limit) error {
	_, err := l.pace()
	return err
}
