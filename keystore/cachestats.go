package keystore

import "time"

// CacheStats are figures of a [Cached]. Hits, Asked and Failed count since its
// start.
type CacheStats struct {
	Usable int // tokens remembered that were usable when the store was last asked

	Hits   uint64 // lookups that were answered from memory, also by [Token.Remembered]
	Asked  uint64 // questions to the store; lookups that share one count once
	Failed uint64 // those of them without an answer, [ErrOverloaded] included

	// Down is set from five lookups in a row that the store did not answer, until
	// it answers. Those with [ErrOverloaded] or [ErrCorrupt] do not count.
	// Meanwhile the store is asked about once a second without requests too, until
	// [Cached.Run] has ended or nothing refers to the Cached.
	Down bool

	// NeedsRun is set if the store has a feed, since others may change keys.
	// Polled is when the last poll of it that succeeded began. It is zero unless
	// [Cached.Run] runs and one has.
	NeedsRun bool
	Polled   time.Time

	// MaxStaleness is the longest time for which a key is still accepted after
	// somebody else has revoked or changed it in the store: TTL; or while
	// [Cached.Run] polls and the feed answers, Timeout plus the longer of
	// FeedInterval and Timeout, if that is shorter. Within the same time of the
	// feed, or NegativeTTL, a key is noticed that becomes usable elsewhere.
	//
	// A feed with more keys than fit into one answer needs more answers, each of
	// up to Timeout. A process whose wall clock is behind that of the process that
	// revoked a key accepts the key for that much longer.
	MaxStaleness time.Duration
}

// Stats returns the figures of c.
func (c *Cached) Stats() CacheStats {
	var sum CacheStats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum.Usable += s.accepted.lru.Len()
		sum.Hits += s.hits
		sum.Asked += s.asked
		sum.Failed += s.failed
		s.mu.Unlock()
	}
	sum.NeedsRun = c.needsRun()
	sum.Down = c.outage.lasts()
	sum.MaxStaleness = c.maxStaleness()
	if at := time.Duration(c.polled.Load()); at != 0 {
		sum.Polled = c.epoch.Add(at)
	}
	return sum
}

// Expiring returns how many of the keys in memory may be used now and expire
// within d, without children, which all expire soon. It looks at each.
func (c *Cached) Expiring(d time.Duration) (n int) {
	now := time.Now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, a := range s.accepted.lru.Values() {
			if a.caller == nil || a.caller.rare == nil || a.caller.rare.child != nil {
				continue
			}
			if k := a.caller.key(); k.Status(now) == Active && k.Status(now.Add(d)) == Expired {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}
