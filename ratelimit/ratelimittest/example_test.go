package ratelimittest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// In a store's own tests this is a Test function.
func ExampleSuite() {
	_ = func(t *testing.T) {
		ratelimittest.Suite{
			New:    func(t *testing.T) ratelimit.Store { return &ratelimit.Memory{} },
			Atomic: true, Smooth: true, DenialWritesNothing: true,
			Bubble: true,
		}.Run(t)
	}
}
