package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestFailoverBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := &ratelimit.Policy{Name: "open", Limit: ratelimit.MustParse("2-H"), Fallback: ratelimit.Open}
		calls := func(n int) (reached int64) {
			before := store.calls.Load()
			for range n {
				if _, err := f.Take(t.Context(), []ratelimit.Charge{{Policy: p, Bucket: "org", Cost: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			return store.calls.Load() - before
		}

		// Failures that are not in a row do not open it.
		for range 10 {
			store.fail(refuse)
			calls(4)
			store.mend()
			calls(1)
		}
		if isDown(f) || log.Len() > 0 {
			t.Errorf("open after 4 failures in a row; log %q", log.String())
		}

		store.fail(refuse)
		if n := calls(1000); n != 5 || !isDown(f) {
			t.Errorf("%d calls of a store that fails, want 5; down %v", n, isDown(f))
		}
		for range 3 {
			time.Sleep(999 * time.Millisecond)
			if n := calls(10); n != 0 {
				t.Errorf("%d calls before the cooldown was over, want none", n)
			}
			time.Sleep(time.Millisecond)
			if n := calls(10); n != 1 {
				t.Errorf("%d calls after the cooldown, want the probe", n)
			}
		}

		// However many callers come when the cooldown is over, one is the
		// probe.
		gate := make(chan struct{})
		store.fail(func(context.Context) error { <-gate; return nil })
		time.Sleep(time.Second)
		before := store.calls.Load()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { takeOne(t, f, p, "org") })
		}
		synctest.Wait()
		if n := store.calls.Load() - before; n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
		close(gate)
		wg.Wait()
		if isDown(f) {
			t.Error("open after a probe that succeeded")
		}
		if n := calls(10); n != 10 {
			t.Errorf("%d of 10 calls reached a store that is back", n)
		}

		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") ||
			!strings.Contains(lines[0], "connection refused") ||
			!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "after=4") {
			t.Errorf("the log is %q, want a line when it opened and one when it closed", lines)
		}
	})
}

// Calls from before an outage that fail after it begin no other one.
func TestFailoverLateFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, gate := newFaulty(), make(chan struct{})
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Timeout: time.Hour, Logger: discard})
		p := mode("open", ratelimit.Open)
		store.fail(func(ctx context.Context) error { <-gate; return refuse(ctx) })
		for range 10 {
			go takeOne(t, f, p, "org")
		}
		synctest.Wait()
		store.fail(refuse)
		for range 5 {
			takeOne(t, f, p, "org")
		}
		store.mend()
		time.Sleep(2 * time.Second)
		if takeOne(t, f, p, "org"); isDown(f) {
			t.Fatal("open after a probe that succeeded")
		}
		close(gate)
		if synctest.Wait(); isDown(f) {
			t.Error("ten calls from before the outage are another one")
		}
	})
}

// Calls that have returned do not count against the most that may run.
func TestFailoverKeepsCalling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
		p := policy("live", "1000000-S")
		for range 3000 {
			takeOne(t, f, p, "org")
		}
		if n := store.calls.Load(); n != 3000 || fallbacks(f) != 0 {
			t.Errorf("%d of 3000 calls reached the store, %d did not", n, fallbacks(f))
		}
	})
}

// A store that never returns holds a bounded number of goroutines: after a
// crowd that arrives before the breaker opens, and after a day of probes.
func TestFailoverGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := failing(hang(t))
		p := mode("open", ratelimit.Open)
		var wg sync.WaitGroup
		for range 5000 {
			wg.Go(func() { takeOne(t, f, p, "org") })
		}
		wg.Wait()
		synctest.Wait()
		crowd := goroutines()
		if calls := store.calls.Load(); crowd != 1024 || calls != 1024 {
			t.Errorf("%d goroutines hang in %d calls after 5000 callers at once, want 1024 of both", crowd, calls)
		}
		for range 24 * 60 * 60 {
			time.Sleep(time.Second)
			takeOne(t, f, p, "org")
		}
		synctest.Wait()
		if more := goroutines() - crowd; more < 5 || more > 20 {
			t.Errorf("%d probes hang after a day, want a dozen or so", more)
		}
	})
}

// goroutines counts those that package ratelimit has started in the bubble of
// the test. runtime.NumGoroutine would also count what earlier tests leave to
// the scheduler.
func goroutines() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, "synctest bubble") &&
			strings.Contains(stack, "created by github.com/sallyport-go/sallyport/ratelimit.") {
			n++
		}
	}
	return n
}

// Each probe that hangs doubles the time until the next one, sixteen times.
func TestFailoverDoublesTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := failing(refuse)
		p := mode("open", ratelimit.Open)
		for range 5 {
			takeOne(t, f, p, "org")
		}
		store.fail(hang(t))
		for hung := range 20 {
			before := store.calls.Load()
			time.Sleep(time.Second<<min(hung, 16) - 1)
			takeOne(t, f, p, "org")
			early := store.calls.Load() - before
			time.Sleep(time.Nanosecond)
			takeOne(t, f, p, "org")
			if late := store.calls.Load() - before; early != 0 || late != 1 {
				t.Errorf("while %d probes hang: %d calls before the cooldown is over and %d then, want none and the probe",
					hung, early, late)
			}
		}
	})
}

// When hung probes have returned, the next one starts after the usual cooldown.
func TestFailoverRecoversFromHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := failing(func(context.Context) error { time.Sleep(10 * time.Second); return errRefused })
		p := mode("open", ratelimit.Open)
		for range 100 {
			takeOne(t, f, p, "org")
			time.Sleep(time.Second)
		}
		store.mend()
		time.Sleep(20 * time.Second)
		takeOne(t, f, p, "org")
		if isDown(f) {
			t.Error("still open 20 s after the store recovered")
		}
	})
}

// While a client connects for the first time, calls that time out do not open
// the breaker, so the store decides as soon as it can. Errors do, and so does a
// store that does not answer within the cooldown.
func TestFailoverFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		options := ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		p := mode("open", ratelimit.Open)
		crowd := func(f *ratelimit.Failover) {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { takeOne(t, f, p, "org") })
			}
			wg.Wait()
		}

		store := newFaulty()
		connected := make(chan struct{})
		store.fail(func(context.Context) error { <-connected; return nil })
		f := ratelimit.NewFailover(store, options)
		for range 19 { // 950 ms
			crowd(f)
		}
		if isDown(f) || fallbacks(f) != 19*20 {
			t.Errorf("after %d fallbacks during the first connection: down %v, want 380 and up", fallbacks(f), isDown(f))
		}
		close(connected)
		if crowd(f); fallbacks(f) != 19*20 {
			t.Errorf("%d fallbacks when the client is connected", fallbacks(f)-19*20)
		}
		// From the first answer on, calls that time out are failures.
		store.fail(hang(t))
		if crowd(f); !isDown(f) {
			t.Error("up after calls that time out of a store that had answered")
		}
		if line := log.String(); !strings.Contains(line, "raise FailoverOptions.Timeout") {
			t.Errorf("the log is %q, want it to say what to do if the store is only slow", line)
		}

		// A client that is refused connections tries again until its time
		// ends, and says only now and then why.
		log.Reset()
		store = newFaulty()
		f = ratelimit.NewFailover(store, options)
		crowd(f)
		store.fail(func(context.Context) error { return errors.New("connection refused") })
		takeOne(t, f, p, "org")
		store.fail(hang(t))
		if crowd(f); !isDown(f) {
			t.Error("up after errors and calls that time out")
		}
		if line := log.String(); !strings.Contains(line, "connection refused") || strings.Contains(line, "raise") {
			t.Errorf("the log is %q, want the store's own error and no advice", line)
		}

		store = newFaulty()
		store.fail(hang(t))
		f = ratelimit.NewFailover(store, options)
		for range 20 { // a second
			takeOne(t, f, p, "org")
		}
		if isDown(f) {
			t.Error("down within the first second")
		}
		for range 4 { // the last call of the second was the first failure
			takeOne(t, f, p, "org")
		}
		if !isDown(f) {
			t.Error("up after more than a second without an answer")
		}

		store = newFaulty()
		store.fail(refuse)
		f = ratelimit.NewFailover(store, options)
		if crowd(f); !isDown(f) {
			t.Error("up after errors at once")
		}
	})
}
