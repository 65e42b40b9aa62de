package middleware

import (
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Stats are figures for metrics, of the parts that a [Guard] was given. They
// are zero for a part that is missing or of another type.
type Stats struct {
	Keys keystore.CacheStats // of a [keystore.Cached]; of several together

	Runner  idem.RunnerStats // of all Runners together
	Replies idem.MemoryStats // of an [idem.Memory] of Options.Idempotency

	// Of a [ratelimit.Failover], or a store that has one inside, such as that of
	// ratelimitredis.
	LimitsDown bool  // the store behind it is not called at present
	Fallbacks  int64 // decisions without that store, since the start

	Forgotten int64 // buckets that a [ratelimit.Memory] dropped while in debt, since the start
}

// Stats returns the figures of the Guard's parts. It may be called at any time.
func (g *Guard) Stats() Stats {
	var s Stats
	seen := map[*keystore.Cached]bool{}
	for _, a := range g.keys {
		if cached, ok := a.keys.(*keystore.Cached); ok && !seen[cached] {
			seen[cached] = true
			k := cached.Stats()
			s.Keys.Usable += k.Usable
			s.Keys.Refused += k.Refused
			s.Keys.Hits += k.Hits
			s.Keys.Asked += k.Asked
			s.Keys.Failed += k.Failed
		}
	}
	for _, runner := range g.runners {
		r := runner.Stats()
		s.Runner.Executions += r.Executions
		s.Runner.Waiters += r.Waiters
		s.Runner.Unsaved += r.Unsaved
		s.Runner.RenewalErrors += r.RenewalErrors
		s.Runner.SaveErrors += r.SaveErrors
		s.Runner.Lost += r.Lost
	}
	if g.idempotency != nil {
		if memory, ok := g.idempotency.Runner.Store().(*idem.Memory); ok {
			s.Replies = memory.Stats()
		}
	}
	switch store := g.limits.Store.(type) {
	case interface {
		Down() bool
		Fallbacks() int64
	}:
		s.LimitsDown, s.Fallbacks = store.Down(), store.Fallbacks()
	case *ratelimit.Memory:
		s.Forgotten = store.Forgotten()
	}
	return s
}
