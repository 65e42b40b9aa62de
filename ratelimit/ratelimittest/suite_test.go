package ratelimittest_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

// One store for all rules, in real time, as stores outside the process are
// tested.
func TestMemoryInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("charges seconds")
	}
	store := ratelimit.NewMemory()
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return store },
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
}
