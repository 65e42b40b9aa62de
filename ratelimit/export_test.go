package ratelimit

// NewMemorySize returns a Memory for fewer buckets than users have.
var NewMemorySize = newMemory

// Count makes f count what Local policies charge in m.
func (f *Failover) Count(m *Memory) { f.local = m }

// Valid returns the mistake in a limit.
func Valid(l Limit) error {
	_, err := l.pace()
	return err
}
