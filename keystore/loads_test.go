package keystore_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestStoreErrorsAreNotRemembered(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	d := store.add(t)
	store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errStoreDown })
	for range 3 {
		want(t, cached, d, errStoreDown, "a store that is down")
	}
	store.wantCalls(t, 3, "three lookups while the store is down")
	store.lookup.set(store.Memory.Lookup)
	want(t, cached, d, nil, "the store is back")
}

func TestStoreDownAfterLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Minute})
		d := store.add(t)
		want(t, cached, d, nil, "a key")
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errStoreDown })
		time.Sleep(time.Minute - time.Nanosecond)
		want(t, cached, d, nil, "the store is down and TTL has not passed")
		time.Sleep(time.Nanosecond)
		want(t, cached, d, errStoreDown, "the store is down and TTL has passed")
	})
}

// hang never returns, whatever its context says, until release is closed.
func hang(store *fake, release <-chan struct{}) func(context.Context, keystore.Digest) (*keystore.Key, error) {
	return func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		k, err := store.Memory.Lookup(ctx, d)
		<-release
		return k, err
	}
}

func TestStoreThatHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{Timeout: 3 * time.Second})
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		start := time.Now()
		want(t, cached, unknown(1), context.DeadlineExceeded, "a store that never answers")
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("the lookup waited %v, want Timeout", waited)
		}
	})
}

func TestStoreThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{Timeout: 3 * time.Second, TTL: time.Hour})
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
		store.lookup.set(store.Memory.Lookup)
		if k, ok := cached.Peek(late); ok {
			t.Errorf("an answer that came an hour late was remembered: %v", k)
		}
		want(t, cached, late, nil, "the store is back")
		store.wantCalls(t, 1, "the store is back")
	})
}

// Timeout is at most TTL, or an answer could be older than TTL when it is used.
func TestTimeoutIsAtMostTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Second, Timeout: time.Hour})
		d := store.add(t)
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := store.Memory.Lookup(ctx, d)
			time.Sleep(2 * time.Second)
			return k, err
		})
		want(t, cached, d, context.DeadlineExceeded, "an answer that takes longer than TTL")
		time.Sleep(2 * time.Second)
	})
}

// An answer that arrives at the very moment its time is over is not used,
// whichever is noticed first.
func TestAnswerAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{Timeout: time.Second})
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			time.Sleep(time.Second)
			return nil, keystore.ErrNotFound
		})
		for n := range 300 {
			want(t, cached, unknown(n), context.DeadlineExceeded, "an answer after exactly Timeout")
		}
	})
}

func TestCorruptRecords(t *testing.T) {
	d := unknown(1)
	for name, k := range map[string]*keystore.Key{
		"another digest":     {ID: "key_1", Digest: unknown(2), Organization: "acme", Environment: keystore.Sandbox},
		"no environment":     {ID: "key_1", Digest: d, Organization: "acme"},
		"token word":         {ID: "key_1", Digest: d, Organization: "acme", Environment: "live"},
		"neither of the two": nil,
	} {
		store := newFake()
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return k, nil })
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		for range 2 {
			got, err := cached.Lookup(t.Context(), d)
			if !errors.Is(err, keystore.ErrCorrupt) || errors.Is(err, keystore.ErrNotFound) || got != nil {
				t.Errorf("%s: Lookup returned %v, %v, want ErrCorrupt alone", name, got, err)
			}
		}
		store.wantCalls(t, 2, "a corrupt record twice: it is not remembered")
	}
}

// What goes wrong in the goroutine of a question ends neither the process nor
// the question, and gives its slot back.
func TestStoreThatPanics(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{Loads: 1, Logger: slog.New(slog.DiscardHandler)})
	d := store.add(t)
	for name, fail := range map[string]func(){"panic": func() { panic("index out of range") }, "Goexit": runtime.Goexit} {
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			fail()
			return nil, nil
		})
		for range 3 {
			k, err := cached.Lookup(t.Context(), d)
			if err == nil || errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrOverloaded) || k != nil {
				t.Errorf("Lookup of a store that ends with %s returned %v, %v, want an error that says nothing about the key", name, k, err)
			}
		}
	}
	store.lookup.set(store.Memory.Lookup)
	want(t, cached, d, nil, "the store is well again")
}

// Whatever comes in, no more than Loads questions are open.
func TestLoadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{Loads: 5})
		var open, most atomic.Int64
		store.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			now := open.Add(1)
			defer open.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			time.Sleep(time.Millisecond)
			return nil, keystore.ErrNotFound
		})
		var answered, refused atomic.Int64
		var callers sync.WaitGroup
		for n := range 300 {
			callers.Go(func() {
				time.Sleep(time.Duration(n) * 100 * time.Microsecond)
				switch _, err := cached.Lookup(t.Context(), unknown(n)); {
				case errors.Is(err, keystore.ErrNotFound):
					answered.Add(1)
				case errors.Is(err, keystore.ErrOverloaded):
					refused.Add(1)
				default:
					t.Errorf("Lookup returned %v, want ErrNotFound or ErrOverloaded", err)
				}
			})
		}
		callers.Wait()
		if most.Load() != 5 || answered.Load() < 140 || refused.Load() < 140 {
			t.Errorf("%d questions were open at once, %d were answered and %d refused, want 5 and about half each", most.Load(), answered.Load(), refused.Load())
		}
	})
}
