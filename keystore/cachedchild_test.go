package keystore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// line stores a key, a child of that, and so on, and returns their digests,
// which are the same in each run.
func (f *fake) line(t testing.TB, n int) (digests []keystore.Digest) {
	t.Helper()
	parent := ""
	for range n {
		f.lines++
		digests = append(digests, f.add(t, func(k *keystore.Key) {
			k.Parent, parent, k.Digest = parent, k.ID, keystore.DigestOf(fmt.Sprint("key ", f.lines))
		}))
	}
	return digests
}

// Invalidate of an ancestor is one of the child, and of no other unless their
// digests share a place.
func TestCachedChild(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour})
	keys := store.line(t, 4)
	child := keys[3]
	var others []keystore.Digest
	for range 100 {
		others = append(others, store.line(t, 2)[1])
	}
	look := func(d keystore.Digest, wanted error, calls int64, rule string) {
		t.Helper()
		want(t, cached, d, wanted, rule)
		store.wantCalls(t, calls, rule)
	}
	for _, d := range append(others, child) {
		look(d, nil, 1, "the first look-up")
	}
	for _, d := range keys[:3] {
		store.edit(t, d, suspended)
		look(child, nil, 0, "before Invalidate")
		cached.Invalidate(d)
		look(child, keystore.ErrSuspended, 1, "an ancestor is suspended")
		look(child, keystore.ErrSuspended, 0, "an ancestor is suspended, again")
		store.edit(t, d, func(k *keystore.Key) { k.Suspended = false })
		cached.Invalidate(d)
		look(child, nil, 1, "an ancestor is resumed")
	}
	if _, ok := cached.Peek(child); !ok {
		t.Error("a child is not remembered")
	}
	cached.Invalidate(keys[0])
	if _, ok := cached.Peek(child); ok {
		t.Error("a child is remembered after Invalidate of an ancestor")
	}
	for _, d := range others {
		want(t, cached, d, nil, "another child")
	}
	store.wantCalls(t, 0, "children of others, after changes of 3 keys")
}

// A question about a child that was asked before an ancestor changed answers
// those alone who waited for it then.
func TestCachedChildIsLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		keys := store.line(t, 3)
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour, Timeout: time.Minute})
		first := true
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := store.Store.Lookup(ctx, d)
			if first {
				first = false
				time.Sleep(time.Second)
			}
			return k, err
		})
		go cached.Lookup(t.Context(), keys[2])
		synctest.Wait()
		store.edit(t, keys[0], suspended)
		cached.Invalidate(keys[0])
		var later sync.WaitGroup
		for range 10 {
			later.Go(func() { want(t, cached, keys[2], keystore.ErrSuspended, "after the change, while the first one runs") })
		}
		later.Wait()
		want(t, cached, keys[2], keystore.ErrSuspended, "a look-up later")
		store.wantCalls(t, 2, "all look-ups")
	})
}

// No look-up of a child that begins after Invalidate of an ancestor has what
// was true before, whoever else looks it up or changes other keys.
func TestCachedChildRace(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{TTL: time.Hour})
	var neighbours []keystore.Digest
	keys := store.line(t, 3)
	for n := range 4 {
		d := keys[0]
		d[31] ^= byte(n + 1)
		neighbours = append(neighbours, d)
	}
	var suspensions atomic.Int64 // odd: suspended, and Invalidate has returned
	var running sync.WaitGroup
	var ended atomic.Bool
	for n := range 4 {
		running.Go(func() {
			for !ended.Load() {
				before := suspensions.Load()
				c, err := cached.Caller(t.Context(), keys[2])
				if err != nil {
					t.Error(err)
					return
				}
				refused := c.Refused() != nil
				if suspensions.Load() == before && before >= 0 && refused != (before%2 == 1) {
					t.Errorf("after change %d a look-up says refused: %v", before, refused)
					return
				}
				cached.Invalidate(neighbours[n])
			}
		})
	}
	for n := range int64(500) {
		// No look-up that begins or ends now is judged.
		suspensions.Store(-1)
		store.edit(t, keys[0], func(k *keystore.Key) { k.Suspended = n%2 == 0 })
		cached.Invalidate(keys[0])
		suspensions.Store(n + 1)
		_, err := cached.Caller(t.Context(), keys[2])
		must(t, err)
	}
	ended.Store(true)
	running.Wait()
}
