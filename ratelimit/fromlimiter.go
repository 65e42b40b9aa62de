package ratelimit

import (
	"context"
	"errors"

	"github.com/ulule/limiter/v3"
)

func FromLimiter(s limiter.Store) Store { return limiterStore{s} }

type limiterStore struct{ store limiter.Store }

func (s limiterStore) Take(ctx context.Context, takes []Take) (Decision, error) {
	return Decision{}, errors.ErrUnsupported
}
