package idemsql

import (
	"context"
	"time"
)

const (
	sweepInterval = time.Minute
	// sweepTimeout bounds a sweep, also where the driver waits for ever for a
	// database that has vanished.
	sweepTimeout = time.Minute
)

// Run removes rows whose retention is over until ctx ends, and returns nil
// then. It does so when it starts and every minute, 1,000 rows at a time. Call
// it in one process or in all: it is safe while requests are served. Expired
// rows count for nothing whether they are removed or not; Run is for the room
// that they take. In Postgres it finds them five minutes later, by a time that
// is set with the claim, so that no reply changes an index.
func (s *Store) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if s.sweepOnce(ctx) == sweepSize {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
		case <-time.After(sweepInterval):
		}
	}
	return nil
}

// Swept returns when the last sweep of [Store.Run] in this process that
// succeeded ended. It is zero before the first.
func (s *Store) Swept() time.Time {
	if at := s.swept.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (s *Store) sweepOnce(ctx context.Context) (removed int) {
	bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	removed, err := s.sweepBatch(bounded)
	if err == nil {
		now := time.Now()
		s.swept.Store(&now)
		return removed
	}
	if ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "idemsql: rows whose retention is over were not removed; the next sweep tries again", "error", err)
	}
	return 0
}
