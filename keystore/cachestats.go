package keystore

// CacheStats are figures of a [Cached]. The last three count since its start.
type CacheStats struct {
	Usable  int // tokens remembered that were usable when the store was last asked
	Refused int // tokens remembered that were not

	Hits   uint64 // lookups that were answered from memory
	Asked  uint64 // questions to the store; lookups that share one count once
	Failed uint64 // those of them without an answer, [ErrOverloaded] included
}

// Stats returns the figures of c.
func (c *Cached) Stats() CacheStats {
	var sum CacheStats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum.Usable += s.accepted.Len()
		sum.Refused += s.refused.Len()
		sum.Hits += s.hits
		sum.Asked += s.asked
		sum.Failed += s.failed
		s.mu.Unlock()
	}
	return sum
}
