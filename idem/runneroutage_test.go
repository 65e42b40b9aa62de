package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// A request waits for a store that does not answer, until five have waited in
// vain. Then requests fail at once, except one each second. The first answer
// ends that.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := idemtest.NewFaulty(&idem.Memory{})
		r, log := logged(store, idem.Options{Wait: noWait})
		n := 0
		must := func(what string, fails bool, after time.Duration) error {
			t.Helper()
			n++
			got := <-begin(t.Context(), r, numberedRequest(n))
			if (got.err != nil) != fails || got.after != after {
				t.Errorf("%s: got error %v after %v, want one %t after %v", what, got.err, got.after, fails, after)
			}
			if got.e != nil {
				mustSettle(t, got.e, freed)
			}
			return got.err
		}
		store.Always(idemtest.Begin, idemtest.Hang)
		for range 5 {
			_ = must("one of the first five", true, 2*time.Second)
		}
		asked := store.Calls(idemtest.Begin)
		for range 100 {
			if err := must("a later one", true, 0); !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				t.Fatalf("got error %v, want one that names the cause", err)
			}
		}
		if calls := store.Calls(idemtest.Begin); calls != asked {
			t.Errorf("the store was asked %d times more", calls-asked)
		}
		time.Sleep(time.Second)
		begin(t.Context(), r, request) // the probe
		synctest.Wait()
		_ = must("one beside the probe", true, 0)
		time.Sleep(2 * time.Second)
		store.Always(idemtest.Begin, idemtest.None)
		time.Sleep(time.Second)
		for range 10 {
			_ = must("one when the store is back", false, 0)
		}
		synctest.Wait() // for who logs it
		if text := "the reply store answers again"; strings.Count(log.String(), text) != 1 ||
			!strings.Contains(log.String(), "after=12s") {
			t.Errorf("the log does not say %q once, after=12s:\n%s", text, log.String())
		}
		// The count begins again.
		store.Always(idemtest.Begin, idemtest.Hang)
		for range 5 {
			_ = must("one of the second outage", true, 2*time.Second)
		}
		_ = must("the sixth of the second outage", true, 0)
		store.Release()
	})
}

// A claim that began before the store's last answer and fails after it begins no
// outage, and one that began before an outage does not end it.
func TestOutageOfLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := idemtest.NewFaulty(newMemory())
		results := make(chan error)
		store := &stub{Store: faulty, begin: func(context.Context, idem.Claim) (idem.Record, error) {
			return idem.Record{}, <-results
		}}
		r := newRunner(store, idem.Options{Timeout: time.Hour})
		for n := range 11 {
			go r.Begin(t.Context(), numberedRequest(n), nil)
		}
		synctest.Wait()
		store.begin = nil
		late := func(err error, n int) {
			for range n {
				results <- err
			}
			synctest.Wait()
		}
		time.Sleep(time.Second)
		r.Begin(t.Context(), numberedRequest(20), nil)
		if late(idemtest.ErrInjected, 10); r.Stats().Down {
			t.Error("ten claims that began before an answer are an outage")
		}
		faulty.Always(idemtest.Begin, idemtest.Fail)
		time.Sleep(time.Second)
		for n := range 5 {
			r.Begin(t.Context(), numberedRequest(30+n), nil)
		}
		if late(idem.ErrFull, 1); !r.Stats().Down {
			t.Error("a claim that began before an outage ends it")
		}
		faulty.Always(idemtest.Begin, idemtest.None)
		if time.Sleep(1500 * time.Millisecond); r.Stats().Down {
			t.Error("the store answers and is down")
		}
	})
}

// A store that is away is asked about once a second without requests, until it
// answers, the Runner drains or is not used any more.
func TestOutageProbes(t *testing.T) {
	for name, joined := range map[string]bool{"with leases": false, "joined": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testOutageProbes(t, joined) }) })
	}
}

func testOutageProbes(t *testing.T, joined bool) {
	memory := newMemory()
	faulty, draining := idemtest.NewFaulty(memory), make(chan struct{})
	o := idem.Options{Join: joined, Draining: draining}
	store := &stub{Store: faulty, join: func(context.Context, idem.Claim) (idem.Record, idem.Transaction, error) {
		return idem.Record{}, nil, idemtest.ErrInjected
	}}
	r, log := logged(store, o)
	away := func(r *idem.Runner) {
		t.Helper()
		faulty.Always(idemtest.Begin, idemtest.Fail)
		for i := range 5 {
			if r.Stats().Down {
				t.Errorf("after %d failures the store is down", i)
			}
			r.Begin(t.Context(), numberedRequest(i), nil)
		}
		if !r.Stats().Down {
			t.Error("after five failures the store is not down")
		}
	}
	probes := func(d time.Duration, least, most int) {
		t.Helper()
		mustCall(t, faulty, idemtest.Begin, d, least, most)
	}
	away(r)
	probes(20*time.Second, 15, 20)
	if n := r.Stats().Unsaved; n != 0 {
		t.Errorf("the probes left %d tasks", n)
	}
	faulty.Always(idemtest.Begin, idemtest.None)
	probes(1500*time.Millisecond, 1, 2)
	text, down := log.String(), r.Stats().Down
	if down || strings.Count(text, "answers again") != 1 || !strings.Contains(text, "after=2") {
		t.Errorf("the store is back: got down %t and the log %q, want one line with after=2…s", down, text)
	}
	if n := memory.Stats().Keys; n != 0 {
		t.Errorf("the probes left %d keys", n)
	}
	probes(time.Minute, 0, 0)
	away(r)
	close(draining)
	probes(time.Minute, 0, 0)

	// Without Draining it ends with the Runner.
	o.Draining = nil
	away(newRunner(store, o))
	probes(5*time.Second, 1, 5)
	runtime.GC()
	probes(time.Minute, 0, 1)
}

// A Join that fails counts like any other call, unless its caller has left.
func TestOutageOfJoins(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			var leave func()
			r := newRunner(&stub{join: func(context.Context, idem.Claim) (idem.Record, idem.Transaction, error) {
				if calls++; leaves {
					leave()
				}
				return idem.Record{}, nil, idemtest.ErrInjected
			}, Store: newMemory()}, idem.Options{Join: true})
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				leave = cancel
				if _, _, err := r.Begin(ctx, request, nil); err == nil {
					t.Error("got no error")
				}
				cancel()
			}
			if want := map[bool]int{false: 5, true: 10}[leaves]; calls != want {
				t.Errorf("the caller leaves %t: the store was asked %d times, want %d", leaves, calls, want)
			}
		})
	}
}

// A Join that waits for its turn ends when others have failed too often, and
// does not count as one more that failed.
func TestOutageEndsJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiner()
		r := newRunner(j, idem.Options{Join: true})
		j.onJoin = func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("waiting for a turn: %w", context.Cause(ctx))
		}
		var waiting []<-chan result
		for i := range 20 {
			waiting = append(waiting, begin(t.Context(), r, numberedRequest(i)))
		}
		synctest.Wait()
		j.onJoin = func(context.Context) error { time.Sleep(time.Second); return idemtest.ErrInjected }
		for i := range 5 {
			if got := <-begin(t.Context(), r, numberedRequest(100+i)); !errors.Is(got.err, idemtest.ErrInjected) {
				t.Errorf("got error %v, want the store's", got.err)
			}
		}
		for _, c := range waiting {
			if got := <-c; got.after != 5*time.Second || errors.Is(got.err, idem.ErrNoTurn) ||
				errors.Is(got.err, context.Canceled) || !strings.Contains(got.err.Error(), "failed several times in a row") {
				t.Errorf("got error %v after %v, want that the store failed, after 5s", got.err, got.after)
			}
		}
		if _, _, err := r.Begin(t.Context(), numberedRequest(199), nil); err == nil ||
			!strings.Contains(err.Error(), "the last time: "+idemtest.ErrInjected.Error()) {
			t.Errorf("the next request: got error %v, want the store's last one in it", err)
		}
		time.Sleep(time.Second)
		j.onJoin = nil
		mustSettle(t, mustRun(t, r, numberedRequest(200)), freed)
		mustBeIdle(t, r)
	})
}
