package keystore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestOneLoadForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		d := store.add(t)
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			time.Sleep(10 * time.Millisecond)
			return store.Memory.Lookup(ctx, d)
		})
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() { want(t, cached, d, nil, "one of 500 callers") })
			callers.Go(func() { want(t, cached, unknown(1), keystore.ErrNotFound, "one of 500 callers with an unknown token") })
		}
		callers.Wait()
		store.wantCalls(t, 2, "500 callers each with two tokens")
	})
}

// A caller looks, finds nothing, and before it asks somebody else has asked and
// been answered: it finds that answer.
func TestAnswerThatCameInBetween(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	d := store.add(t)
	between := errHook{t.Context(), func() { want(t, cached, d, nil, "somebody else") }}
	if _, err := cached.Lookup(between, d); err != nil {
		t.Errorf("Lookup returned %v, want the key", err)
	}
	store.wantCalls(t, 1, "two callers")
}

// An errHook is a context that runs a function when it is asked for its error,
// which Lookup does between looking and asking.
type errHook struct {
	context.Context
	run func()
}

func (h errHook) Err() error {
	h.run()
	return h.Context.Err()
}

// The same without a bubble, where callers come and go while the store
// answers at once.
func TestOneLoadForManyAtFullSpeed(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	for range 200 {
		d := store.add(t)
		start := make(chan struct{})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				<-start
				want(t, cached, d, nil, "one of 8 callers")
			})
		}
		close(start)
		callers.Wait()
		store.wantCalls(t, 1, "8 callers")
	}
}

func TestCallerWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		d := store.add(t)
		type traceKey struct{}
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if ctx.Value(traceKey{}) != "first" {
				t.Errorf("the store's context has the trace %v, want the values of the caller who caused the question", ctx.Value(traceKey{}))
			}
			time.Sleep(time.Second)
			if err := ctx.Err(); err != nil {
				t.Errorf("the question ended with the caller who caused it: %v", err)
			}
			return store.Memory.Lookup(ctx, d)
		})
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "first"))
		start := time.Now()
		var callers sync.WaitGroup
		callers.Go(func() {
			if _, err := cached.Lookup(ctx, d); !errors.Is(err, context.Canceled) {
				t.Errorf("Lookup by a caller who left returned %v, want the error of its context", err)
			}
			if waited := time.Since(start); waited != time.Millisecond {
				t.Errorf("a caller who left after 1 ms waited %v", waited)
			}
		})
		synctest.Wait()
		callers.Go(func() { want(t, cached, d, nil, "a caller who stayed") })
		time.Sleep(time.Millisecond)
		leave()
		callers.Wait()
		store.wantCalls(t, 1, "two callers")

		// With an answer at hand the context does not matter; without one it does.
		if _, err := cached.Lookup(ctx, d); err != nil {
			t.Errorf("Lookup of a remembered key with a context that has ended returned %v, want the key", err)
		}
		if _, err := cached.Lookup(ctx, unknown(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("Lookup with a context that has ended returned %v, want its error", err)
		}
		store.wantCalls(t, 0, "a context that has ended")
	})
}

// A question that was asked before a revocation, and answered after it.
func TestRevokeWhileLoading(t *testing.T) {
	for name, revoke := range map[string]func(t *testing.T, c *keystore.Cached, k *keystore.Key){
		"Update": func(t *testing.T, c *keystore.Cached, k *keystore.Key) {
			if err := c.Update(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		},
		"Forget": func(t *testing.T, c *keystore.Cached, k *keystore.Key) {
			c.Forget(k.Digest)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFake()
				cached := keystore.NewCached(store, keystore.CacheOptions{})
				d := store.add(t)
				read, err := store.Memory.Lookup(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
					k, err := store.Memory.Lookup(ctx, d)
					time.Sleep(time.Second)
					return k, err
				})
				var before sync.WaitGroup
				before.Go(func() { cached.Lookup(t.Context(), d) })
				synctest.Wait()
				time.Sleep(time.Millisecond)

				revoked := read.Clone()
				revoked.RevokedAt = time.Now()
				if name == "Forget" {
					if err := store.Update(t.Context(), revoked); err != nil {
						t.Fatal(err)
					}
				}
				revoke(t, cached, revoked)
				// The first question is still open, and must not be joined.
				want(t, cached, d, keystore.ErrRevoked, "a lookup after the revocation")
				before.Wait()
				if k, ok := cached.Peek(d); ok {
					t.Errorf("the old answer was remembered: %v", k)
				}
				want(t, cached, d, keystore.ErrRevoked, "a lookup after the old answer has arrived")
				store.wantCalls(t, 2, "one question before and one after")
			})
		})
	}
}

// The old answer arrives last, after the new one was remembered and forgotten
// by nobody.
func TestOldAnswerArrivesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Minute, NegativeTTL: time.Second})
		d := store.add(t)
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := store.Memory.Lookup(ctx, d)
			if store.calls.Load() == 1 {
				time.Sleep(1900 * time.Millisecond)
			}
			return k, err
		})
		var before sync.WaitGroup
		before.Go(func() { cached.Lookup(t.Context(), d) })
		synctest.Wait()
		store.edit(t, d, suspended)
		cached.Forget(d)
		want(t, cached, d, keystore.ErrSuspended, "the new answer")
		before.Wait()
		time.Sleep(time.Second)
		want(t, cached, d, keystore.ErrSuspended, "after the new answer was forgotten")
	})
}
