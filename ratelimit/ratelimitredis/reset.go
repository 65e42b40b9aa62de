package ratelimitredis

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

var _ ratelimit.Resetter = (*Store)(nil)

// A script, because redis.Scripter has no other commands.
var resetScript = redis.NewScript(`return redis.call('DEL', unpack(KEYS))`)

// Reset implements ratelimit.Resetter. This process forgets all denials that it
// remembers. Those that other processes remember hold until their waits are
// over, and units in hand can still be spent for Options.Ahead.
func (s *Store) Reset(ctx context.Context, charges []ratelimit.Charge) error {
	free := slices.Clone(charges)
	for i := range free {
		free[i].Cost = 0
	}
	if err := ratelimit.Check(free); err != nil {
		return err
	}
	err := s.failover.Reset(ctx, charges)
	s.denials.recent.Purge()
	return err
}

// Reset deletes the counters. An error of Redis means that they may be there.
func (c *counters) Reset(ctx context.Context, charges []ratelimit.Charge) error {
	if len(charges) == 0 {
		return nil
	}
	if err := resetScript.Run(ctx, c.client, c.keys(charges)).Err(); err != nil {
		return fmt.Errorf("ratelimitredis: reset: %w", err)
	}
	return nil
}
