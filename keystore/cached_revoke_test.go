package keystore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// Keys are looked up, driven out by others and revoked at the same time. From
// the moment at which Revoke has returned nobody finds the key usable.
func TestRevokeAmongEvictions(t *testing.T) {
	for _, size := range []int{1, 2, 5, 100} {
		cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Size: size, TTL: time.Hour, Timeout: time.Hour})
		issuer := keystore.NewIssuer(cached, keystore.IssuerOptions{})
		type issued struct {
			id      string
			digest  keystore.Digest
			revoked atomic.Bool
		}
		issue := func() *issued {
			secret, k, err := issuer.Issue(t.Context(), keystore.Grant{Organization: "acme", Environment: keystore.Production})
			if err != nil {
				t.Fatal(err)
			}
			return &issued{id: k.ID, digest: keystore.DigestOf(secret.Reveal())}
		}
		var live [8]atomic.Pointer[issued]
		for i := range live {
			live[i].Store(issue())
		}
		var revoking atomic.Bool
		revoking.Store(true)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for revoking.Load() {
					k := live[rand.IntN(len(live))].Load()
					revoked := k.revoked.Load()
					found, err := cached.Lookup(t.Context(), k.digest)
					if err != nil || revoked && found.Refused() == nil {
						t.Errorf("size %d: Lookup gave %v, error %v, revoked before: %t", size, found, err, revoked)
						return
					}
					if _, usable := cached.Peek(k.digest); revoked && usable {
						t.Errorf("size %d: Peek gave a revoked key", size)
						return
					}
				}
			})
		}
		for i := range 1000 {
			k := live[i%len(live)].Load()
			if _, err := issuer.Revoke(t.Context(), "acme", k.id); err != nil {
				t.Fatal(err)
			}
			k.revoked.Store(true)
			live[i%len(live)].Store(issue())
		}
		revoking.Store(false)
		wg.Wait()
	}
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
			c.Invalidate(k.Digest)
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

// An old answer that arrives last does not replace the new one.
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
		cached.Invalidate(d)
		want(t, cached, d, keystore.ErrSuspended, "the new answer")
		before.Wait()
		time.Sleep(time.Second)
		want(t, cached, d, keystore.ErrSuspended, "after the new answer was forgotten")
	})
}
