package idem_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// The tries in the background are 100 ms apart at first, then twice as long
// each time, and 5 s in the end.
func TestBackoffOfSaving(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Always(idemtest.Settle, idemtest.Fail)
		start := time.Now()
		e.Settle(t.Context(), answer("created"))
		if n, took := f.Calls(idemtest.Settle), time.Since(start); n != 3 || took != 150*time.Millisecond {
			t.Errorf("got %d tries in %v while the request waits, want 3 in 50ms and 100ms", n, took)
		}
		if n := r.Stats().SaveErrors; n != 3 {
			t.Errorf("got %d errors counted, want 3", n)
		}
		// After about 100, 200, 400 and 800 ms, and not yet after 1,600.
		mustCall(t, f, idemtest.Settle, 2200*time.Millisecond, 4, 4)
		time.Sleep(8 * time.Second)
		// Jitter makes it two more or fewer than 120; four times that is allowed.
		mustCall(t, f, idemtest.Settle, 10*time.Minute, 112, 128)
		f.Always(idemtest.Settle, idemtest.None)
		r.WaitSettled(t.Context())
	})
}

// Settle does not try again when the timeout would end with the pause.
func TestSettleKeepsItsTimeout(t *testing.T) {
	faulty(t, idem.Options{Timeout: 50 * time.Millisecond}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Next(idemtest.Settle, idemtest.Fail)
		start := time.Now()
		err := e.Settle(t.Context(), answer("created"))
		if took := time.Since(start); err == nil || took != 0 {
			t.Errorf("got error %v after %v, want one at once: the pause takes all that is left", err, took)
		}
		r.WaitSettled(t.Context())
		mustReplay(t, r, request, "created")
		// Nor after a call that has taken all of it.
		e = mustRun(t, r, numberedRequest(1))
		f.Always(idemtest.Settle, idemtest.Hang)
		start = time.Now()
		if err := e.Settle(t.Context(), answer("created")); err == nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("got error %v after %v, want one after 50ms", err, time.Since(start))
		}
		f.Always(idemtest.Settle, idemtest.None)
		r.WaitSettled(t.Context())
	})
}

// A transient error does not reach the caller.
func TestSettleTriesAgain(t *testing.T) {
	for _, fault := range []idemtest.Fault{idemtest.Fail, idemtest.LoseAnswer, idemtest.Panic} {
		for _, settlement := range []idem.Settlement{answer("created"), unknown, freed} {
			faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
				e := mustRun(t, r, request)
				f.Next(idemtest.Settle, fault, fault)
				if err := e.Settle(t.Context(), settlement); err != nil {
					t.Errorf("fault %d, %v: got error %v, want nil at the third try", fault, settlement.Outcome, err)
				}
				record, e, err := r.Begin(t.Context(), request, nil)
				want := map[idem.Outcome]idem.State{
					idem.OutcomeDone: idem.Done, idem.OutcomeUnknown: idem.Unknown, idem.OutcomeFree: idem.Claimed,
				}
				if record.State != want[settlement.Outcome] || err != nil {
					t.Errorf("fault %d: after %v got %v, error %v", fault, settlement.Outcome, record.State, err)
				}
				if e != nil {
					mustSettle(t, e, freed)
				}
			})
		}
	}
}

// The store has another outcome of the claim: this one is not the answer.
func TestSettledWithAnotherOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{Store: newMemory(), settle: func(context.Context, idem.ClaimToken) error { return idem.ErrSettled }}
		r, log := logged(s, idem.Options{})
		e := mustRun(t, r, request)
		waiting := begin(t.Context(), r, request)
		synctest.Wait()
		err := e.Settle(t.Context(), answer("created"))
		if err != idem.ErrSettled || !strings.Contains(log.String(), "is not saved and will not be") {
			t.Errorf("got error %v, want ErrSettled and a line of it:\n%s", err, log)
		}
		if got := <-waiting; got.record.State == idem.Done {
			t.Error("the waiter got an answer that is not saved")
		}
		mustBeIdle(t, r)
	})
}

// The save whose answer was lost is found when it is tried again, and is no loss.
func TestSavedWithoutHearingOfIt(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Always(idemtest.Settle, idemtest.LoseAnswer)
		if err := e.Settle(t.Context(), answer("created")); err == nil {
			t.Error("got nil, want an error")
		}
		time.Sleep(time.Hour) // renewals find the claim settled
		mustReplay(t, r, request, "created")
		f.Always(idemtest.Settle, idemtest.None)
		mustRest(t, r)
		if n := r.Stats().Lost; n != 0 {
			t.Errorf("got %d lost executions, want 0", n)
		}
	})
}

// Saving ends when the retention is over.
func TestSavingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := idemtest.NewFaulty(newMemory())
		r, log := logged(f, idem.Options{Retention: time.Hour})
		e := mustRun(t, r, request)
		f.Always(idemtest.Settle, idemtest.Fail)
		start := time.Now()
		e.Settle(t.Context(), answer("created"))
		mustRest(t, r)
		if took := time.Since(start); took < time.Hour || took > time.Hour+10*time.Second {
			t.Errorf("given up after %v, want after an hour", took)
		}
		mustBeIdle(t, r)
		if text := "is not saved and will not be"; strings.Count(log.String(), text) != 1 {
			t.Errorf("the log does not say %q once:\n%s", text, log)
		}
		mustCall(t, f, idemtest.Extend, time.Minute, 0, 0)
	})
}

// A retention that is meant to have no end does not end saving.
func TestSavingWithoutEnd(t *testing.T) {
	faulty(t, idem.Options{Retention: math.MaxInt64}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Always(idemtest.Settle, idemtest.Fail)
		time.Sleep(time.Hour)
		if err := e.Settle(t.Context(), answer("created")); err == nil {
			t.Error("the outcome is saved by a store that fails")
		}
		time.Sleep(time.Hour)
		f.Always(idemtest.Settle, idemtest.None)
		mustRest(t, r)
		if record, _, err := r.Begin(t.Context(), request, nil); record.State != idem.Done {
			t.Errorf("got %v, error %v, want done", record.State, err)
		}
	})
}

// An answer that waits to be saved takes a place among the executions, so that
// such answers cannot pile up.
func TestUnsavedCountAsExecutions(t *testing.T) {
	faulty(t, idem.Options{ExecutionsPerTenant: 4}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Always(idemtest.Settle, idemtest.Fail)
		for i := range 4 {
			mustRun(t, r, numberedRequest(i)).Settle(t.Context(), answer("created"))
		}
		mustRefuse(t, r, numberedRequest(4), idem.ErrTooMany)
		f.Always(idemtest.Settle, idemtest.None)
		r.WaitSettled(t.Context())
		mustSettle(t, mustRun(t, r, numberedRequest(4)), freed)
		mustBeIdle(t, r)
	})
}

// The client is gone, and its context with it: the answer is saved all the
// same.
func TestSettleForOneWhoLeft(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		r := newRunner(s, idem.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		_, e, err := r.Begin(ctx, request, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := e.Settle(ctx, answer("created")); err != nil {
			t.Errorf("Settle: got error %v", err)
		}
		mustReplay(t, r, request, "created")
	})
}
