package idemsql

import "context"

// Version returns the store of an earlier version of this package.
func (s *Store) Version(n int) *Store {
	earlier := &Store{db: s.db, dialect: s.dialect, options: s.options}
	earlier.steps = s.Schema()[:n]
	return earlier
}

const SweepSize = sweepSize

// Sweep is one sweep of Run.
func (s *Store) Sweep(ctx context.Context) (removed int, err error) { return s.sweepBatch(ctx) }
