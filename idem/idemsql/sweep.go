package idemsql

import "context"

// SweepBatch is how many rows a call of [Store.Sweep] removes at most.
const SweepBatch = 1000

// Sweep removes rows whose retention is over, those first that ended first,
// and returns how many. When it returns SweepBatch there may be more. It is
// safe while requests are served, and from several servers at once. Expired
// rows count for nothing whether they are removed or not: Sweep is for the
// room that they take. In Postgres it finds them five minutes later, by a time
// that is set with the claim, so that no reply changes an index.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	return await(ctx, "sweep", func() (removed int, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) error {
			for {
				limit := SweepBatch - removed
				n, looked, err := s.sweepSome(ctx, q, limit)
				removed += n
				if err != nil || looked < limit || removed == SweepBatch {
					return err
				}
			}
		})
		return removed, err
	}, nil)
}

// sweepSome looks at so many rows and returns how many of them it has removed.
func (s *Store) sweepSome(ctx context.Context, q querier, limit int) (removed, looked int, err error) {
	if s.sweepLooks {
		err := s.one(ctx, q, s.sweep, []any{&removed, &looked}, limit)
		return removed, looked, err
	}
	statement, args := s.sql(s.sweep, []any{limit})
	result, err := q.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	rows, err := result.RowsAffected()
	return int(rows), int(rows), err
}
