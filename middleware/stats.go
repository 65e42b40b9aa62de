package middleware

import (
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Stats are figures for metrics, of the parts that a [Guard] was given. They
// are zero for a part that is missing or of another type.
type Stats struct {
	// Of all [keystore.Cached] together. With several caches, Polled is the
	// oldest.
	Keys keystore.CacheStats

	Runner  idem.RunnerStats // of all Runners together
	Replies idem.MemoryStats // of an [idem.Memory] of Options.Idempotency

	// Swept is the end of the last successful sweep of expired rows in this
	// process, if the store of replies has a method Swept, such as that of
	// idemsql. Zero means none.
	Swept time.Time

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
	var keys []*keyAuthenticator
	if g.auth != nil {
		keys = g.auth.keys
	}
	for _, a := range keys {
		if cached, ok := a.keys.(*keystore.Cached); ok && !seen[cached] {
			seen[cached] = true
			k := cached.Stats()
			if len(seen) == 1 || k.Polled.Before(s.Keys.Polled) {
				s.Keys.Polled = k.Polled
			}
			s.Keys.Usable += k.Usable
			s.Keys.Refused += k.Refused
			s.Keys.Hits += k.Hits
			s.Keys.Asked += k.Asked
			s.Keys.Failed += k.Failed
		}
	}
	for runner := range g.warnings {
		r := runner.Stats()
		s.Runner.Executions += r.Executions
		s.Runner.Waiters += r.Waiters
		s.Runner.Unsaved += r.Unsaved
		s.Runner.RenewalErrors += r.RenewalErrors
		s.Runner.SaveErrors += r.SaveErrors
		s.Runner.Lost += r.Lost
	}
	if g.idempotency != nil {
		switch store := g.idempotency.Runner.Store().(type) {
		case *idem.Memory:
			s.Replies = store.Stats()
		case interface{ Swept() time.Time }:
			s.Swept = store.Swept()
		}
	}
	switch store := g.limits.Store.(type) {
	case interface{ Stats() (bool, int64) }:
		s.LimitsDown, s.Fallbacks = store.Stats()
	case *ratelimit.Memory:
		s.Forgotten = store.Forgotten()
	}
	return s
}
