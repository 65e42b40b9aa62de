package ratelimittest_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

var errDown = errors.New("down")

type down struct{}

func (down) Take(context.Context, []ratelimit.Take) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errDown
}

func (down) Get(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Peek(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Reset(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func (down) Increment(context.Context, string, int64, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errDown
}

func TestMemory(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return ratelimit.NewMemory() },
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// One store for all rules and in real time, as a store over a database is tested.
func TestMemoryInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	store := ratelimit.NewMemory()
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return store },
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// Nobody is forgotten wrongly in a table that is small but large enough.
func TestSmallMemory(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return ratelimit.NewMemorySize(64) },
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

func TestFromLimiter(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			// No cleaner, whose goroutine would outlive the bubble.
			return ratelimit.FromLimiter(memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "test"}))
		},
		Unavailable: func(t *testing.T) ratelimit.Store { return ratelimit.FromLimiter(down{}) },
		Bubble:      true,
	}.Run(t)
}

func TestFailover(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return ratelimit.NewFailover(ratelimit.NewMemory(), ratelimit.FailoverOptions{})
		},
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// While its store is away a Failover still keeps every rule, in this process.
func TestFailoverLocal(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return ratelimit.NewFailover(down{}, ratelimit.FailoverOptions{Cooldown: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		},
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}
