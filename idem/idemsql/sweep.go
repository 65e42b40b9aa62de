package idemsql

import (
	"context"
	"time"
)

const (
	// sweepSize is how many rows a sweep removes at most.
	sweepSize     = 1000
	sweepInterval = time.Minute
	// sweepTimeout bounds a sweep, also where the driver waits for ever for a
	// database that has vanished.
	sweepTimeout = time.Minute

	// postgresSweep removes rows and returns how many, and how many it has
	// looked at: one that is kept for longer than its claim said is looked at
	// again when its time is over, and one whose charge is not added up after a
	// minute. Rows that a joined request is about to reuse are locked, and left to
	// it.
	postgresSweep = `
		WITH due AS MATERIALIZED (
			SELECT ctid, expires_at <= {now} AND account IS NULL AS over FROM sallyport_idem
			WHERE sweep_at <= {now} ORDER BY sweep_at LIMIT $1 FOR UPDATE SKIP LOCKED),
		removed AS (
			DELETE FROM sallyport_idem AS r USING due
			WHERE r.ctid = due.ctid AND due.over RETURNING 1),
		kept AS (
			UPDATE sallyport_idem AS r SET sweep_at = greatest(r.expires_at, {now} + interval '1 minute') FROM due
			WHERE r.ctid = due.ctid AND NOT due.over RETURNING 1)
		SELECT (SELECT count(*) FROM removed), (SELECT count(*) FROM removed) + (SELECT count(*) FROM kept)`
	sqliteSweep = `
		DELETE FROM sallyport_idem WHERE rowid IN (
			SELECT rowid FROM sallyport_idem WHERE expires_at <= {now} AND account IS NULL ORDER BY expires_at LIMIT $1)`
)

// Run removes rows whose retention is over until ctx ends, and returns nil
// then. It does so when it starts and every minute, 1,000 rows at a time. Call
// it in one process or in all: it is safe while requests are served. Expired
// rows count for nothing whether they are removed or not; Run is for the room
// that they take. In Postgres it finds them five minutes later, by a time that
// is set with the claim, so that no reply changes an index.
//
// It also adds up the units that were used: before it removes rows, and each
// second with Options.KeepCharges, after the first Used, or once it has found any.
func (s *Store) Run(ctx context.Context) error {
	var sweep, warn time.Time // not before
	for ctx.Err() == nil {
		now := time.Now()
		sweeps := !now.Before(sweep)
		if sweeps || s.options.KeepCharges || s.counts.Load() {
			n, err := s.foldAll(ctx)
			if n > 0 {
				s.counts.Store(true)
			}
			if err != nil && ctx.Err() == nil && !now.Before(warn) {
				warn = now.Add(sweepInterval)
				s.options.Logger.WarnContext(ctx,
					"idemsql: units were not added up; it is tried again each second, or with the next sweep", "error", err)
			}
		}
		if sweeps {
			if s.sweepOnce(ctx) == sweepSize {
				continue // there may be more
			}
			sweep = now.Add(sweepInterval)
		}
		select {
		case <-ctx.Done():
		case <-time.After(foldInterval):
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

// sweepOnce sweeps, and logs what went wrong.
func (s *Store) sweepOnce(ctx context.Context) (removed int) {
	bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	removed, err := s.sweepBatch(bounded)
	switch {
	case err == nil:
		now := time.Now()
		s.swept.Store(&now)
		return removed
	case ctx.Err() == nil:
		s.options.Logger.WarnContext(ctx,
			"idemsql: rows whose retention is over were not removed; the next sweep tries again", "error", err)
	}
	return 0
}

// sweepBatch removes rows whose retention is over, those first that ended
// first, and returns how many. When it returns sweepSize there may be more.
func (s *Store) sweepBatch(ctx context.Context) (removed int, err error) {
	return await(ctx, s, "sweep", func(ctx context.Context, q querier) (removed int, err error) {
		if !s.sweepLooks {
			return s.exec(ctx, q, s.sweep, sweepSize)
		}
		for looked, limit := 0, 0; err == nil && looked == limit && removed < sweepSize; {
			var n int
			limit = sweepSize - removed
			err = s.one(ctx, q, s.sweep, []any{&n, &looked}, limit)
			removed += n
		}
		return removed, err
	}, nil)
}
