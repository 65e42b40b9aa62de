package idem_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// heldElsewhere lets a claim of the request, which nobody renews, begin its lease
// of 15 s.
func heldElsewhere(t *testing.T, s idem.Store) {
	c := claimOf(request.Tenant, "key")
	c.Lease = 15 * time.Second
	if _, err := s.Begin(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// In another process too, the hint is the rest of the lease: for the one who
// polls in vain, for one who waits beside it, and for one who may not wait.
func TestLeaseLeftAfterPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		r := newRunner(s, idem.Options{Wait: 3 * time.Second})
		time.Sleep(time.Hour) // the lease counts from the claim, not from the start of the Runner
		heldElsewhere(t, s)
		polls := begin(t.Context(), r, request)
		synctest.Wait()
		time.Sleep(time.Second)
		waits := begin(t.Context(), r, request)
		crowd, crowded := numberedRequest(1), request
		crowd.Tenant, crowded.Tenant = "crowd", "crowd"
		e := mustRun(t, r, crowd)
		for range 256 {
			begin(t.Context(), r, crowd)
		}
		synctest.Wait()
		tooMany := begin(t.Context(), r, crowded)
		for _, test := range []struct {
			result <-chan result
			after  time.Duration
			want   time.Duration
		}{
			{polls, 3 * time.Second, 12 * time.Second},
			{waits, 3 * time.Second, 11 * time.Second},
			{tooMany, 0, 14 * time.Second},
		} {
			got := <-test.result
			if got.record.State != idem.InProgress || got.after != test.after || got.record.RetryAfter != test.want {
				t.Errorf("got %v after %v, %v of the lease left, want in progress after %v, %v left",
					got.record.State, got.after, got.record.RetryAfter, test.after, test.want)
			}
		}
		mustSettle(t, e, freed)
	})
}

// When the lease ends just before the wait does, nothing of it is left.
func TestLeaseEndsWhilePolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		heldElsewhere(t, s)
		got := <-begin(t.Context(), newRunner(s, idem.Options{Wait: 15*time.Second + 1}), request)
		if got.record.State != idem.InProgress || got.record.RetryAfter != 0 {
			t.Errorf("got %v, %v of the lease left, want in progress, 0 left", got.record.State, got.record.RetryAfter)
		}
	})
}

// A claim in a shared store belongs to one process, also if its lease has no end.
func TestNoWait(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		endless := idem.Options{Lease: math.MaxInt64, Retention: math.MaxInt64, Wait: noWait}
		r, elsewhere := newRunner(s, endless), newRunner(s, endless)
		e := mustRun(t, r, request)
		for _, r := range []*idem.Runner{r, elsewhere} {
			got := <-begin(t.Context(), r, request)
			if got.record.State != idem.InProgress || got.after != 0 {
				t.Errorf("got %v after %v, want in progress at once", got.record.State, got.after)
			}
			if got.record.Fingerprint != request.Fingerprint {
				t.Errorf("got fingerprint %x, want the first request's", got.record.Fingerprint)
			}
			mustRefuse(t, r, other, idem.ErrMismatch)
		}
		mustSettle(t, e, answer("created"))
		mustReplay(t, r, request, "created")
		mustReplay(t, elsewhere, request, "created")
	})
}

// Without Options.Wait, a repeat that comes before the store has answered
// the first caller must still get what the store knows: a finished request is
// not in progress.
func TestNoWaitForReplay(t *testing.T) {
	faulty(t, idem.Options{Wait: noWait}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		mustSettle(t, mustRun(t, r, request), answer("created"))
		f.Next(idemtest.Begin, idemtest.StallAnswer)
		first, second := begin(t.Context(), r, request), begin(t.Context(), r, request)
		synctest.Wait()
		f.Release()
		for _, c := range []<-chan result{first, second} {
			if got := <-c; got.record.State != idem.Done {
				t.Errorf("got %v, error %v, want done", got.record.State, got.err)
			}
		}
		if n := f.Calls(idemtest.Begin); n != 2 {
			t.Errorf("the store was asked %d times, want 2: to claim, and once for both replays", n)
		}
	})
}

func TestWaiterWhoLeaves(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		holder := newRunner(s, idem.Options{})
		e := mustRun(t, holder, request)
		// One waits in the process of the holder, one in another, where it
		// asks the store for those who wait with it.
		for _, r := range []*idem.Runner{holder, newRunner(s, idem.Options{})} {
			// Another request is told so at once, and does not wait.
			if got := <-begin(t.Context(), r, other); got.err != idem.ErrMismatch || got.after != 0 {
				t.Errorf("another request: got error %v after %v, want ErrMismatch at once", got.err, got.after)
			}
			ctx, cancel := context.WithCancel(t.Context())
			leaves := begin(ctx, r, request)
			synctest.Wait() // so that it is the one who polls
			stays := begin(t.Context(), r, request)
			time.Sleep(time.Second)
			cancel()
			if got := <-leaves; got.err != context.Canceled || got.after != time.Second {
				t.Errorf("the one who leaves: got error %v after %v, want context.Canceled after 1s", got.err, got.after)
			}
			if got := <-stays; got.record.State != idem.InProgress || got.after != 10*time.Second {
				t.Errorf("the one who stays: got %v, error %v after %v, want in progress after 10s",
					got.record.State, got.err, got.after)
			}
			if n := r.Stats().Waiters; n != 0 {
				t.Errorf("got %d waiters, want 0", n)
			}
		}
		mustSettle(t, e, answer("created"))
	})
}

func TestDraining(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		draining := make(chan struct{})
		holder := newRunner(s, idem.Options{Draining: draining})
		elsewhere := newRunner(s, idem.Options{Draining: draining})
		e := mustRun(t, holder, request)
		var waiting []<-chan result
		for _, r := range []*idem.Runner{holder, elsewhere} {
			for range 3 {
				waiting = append(waiting, begin(t.Context(), r, request))
			}
		}
		time.Sleep(time.Second)
		close(draining)
		for _, c := range waiting {
			if got := <-c; got.record.State != idem.InProgress || got.err != nil || got.after != time.Second {
				t.Errorf("got %v, error %v after %v, want in progress after 1s", got.record.State, got.err, got.after)
			}
		}
		if got := <-begin(t.Context(), holder, request); got.record.State != idem.InProgress || got.after != 0 {
			t.Errorf("while draining: got %v after %v, want in progress at once", got.record.State, got.after)
		}
		// What runs goes on, and what needs no waiting is served.
		mustSettle(t, e, answer("created"))
		mustReplay(t, elsewhere, request, "created")
		mustSettle(t, mustRun(t, holder, numberedRequest(1)), answer("created"))
	})
}

func TestPolling(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		f := idemtest.NewFaulty(s)
		e := mustRun(t, newRunner(s, idem.Options{}), request)
		r := newRunner(f, idem.Options{Wait: 2 * time.Minute})
		var waiting []<-chan result
		for range 10 {
			waiting = append(waiting, begin(t.Context(), r, request))
		}
		// At once, and after about 25, 50 and 100 ms.
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if n := f.Calls(idemtest.Begin); n != 4 {
			t.Errorf("the store was asked %d times in 250ms, want 4", n)
		}
		if s := r.Stats(); s.Executions != 0 || s.Waiters != 10 {
			t.Errorf("got %d executions and %d waiters, want 0 and 10", s.Executions, s.Waiters)
		}
		time.Sleep(59750 * time.Millisecond)
		// 25 ms doubling to 500 ms is 5 calls in the first half second and two
		// a second then; jitter takes a quarter, or adds it.
		if n := f.Calls(idemtest.Begin); n < 105 || n > 145 {
			t.Errorf("the store was asked %d times in a minute, want about 124", n)
		}
		mustSettle(t, e, answer("created"))
		for _, c := range waiting {
			got := <-c
			if got.record.State != idem.Done || string(got.record.Payload) != "created" {
				t.Errorf("got %v, error %v, want the answer", got.record.State, got.err)
			}
			if got.after > time.Minute+650*time.Millisecond {
				t.Errorf("woken after %v, want within 650ms after a minute", got.after)
			}
		}
		mustBeIdle(t, r)
	})
}

// waiting is called once for each caller that waits, however often it asks the
// store or looks at the first request again.
func TestWaitingIsCalledOnce(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		holder, elsewhere := newRunner(s, idem.Options{}), newRunner(s, idem.Options{})
		e := mustRun(t, holder, request)
		var calls atomic.Int32
		var waiting sync.WaitGroup
		for range 2 {
			for _, r := range []*idem.Runner{holder, elsewhere} {
				waiting.Go(func() { r.Begin(t.Context(), request, func() { calls.Add(1) }) })
			}
		}
		time.Sleep(5 * time.Second)
		mustSettle(t, e, answer("created"))
		waiting.Wait()
		if n := calls.Load(); n != 4 {
			t.Errorf("waiting was called %d times for 4 callers", n)
		}
	})
}

// A panic in waiting goes to the caller and leaves nothing behind: no
// waiter on the account, and nobody who waits for the one who panicked.
func TestWaitingPanics(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		holder, elsewhere := newRunner(s, idem.Options{}), newRunner(s, idem.Options{})
		e := mustRun(t, holder, request)
		for name, r := range map[string]*idem.Runner{"where it runs": holder, "elsewhere": elsewhere} {
			func() {
				defer func() {
					if got := recover(); got != name {
						t.Errorf("%s: got panic %v, want the caller's own", name, got)
					}
				}()
				r.Begin(t.Context(), request, func() { panic(name) })
			}()
			if n := r.Stats().Waiters; n != 0 {
				t.Errorf("%s: got %d waiters, want 0", name, n)
			}
		}
		mustBeIdle(t, elsewhere)
		waiting := begin(t.Context(), elsewhere, request)
		time.Sleep(time.Second)
		mustSettle(t, e, answer("created"))
		if got := <-waiting; got.record.State != idem.Done {
			t.Errorf("the next one: got %v, error %v, want the answer", got.record.State, got.err)
		}
	})
}
