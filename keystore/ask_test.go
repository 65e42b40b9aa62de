package keystore_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// A key is used for TTL though the store is down, whose errors are not remembered.
func TestStoreDownAfterLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{TTL: time.Minute})
		d := store.add(t)
		want(t, cached, d, nil, "a key")
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errStoreDown })
		time.Sleep(time.Minute - time.Nanosecond)
		want(t, cached, d, nil, "the store is down and TTL has not passed")
		time.Sleep(time.Nanosecond)
		store.wantCalls(t, 1, "within TTL")
		for range 3 {
			want(t, cached, d, errStoreDown, "the store is down and TTL has passed")
		}
		store.wantCalls(t, 3, "three lookups while the store is down")
		store.lookup.set(store.Store.Lookup)
		want(t, cached, d, nil, "the store is back")
	})
}

// hang never returns, whatever its context says, until release is closed.
func hang(store *fake, release <-chan struct{}) func(context.Context, keystore.Digest) (*keystore.Key, error) {
	return func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		k, err := store.Store.Lookup(ctx, d)
		<-release
		return k, err
	}
}

func TestStoreThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{Timeout: 3 * time.Second, TTL: time.Hour})
		late := store.add(t)
		release := make(chan struct{})
		store.lookup.set(hang(store, release))

		start := time.Now()
		var callers sync.WaitGroup
		callers.Go(func() { want(t, cached, late, context.DeadlineExceeded, "a store that hangs") })
		for n := range 63 {
			callers.Go(func() { want(t, cached, unknown(n), context.DeadlineExceeded, "a store that hangs") })
		}
		synctest.Wait()
		time.Sleep(time.Second)
		want(t, cached, unknown(63), keystore.ErrOverloaded, "the 65th question")
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("the 65th question waited %v, want it refused at once", waited-time.Second)
		}
		// Whoever joins a question waits for what is left of its time.
		want(t, cached, unknown(0), context.DeadlineExceeded, "a caller that joins a question")
		callers.Wait()
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("callers waited %v, want Timeout", waited)
		}

		// The questions are still open and nobody waits for them any more.
		time.Sleep(time.Hour)
		want(t, cached, unknown(100), keystore.ErrOverloaded, "a question while 64 are stuck")
		store.wantCalls(t, 64, "a store that hangs")
		close(release)
		synctest.Wait()
		store.lookup.set(store.Store.Lookup)
		if k, ok := cached.Peek(late); ok {
			t.Errorf("an answer that came an hour late was remembered: %v", k)
		}
		want(t, cached, late, nil, "the store is back")
		store.wantCalls(t, 1, "the store is back")
	})
}

// An answer that arrives at the very moment its time is over is not used,
// whichever is noticed first.
func TestAnswerAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{Timeout: time.Second})
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			time.Sleep(time.Second)
			return nil, keystore.ErrNotFound
		})
		for n := range 300 {
			want(t, cached, unknown(n), context.DeadlineExceeded, "an answer after exactly Timeout")
		}
		store.lookup.set(store.Store.Lookup)
		time.Sleep(5 * time.Second) // until the probes end
	})
}

// All who wait for one question are answered although the store hangs at first:
// after half of Timeout it is asked again, three times at most, while less than
// half of the places are taken.
func TestQuestionIsPutAgain(t *testing.T) {
	for _, row := range []struct {
		others, hang int // questions that hang before
		asked        int64
		after        time.Duration
		err          error
	}{
		{0, 1, 2, 2500 * time.Millisecond, nil},
		{0, 3, 4, 3500 * time.Millisecond, nil},
		{0, 9, 4, 4 * time.Second, context.DeadlineExceeded},
		{31, 1, 1, 4 * time.Second, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, cached := newCached(keystore.CacheOptions{Timeout: 4 * time.Second})
			d := store.add(t)
			release := make(chan struct{})
			store.lookup.set(hang(store, release))
			for n := range row.others {
				go cached.Lookup(t.Context(), unknown(n))
			}
			synctest.Wait()
			time.Sleep(4 * time.Second)
			var asked atomic.Int64
			store.lookup.set(func(ctx context.Context, of keystore.Digest) (*keystore.Key, error) {
				if of == d && asked.Add(1) <= int64(row.hang) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return store.Store.Lookup(ctx, of)
			})
			var callers sync.WaitGroup
			start := time.Now()
			for range 30 {
				callers.Go(func() { want(t, cached, d, row.err, "a store that hangs at first") })
			}
			callers.Wait()
			if waited := time.Since(start); waited != row.after {
				t.Errorf("%+v: callers waited %v", row, waited)
			}
			if n := asked.Load(); n != row.asked {
				t.Errorf("%+v: the store was asked %d times", row, n)
			}
			close(release)
		})
	}
}

// What goes wrong in the goroutine of a question ends neither the process nor
// the question, and gives its slot back.
func TestStoreThatPanics(t *testing.T) {
	var log logged
	store, cached := newCached(keystore.CacheOptions{Logger: log.logger()})
	d := store.add(t)
	for name, c := range map[string]struct {
		fail func()
		says string
	}{
		"panic":  {func() { panic("index out of range") }, "the store panicked: index out of range"},
		"Goexit": {runtime.Goexit, "ended the goroutine"},
	} {
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			c.fail()
			return nil, nil
		})
		for range 65 { // one more than there are places
			k, err := cached.Lookup(t.Context(), d)
			if err == nil || errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrOverloaded) || k != nil {
				t.Errorf("Lookup of a store that ends with %s returned %v, %v, want an error that says nothing about "+
					"the key", name, k, err)
			} else if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want an error that says %q", name, err, c.says)
			}
		}
	}
	if out := log.String(); strings.Count(out, "\n") != 65 || !strings.Contains(out, "index out of range") ||
		!strings.Contains(out, "ask_test.go") {
		t.Errorf("65 panics logged %q, want a line each with the stack", out)
	}
	store.lookup.set(store.Store.Lookup)
	want(t, cached, d, nil, "the store is well again")
}

// A flood of strange tokens takes every place, and keys that were live before
// are loaded again all the same.
func TestFloodStopsNoLiveKey(t *testing.T) {
	for name, lapse := range map[string]func(t *testing.T, c *keystore.Cached, d keystore.Digest){
		"TTL":    func(*testing.T, *keystore.Cached, keystore.Digest) { time.Sleep(30 * time.Second) },
		"Forget": func(_ *testing.T, c *keystore.Cached, d keystore.Digest) { c.Invalidate(d) },
		"feed":   func(t *testing.T, c *keystore.Cached, _ keystore.Digest) { run(t, c)() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cached := newCached(keystore.CacheOptions{})
				d := store.add(t)
				want(t, cached, d, nil, "a key")
				lapse(t, cached, d)
				store.lookup.set(func(ctx context.Context, asked keystore.Digest) (*keystore.Key, error) {
					if asked != d {
						time.Sleep(20 * time.Millisecond)
					}
					return store.Store.Lookup(ctx, asked)
				})
				var strangers sync.WaitGroup
				for n := range 64 {
					strangers.Go(func() { want(t, cached, unknown(n), keystore.ErrNotFound, "a strange token") })
				}
				synctest.Wait()
				want(t, cached, unknown(100), keystore.ErrOverloaded, "one strange token too many")
				store.calls.Store(0)
				want(t, cached, d, nil, "a key that was live before")
				store.wantCalls(t, 1, "a key that was live before")
				strangers.Wait()
			})
		})
	}
}

// Keys that were live before wait for a place, and no longer than Timeout.
func TestLiveKeysWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{Timeout: 100 * time.Millisecond})
		keys := make([]keystore.Digest, 320)
		for i := range keys {
			keys[i] = store.add(t)
			want(t, cached, keys[i], nil, "a key")
		}
		time.Sleep(30 * time.Second)
		var open, most atomic.Int64
		takes := 10 * time.Millisecond
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			now := open.Add(1)
			defer open.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			time.Sleep(takes)
			return store.Store.Lookup(ctx, d)
		})
		var callers sync.WaitGroup
		for _, d := range keys {
			callers.Go(func() { want(t, cached, d, nil, "one of 320 keys with 64 places") })
		}
		callers.Wait()
		if most.Load() != 64 {
			t.Errorf("%d questions were open at once, want 64", most.Load())
		}

		time.Sleep(30 * time.Second)
		takes = 90 * time.Millisecond
		start := time.Now()
		var answered, refused atomic.Int64
		for _, d := range keys {
			callers.Go(func() {
				switch _, err := cached.Lookup(t.Context(), d); {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, keystore.ErrOverloaded) || errors.Is(err, context.DeadlineExceeded):
					refused.Add(1)
				default:
					t.Errorf("Lookup returned %v, want the key or an error that says nothing about it", err)
				}
			})
		}
		callers.Wait()
		if answered.Load() != 64 || refused.Load() != 256 || time.Since(start) != 100*time.Millisecond {
			t.Errorf("after %v %d keys were found and %d were not, want 64 and 256 after Timeout", time.Since(start),
				answered.Load(), refused.Load())
		}
		time.Sleep(time.Second) // until the store has returned
	})
}
