package idemsql

import "context"

// sweepSize is how many rows a call of sweepBatch removes at most.
const sweepSize = 1000

// sweepBatch removes rows whose retention is over, those first that ended
// first, and returns how many. When it returns sweepSize there may be more.
func (s *Store) sweepBatch(ctx context.Context) (removed int, err error) {
	return await(ctx, "sweep", func() (removed int, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) error {
			for {
				limit := sweepSize - removed
				n, looked, err := s.sweepSome(ctx, q, limit)
				removed += n
				if err != nil || looked < limit || removed == sweepSize {
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
