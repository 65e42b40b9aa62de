//go:build !race

// The race detector moves variables to the heap.

package idem_test

import (
	"context"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
)

func TestNewKeyDoesNotAllocate(t *testing.T) {
	n := testing.AllocsPerRun(100, func() { idem.NewKey("organization", "8e03978e-40d5-43dd-bc93-6894a57f9324") })
	if n != 0 {
		t.Errorf("NewKey allocates %v times, want 0", n)
	}
}

func TestAllocationsOfExecution(t *testing.T) {
	r := newRunner(newMemory(), idem.Options{})
	ctx := context.Background()
	run := testing.AllocsPerRun(200, func() {
		_, e, err := r.Begin(ctx, request, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Settle(ctx, freed)
	})
	if run > 6 {
		t.Errorf("an execution allocates %v times, want at most 6", run)
	}
	mustSettle(t, mustRun(t, r, request), answer("created"))
	if replay := testing.AllocsPerRun(200, func() { r.Begin(ctx, request, nil) }); replay > 1 {
		t.Errorf("a replay allocates %v times, want at most 1", replay)
	}
}
