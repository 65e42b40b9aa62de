//go:build !race

// The race detector moves variables to the heap, and takes long for a full Memory.

package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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

// The figures of the documentation, at a sixteenth of the default budget.
func TestMemoryDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, part = 256 << 20, 16
		s := newShop(t, &idem.Memory{Budget: budget / part})
		if n := part * s.flood("a"); n < 630_000 || n > 640_000 {
			t.Errorf("got room for %d summaries, want 630,000", n)
		}
		if whole := budget * 16 / 17 / (entryCost + summary + 320); whole < 350_000 || whole > 355_000 {
			t.Errorf("got room for %d answers, want 350,000", whole)
		}
		time.Sleep(time.Minute - 1)
		s.mustBeFull("a", "more")
		time.Sleep(time.Nanosecond)
		s.put("a", "more", 0)

		const body = 1 << 20
		s = newShop(t, &idem.Memory{})
		s.fill("a", budget/body, body)
		if got := s.Stats(); got.Bytes > budget*16/17 || got.Bytes < budget*16/17-body-claimCost {
			t.Errorf("got %d bytes, want sixteen seventeenths of %d", got.Bytes, budget)
		}
	})
}
