package ratelimitredis

import (
	"context"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Counters returns the store behind the Failover, the units in hand and the
// remembered denials.
func (s *Store) Counters() ratelimit.Store { return s.counters }

// Charge runs the script for an amount of decisions. It returns for how many of
// them it charged, 0 for a denial.
func (s *Store) Charge(ctx context.Context, charges []ratelimit.Charge, amount int64) (int64, error) {
	a, err := s.counters.trip(ctx, charges, amount)
	return a.amount, err
}
