package keystore_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

const again = "keystore: the store answers again"

func refuseLookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errors.New("connection refused")
}

// mustHaveLine wants the line so many times, the last time with the attribute.
func mustHaveLine(t testing.TB, what string, log *logged, times int, attribute string) {
	t.Helper()
	synctest.Wait()
	if n := strings.Count(log.String(), again); n != times || !strings.Contains(log.String(), attribute) {
		t.Errorf("%s: got the log %q, want %q %d times, with %q", what, log, again, times, attribute)
	}
}

// An outage is five lookups in a row without an answer. Its end is one line.
func TestStoreAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(), new(logged)
		c := keystore.NewCached(f, keystore.CacheOptions{Logger: log.logger()})
		look := func(times int) {
			for range times {
				c.Lookup(t.Context(), keystore.DigestOf(time.Now().String()))
				time.Sleep(time.Second)
			}
		}
		f.lookup.set(refuseLookup)
		look(4)
		f.lookup.set(f.Store.Lookup)
		look(1)
		mustHaveLine(t, "after four failures", log, 0, "")
		f.lookup.set(refuseLookup)
		look(7)
		f.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, keystore.ErrCorrupt })
		look(1)
		mustHaveLine(t, "a row that does not fit", log, 0, "")
		f.lookup.set(f.Store.Lookup)
		look(3)
		mustHaveLine(t, "after seven failures", log, 1, "after=8s")
	})
}

// A lookup that began before the store's last answer and fails after it begins
// no outage, and one that began before an outage does not end it.
func TestLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := newFake(), new(logged)
		c := keystore.NewCached(f, keystore.CacheOptions{Timeout: time.Hour, Logger: log.logger()})
		results := make(chan error)
		for n := range 11 {
			f.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, <-results })
			go c.Lookup(t.Context(), unknown(n))
		}
		synctest.Wait()
		look := func(at time.Duration, lookup func(context.Context, keystore.Digest) (*keystore.Key, error), n int) {
			time.Sleep(at)
			f.lookup.set(lookup)
			c.Lookup(t.Context(), unknown(n))
		}
		late := func(err error, n int) {
			for range n {
				results <- err
			}
			synctest.Wait()
		}
		look(time.Second, f.Store.Lookup, 20)
		if late(errors.New("connection reset"), 10); c.Stats().Down {
			t.Error("ten lookups that began before an answer are an outage")
		}
		for n := range 5 {
			look(time.Second, refuseLookup, 30+n)
		}
		if late(keystore.ErrNotFound, 1); !c.Stats().Down {
			t.Error("a lookup that began before an outage ends it")
		}
		mustHaveLine(t, "during the outage", log, 0, "")
		look(time.Second/2, f.Store.Lookup, 40)
		mustHaveLine(t, "after it", log, 1, "after=4.5s")
	})
}

// Two results at one moment are told in the order of their times.
func TestOutageReadsTheClockUnderItsLock(t *testing.T) {
	var o keystore.Outage
	for at := range 7 {
		o.Told(errors.New("connection refused"), 0, func() time.Duration {
			if !o.Locked() {
				t.Errorf("result %d: the clock is read before the lock is held", at)
			}
			return time.Duration(at)
		}, slog.New(slog.DiscardHandler))
	}
}

// Lookups that find no place, and records that do not fit, say nothing of
// whether the store answers. The former are no questions to it.
func TestNoSignOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := newFake(), make(chan struct{})
		c := keystore.NewCached(f, keystore.CacheOptions{Logger: slog.New(slog.DiscardHandler)})
		var told atomic.Int32
		c.ObserveCalls(func(context.Context, string, time.Duration, bool) { told.Add(1) })
		f.lookup.set(hang(f, release))
		var lookups sync.WaitGroup
		for n := range 64 {
			lookups.Go(func() { c.Lookup(t.Context(), unknown(n)) })
		}
		synctest.Wait()
		notDown := func(what string) {
			if t.Helper(); c.Stats().Down {
				t.Errorf("%s: the store is down", what)
			}
		}
		for range 5 {
			want(t, c, unknown(64), keystore.ErrOverloaded, "beyond 64 questions")
		}
		notDown("after five lookups without a place")
		close(release)
		lookups.Wait()
		if n := told.Load(); n != 64 {
			t.Errorf("the observer was told of %d questions, want 64", n)
		}
		if s := c.Stats(); s.Asked != 69 || s.Failed != 5 {
			t.Errorf("got %d questions, %d without an answer, want 69 and the 5 without a place", s.Asked, s.Failed)
		}
		f.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, nil })
		for range 5 {
			want(t, c, unknown(64), keystore.ErrCorrupt, "neither a key nor an error")
		}
		notDown("after five records that do not fit")
	})
}

// The end of an outage is noticed when there are no requests, with Run and
// without, until Run ends or the Cached is not used any more.
func TestStoreAnswersAgainWithoutRequests(t *testing.T) {
	for name, runs := range map[string]bool{"with Run": true, "without": false} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testProbes(t, runs) }) })
	}
}

func testProbes(t *testing.T, runs bool) {
	f, log := newFeedFake(), new(logged)
	away := func(c *keystore.Cached) {
		t.Helper()
		f.lookup.set(refuseLookup)
		for range 5 {
			if c.Stats().Down {
				t.Error("before the fifth failure in a row the store is down")
			}
			c.Lookup(t.Context(), keystore.DigestOf("token"))
		}
		if !c.Stats().Down {
			t.Error("after five failures in a row the store is not down")
		}
		f.calls.Store(0)
	}
	o := keystore.CacheOptions{Logger: log.logger()}
	c := keystore.NewCached(f, o)
	stop := func() {}
	if runs {
		stop = run(t, c)
	}
	away(c)
	time.Sleep(20 * time.Second)
	if n := f.calls.Load(); n < 15 || n > 20 {
		t.Errorf("the store was asked %d times in 20 s, want about one a second", n)
	}
	mustHaveLine(t, "while it fails", log, 0, "")
	f.lookup.set(f.Store.Lookup)
	time.Sleep(1500 * time.Millisecond)
	mustHaveLine(t, "when it answers", log, 1, "after=2")
	if c.Stats().Down {
		t.Error("the store answers and is down")
	}
	f.calls.Store(0)
	time.Sleep(time.Minute)
	f.wantCalls(t, 0, "after the outage")

	away(c)
	if stop(); runs {
		time.Sleep(time.Minute)
		f.wantCalls(t, 0, "after Run")
		stop = run(t, c)
		time.Sleep(5 * time.Second)
		if f.calls.Load() == 0 {
			t.Error("when Run begins again the store is not asked")
		}
		stop()
	}

	away(keystore.NewCached(f, o))
	runtime.GC()
	time.Sleep(time.Minute)
	if n := f.calls.Load(); runs && n > 1 { // without Run the first Cached still asks
		t.Errorf("of a Cached that is not used the store was asked %d times", n)
	}
	runtime.KeepAlive(c)
}

// The answer that ended one outage is not taken for the end of the next, which
// begins before it is forgotten.
func TestProbesOfASecondOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := keystore.NewCached(f, keystore.CacheOptions{NegativeTTL: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		for outage := range 2 {
			f.lookup.set(refuseLookup)
			for range 5 {
				c.Lookup(t.Context(), keystore.DigestOf("token"))
			}
			f.lookup.set(f.Store.Lookup)
			if !c.Stats().Down {
				t.Fatalf("outage %d: the store is not down", outage)
			}
			if time.Sleep(1500 * time.Millisecond); c.Stats().Down {
				t.Errorf("outage %d: the store answers and is down", outage)
			}
		}
	})
}
