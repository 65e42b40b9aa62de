package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// An undo is tried at once, and then each time after twice as long.
func TestUndoIsTriedLessAndLessOften(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Next(idemtest.Begin, idemtest.LoseAnswer)
		f.Always(idemtest.Settle, idemtest.Fail)
		mustRefuse(t, r, request, idemtest.ErrInjected)
		synctest.Wait()
		if n := f.Calls(idemtest.Settle); n != 1 {
			t.Errorf("got %d tries at once, want 1", n)
		}
		// After 100, 200, 400 and 800 ms, and not yet 1,600. Then about one in 5s.
		mustCall(t, f, idemtest.Settle, 2200*time.Millisecond, 4, 4)
		mustCall(t, f, idemtest.Settle, 10*time.Minute, 109, 133)
		f.Always(idemtest.Settle, idemtest.None)
		mustRest(t, r)
	})
}

// An undo ends with the retention at the latest, because the record does.
func TestUndoEndsWithTheRetention(t *testing.T) {
	faulty(t, idem.Options{Retention: time.Hour}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Next(idemtest.Begin, idemtest.LoseAnswer)
		f.Always(idemtest.Settle, idemtest.Fail)
		start := time.Now()
		mustRefuse(t, r, request, idemtest.ErrInjected)
		r.WaitSettled(t.Context())
		if took := time.Since(start); took != time.Hour {
			t.Errorf("given up after %v, want after the retention of 1h", took)
		}
	})
}

// While a store is down the claims to be taken back are bounded: when there are
// too many, nothing more is asked for.
func TestStoreThatIsDown(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Always(idemtest.Begin, idemtest.Fail)
		f.Always(idemtest.Settle, idemtest.Fail)
		for i := range 600 {
			time.Sleep(time.Second) // after a few failures, one call a second is let through
			if _, _, err := r.Begin(t.Context(), numberedRequest(i), nil); err == nil || errors.Is(err, idem.ErrMismatch) {
				t.Fatalf("got error %v from a store that is down, want one that says so", err)
			}
		}
		if n := r.Stats().Unsaved; n != 512 {
			t.Errorf("got %d claims to be taken back, want 512", n)
		}
		if _, _, err := r.Begin(t.Context(), request, nil); err == nil ||
			!strings.Contains(err.Error(), idemtest.ErrInjected.Error()) {
			t.Errorf("got error %v, want one that names what the store said last", err)
		}
		f.Always(idemtest.Begin, idemtest.None)
		f.Always(idemtest.Settle, idemtest.None)
		time.Sleep(7 * time.Second)
		mustSettle(t, mustRun(t, r, request), answer("created"))
		mustBeIdle(t, r)
	})
}

// What a claim that took over proves is of its own run. How the one before ended
// stays unknown, and charged, until the retention is over: the next run is one
// attempt more.
func TestTakeOverThatIsFreed(t *testing.T) {
	req := request
	req.Account, req.Units = idem.NewAccount("acme"), 5
	for name, free := range map[string]func(*testing.T, *idemtest.Faulty, *idem.Runner){
		"the answer is lost": func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
			f.Next(idemtest.Begin, idemtest.LoseAnswer)
			mustRefuse(t, r, req, idemtest.ErrInjected)
		},
		"the answer is late": func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
			f.Next(idemtest.Begin, idemtest.StallAnswer)
			mustRefuse(t, r, req, context.DeadlineExceeded)
			f.Release()
		},
		"the handler": func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
			f.Next(idemtest.Settle, idemtest.LoseAnswer)
			mustSettle(t, mustRunAs(t, r, req, 2), freed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newMemory()
				f := idemtest.NewFaulty(memory)
				r := newRunner(f, idem.Options{Reexecute: true})
				mustSettle(t, mustRun(t, r, req), unknown)
				free(t, f, r)
				mustRest(t, r)
				time.Sleep(23 * time.Hour)
				if units, _, _ := memory.Used(t.Context(), req.Account, time.Time{}); units != 5 {
					t.Errorf("got %d units used, want 5", units)
				}
				mustSettle(t, mustRunAs(t, r, req, 3), freed)
				time.Sleep(24 * time.Hour)
				mustSettle(t, mustRun(t, r, req), freed)
			})
		})
	}
}
