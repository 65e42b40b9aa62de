package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// elsewhere returns what a repeat in another process is told, which does not
// wait.
func elsewhere(t *testing.T, s idem.Store, req idem.Claim) idem.State {
	t.Helper()
	record, e, err := newRunner(s, idem.Options{Wait: noWait}).Begin(t.Context(), req, nil)
	if e != nil || err != nil {
		t.Fatalf("Begin in another process: got an execution %t, error %v, want a record", e != nil, err)
	}
	return record.State
}

// What the hint of a repeat says shrinks while nobody renews the lease and
// never exceeds it.
func TestLeaseLeftOfDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(remote{newMemory()}, idem.Options{Wait: noWait})
		e := mustRun(t, r, request)
		for _, step := range []struct{ sleep, want time.Duration }{
			{0, 15 * time.Second},
			{4 * time.Second, 11 * time.Second},
			{2 * time.Second, 14 * time.Second}, // after the renewal
		} {
			time.Sleep(step.sleep)
			synctest.Wait()
			if got := mustGet(t, r, request, idem.InProgress).RetryAfter; got != step.want {
				t.Errorf("got %v of the lease left, want %v", got, step.want)
			}
		}
		mustSettle(t, e, answer("created"))
	})
}

// The store renewed the lease at some time between the call and its answer:
// until when the lease lasts is counted from the call.
func TestLeaseCountsFromTheCall(t *testing.T) {
	faulty(t, idem.Options{Wait: noWait}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Next(idemtest.Extend, idemtest.StallAnswer)
		time.Sleep(5*time.Second + 1500*time.Millisecond)
		f.Release() // the answer to a call of 1.5 s ago
		synctest.Wait()
		if got, want := mustGet(t, r, request, idem.InProgress).RetryAfter, 13500*time.Millisecond; got != want {
			t.Errorf("got %v of the lease left, want %v", got, want)
		}
		mustSettle(t, e, answer("created"))
	})
}

// A claim in a Memory needs no renewal: it is held however long the request
// runs. So there is no hint of when to come back.
func TestMemoryHoldsWithoutRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		short := idem.Options{Lease: time.Second, Retention: 2 * time.Second, Wait: noWait}
		r := newRunner(s, short)
		e := mustRun(t, r, request)
		ctx := e.Context(t.Context())
		time.Sleep(24 * time.Hour)
		if left := mustGet(t, r, request, idem.InProgress).RetryAfter; left != 0 {
			t.Errorf("got %v of the lease left, want 0: not known", left)
		}
		if left := mustGet(t, newRunner(s, short), request, idem.InProgress).RetryAfter; left != 0 {
			t.Errorf("another Runner got %v of the lease left, want 0: not known", left)
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("the context ended with %v", err)
		}
		mustSettle(t, e, answer("created"))
		mustReplay(t, r, request, "created")
		time.Sleep(2 * time.Second)
		mustSettle(t, mustRun(t, r, request), answer("created again"))
	})
}

// notRenewed reports whether the cause is that a claim could not be renewed,
// and not that it is lost.
func notRenewed(cause error) bool { return errors.Is(cause, idem.ErrLost) && cause != idem.ErrLost }

// A renewal that fails is tried again after a fifteenth of the lease, the last
// time at nine tenths of it. Then the execution is cancelled.
func TestRenewalTriesAgain(t *testing.T) {
	faulty(t, idem.Options{Lease: 30 * time.Second}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		ctx := e.Context(t.Context())
		f.Always(idemtest.Extend, idemtest.Fail)
		for i, pause := range []time.Duration{10, 2, 2, 2, 2, 2, 2, 2, 2, 1} {
			time.Sleep(pause*time.Second - time.Nanosecond)
			early := f.Calls(idemtest.Extend)
			if ctx.Err() != nil {
				t.Fatalf("cancelled before try %d", i+1)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if n := f.Calls(idemtest.Extend); early != i || n != i+1 {
				t.Errorf("%d tries before the time of try %d and %d then", early, i+1, n)
			}
		}
		if err := context.Cause(ctx); !errors.Is(err, idem.ErrLost) {
			t.Errorf("got cause %v, want ErrLost", err)
		}
		if n := r.Stats().RenewalErrors; n != 10 {
			t.Errorf("got %d renewal errors, want 10", n)
		}
		mustSettle(t, e, answer("created"))
	})
}

// A renewal may hang, for less time than the lease lasts or for more. The
// execution is cancelled at nine tenths of the lease, while it holds the claim.
func TestRenewalHangs(t *testing.T) {
	for _, test := range []struct{ timeout, from, cancelled time.Duration }{
		{8 * time.Second, 0, 13500 * time.Millisecond},
		{time.Minute, 0, 13500 * time.Millisecond},
		{8 * time.Second, 6 * time.Second, 18500 * time.Millisecond}, // after a renewal
		{time.Minute, 6 * time.Second, 18500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := idemtest.NewFaulty(newMemory())
			r, log := logged(f, idem.Options{Timeout: test.timeout})
			e := mustRun(t, r, request)
			ctx := e.Context(t.Context())
			start := time.Now()
			time.Sleep(test.from)
			f.Always(idemtest.Extend, idemtest.Hang)
			<-ctx.Done()
			if took := time.Since(start); !notRenewed(context.Cause(ctx)) || took != test.cancelled {
				t.Errorf("%+v: got cause %v after %v, want ErrLost for want of renewal", test, context.Cause(ctx), took)
			}
			synctest.Wait()
			if line := "lost its claim and was cancelled"; strings.Count(log.String(), line) != 1 {
				t.Errorf("%+v: the log does not say %q once:\n%s", test, line, log)
			}
			mustSettle(t, e, answer("late"))
			time.Sleep(test.timeout) // until the last call ends
		})
	}
}

// After Settle there is nothing to cancel, and the log does not say that
// anything was.
func TestNothingToTellAfterSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := idemtest.NewFaulty(newMemory())
		r, log := logged(f, idem.Options{})
		e := mustRun(t, r, request)
		ctx := e.Context(t.Context())
		f.Always(idemtest.Settle, idemtest.Fail)
		f.Always(idemtest.Extend, idemtest.Fail)
		e.Settle(t.Context(), answer("created"))
		if cause := context.Cause(ctx); cause != context.Canceled {
			t.Errorf("while the answer is not saved: got cause %v, want context.Canceled", cause)
		}
		time.Sleep(time.Minute)
		f.Always(idemtest.Settle, idemtest.None)
		r.WaitSettled(t.Context())
		if cause := context.Cause(e.Context(t.Context())); cause != context.Canceled {
			t.Errorf("got cause %v, want context.Canceled", cause)
		}
		end := fmt.Sprintf("is saved\" idempotency_key=%x\n", request.Key[:8])
		for text, want := range map[string]int{"could not be saved": 1, end: 1, "cancelled": 0} {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("the log says %q %d times, want %d:\n%s", text, n, want, log)
			}
		}
	})
}

// A renewal that is under way when the execution settles is the last one.
func TestRenewalDuringSettle(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		e := mustRun(t, r, request)
		f.Next(idemtest.Extend, idemtest.StallAnswer)
		f.Always(idemtest.Extend, idemtest.Fail)
		mustCall(t, f, idemtest.Extend, 6*time.Second, 1, 1)
		mustSettle(t, e, answer("created"))
		f.Release()
		mustCall(t, f, idemtest.Extend, time.Minute, 0, 0)
	})
}

// When the store comes back after the lease, it is not asked to renew the claim of
// a request that runs, and its late outcome counts. What is only to be saved is
// renewed.
func TestRenewalsComeBack(t *testing.T) {
	for _, settled := range []bool{false, true} {
		faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
			e := mustRun(t, r, request)
			f.Always(idemtest.Extend, idemtest.Fail)
			f.Always(idemtest.Settle, idemtest.Fail)
			if settled {
				e.Settle(t.Context(), answer("created"))
			}
			time.Sleep(20 * time.Second)
			f.Always(idemtest.Extend, idemtest.None)
			time.Sleep(5 * time.Second)
			want := idem.Unknown
			if settled {
				want = idem.InProgress
			}
			if got := elsewhere(t, f, request); got != want {
				t.Errorf("settled %t: got %v, want %v", settled, got, want)
			}
			f.Always(idemtest.Settle, idemtest.None)
			if !settled {
				mustSettle(t, e, answer("created"))
			}
			r.WaitSettled(t.Context())
			mustReplay(t, newRunner(f, idem.Options{}), request, "created")
		})
	}
}

// The monotonic clock may stand still with the machine. Whoever then asks the
// context learns at once that the claim is lost, and no claim is renewed.
func TestMachineStoodStill(t *testing.T) {
	for _, asks := range []bool{true, false} {
		faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
			standStill := r.StandStill()
			e := mustRun(t, r, request)
			ctx := e.Context(t.Context())
			idle, cancel := context.WithCancel(e.Context(t.Context())) // has a channel of its own
			defer cancel()
			standStill(15*time.Second - 1)
			if ctx.Err() != nil {
				t.Error("the context ended while the lease was live")
			}
			standStill(1)
			if asks {
				select {
				case <-ctx.Done():
				default:
					t.Error("whoever asks the context learns nothing")
				}
				if cause := context.Cause(ctx); !notRenewed(cause) || ctx.Err() == nil {
					t.Errorf("got cause %v, want a lease that was over", cause)
				}
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if idle.Err() == nil || f.Calls(idemtest.Extend) != 0 {
				t.Errorf("got error %v and %d renewals, want a canceled context and none", idle.Err(), f.Calls(idemtest.Extend))
			}
			mustSettle(t, e, answer("late"))
		})
	}
}

// The server may stand still while it renews: the store's answer then comes too
// late.
func TestRenewalTooLate(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		standStill := r.StandStill()
		e := mustRun(t, r, request)
		idle, cancel := context.WithCancel(e.Context(t.Context()))
		defer cancel()
		f.Next(idemtest.Extend, idemtest.StallAnswer)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		standStill(15 * time.Second)
		f.Release()
		synctest.Wait()
		if cause := context.Cause(idle); !notRenewed(cause) {
			t.Errorf("got cause %v, want a lease that was over", cause)
		}
		mustSettle(t, e, answer("late"))
	})
}

// A Begin may take longer than the lease lasts. A repeat may have been told that
// the outcome is unknown, so the request does not run.
func TestBeginSlowerThanTheLease(t *testing.T) {
	faulty(t, idem.Options{Lease: time.Second}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Next(idemtest.Begin, idemtest.StallAnswer)
		c := begin(t.Context(), r, request)
		time.Sleep(time.Second)
		f.Release()
		if got := <-c; got.e != nil || got.err == nil {
			t.Errorf("got an execution %t and error %v, want an error", got.e != nil, got.err)
		}
		r.WaitSettled(t.Context())
		mustSettle(t, mustRun(t, r, request), answer("created"))
	})
}

// The first renewal is due a third of the lease after the store was asked,
// not after it answered.
func TestSlowBegin(t *testing.T) {
	faulty(t, idem.Options{Lease: 3 * time.Second}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Next(idemtest.Begin, idemtest.StallAnswer)
		c := begin(t.Context(), r, request)
		time.Sleep(1900 * time.Millisecond)
		f.Release()
		got := <-c
		synctest.Wait()
		if n := f.Calls(idemtest.Extend); n != 1 {
			t.Errorf("got %d renewals by 1.9s of a lease of 3s, want 1", n)
		}
		mustSettle(t, got.e, freed)
	})
}
