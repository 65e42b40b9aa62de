package ratelimit_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

func TestMemorySuite(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return ratelimit.NewMemory() },
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// A Memory that is small, but large enough for the rules.
func TestSmallMemorySuite(t *testing.T) {
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return ratelimit.NewMemorySize(64) },
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

func TestFromLimiterSuite(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return ratelimit.FromLimiter(newRecording().Store)
		},
		Unavailable: func(t *testing.T) ratelimit.Store {
			store := newRecording()
			store.err = errRefused
			return ratelimit.FromLimiter(store)
		},
		Bubble: true,
	}.Run(t)
}

func TestFailoverSuite(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			return ratelimit.NewFailover(ratelimit.NewMemory(), ratelimit.FailoverOptions{})
		},
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}

// Without its store a Failover still keeps every rule, in this process.
func TestFailoverLocalSuite(t *testing.T) {
	ratelimittest.Suite{
		New: func(t *testing.T) ratelimit.Store {
			store := newFaulty()
			store.fail(refuse)
			return ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		},
		Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}
