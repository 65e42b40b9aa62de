package idemsql

import "context"

// SweepBatch is how many rows a call of [Store.Sweep] removes at most.
const SweepBatch = 1000

// Sweep removes rows whose retention is over, those first that ended first,
// and returns how many. When it returns SweepBatch there may be more. It is
// safe while requests are served, and from several servers at once. Expired
// rows count for nothing whether they are removed or not: Sweep is for the
// room that they take.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) {
	return await(ctx, "sweep", func() (removed int, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) error {
			result, err := q.ExecContext(ctx, s.sweep, SweepBatch)
			if err != nil {
				return err
			}
			rows, err := result.RowsAffected()
			removed = int(rows)
			return err
		})
		return removed, err
	}, nil)
}
