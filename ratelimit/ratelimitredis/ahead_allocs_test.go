package ratelimitredis_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// A decision from units in hand allocates nothing, like one of
// ratelimit.Memory.
func TestAllocationsOfUnitsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFake(0)
		store := aheadOn(server)
		charges := []ratelimit.Charge{
			{Policy: slow("organization"), Bucket: "o", Cost: 1},
			{Policy: slow("key"), Bucket: "k", Cost: 1},
			{Policy: slow("route"), Bucket: "r", Cost: 1},
		}
		stock(t, server, store, charges...)
		before := server.sent()
		// AllocsPerRun calls once more than it is told.
		if got := testing.AllocsPerRun(untilLow-1, func() { store.Take(context.Background(), charges) }); got != 0 {
			t.Errorf("a decision of three charges allocates %v times", got)
		}
		if n := server.sent() - before; n != 0 {
			t.Errorf("%d decisions took %d trips", untilLow, n)
		}
	})
}
