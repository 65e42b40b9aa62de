package ratelimit

import (
	"context"
	"log/slog"
	"time"
)

type FailoverOptions struct {
	Budget   time.Duration // for one call; 0 means 50 ms
	Failures int           // in a row that open the breaker; 0 means 5
	Cooldown time.Duration // from opening to the probe; 0 means 1 s
	Logger   *slog.Logger  // nil means slog.Default()
}

type Failover struct {
	store Store
}

func NewFailover(s Store, o FailoverOptions) *Failover { return &Failover{s} }

func (f *Failover) Take(ctx context.Context, takes []Take) (Decision, error) {
	return f.store.Take(ctx, takes)
}
