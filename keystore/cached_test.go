package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// want looks d up and reports another error than wanted, or a key whose
// refusal differs.
func want(t testing.TB, c *keystore.Cached, d keystore.Digest, wanted error, rule string) {
	t.Helper()
	k, err := c.Lookup(t.Context(), d)
	if err == nil {
		err = k.Refused(time.Now())
	}
	if !errors.Is(err, wanted) || (err == nil) != (wanted == nil) {
		t.Errorf("%s: Lookup and Refused gave %v, want %v", rule, err, wanted)
	}
}

func TestCachedRemembersForTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: 30 * time.Second})
		d := store.add(t)
		// The answer is as old as the question, which took a second.
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			k, err := store.Memory.Lookup(ctx, d)
			time.Sleep(time.Second)
			return k, err
		})
		want(t, cached, d, nil, "the first lookup")
		store.edit(t, d, suspended)
		time.Sleep(29*time.Second - time.Nanosecond)
		store.wantCalls(t, 1, "the first lookup")
		want(t, cached, d, nil, "1 ns before TTL has passed since the store was asked")
		store.wantCalls(t, 0, "1 ns before TTL has passed")
		time.Sleep(time.Nanosecond)
		want(t, cached, d, keystore.ErrSuspended, "when TTL has passed")
		store.wantCalls(t, 1, "when TTL has passed")
	})
}

func TestCachedDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		d := store.add(t)
		if got := cached.MaxStaleness(); got != 30*time.Second {
			t.Errorf("MaxStaleness() = %v, want 30s", got)
		}
		want(t, cached, d, nil, "a key")
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
		time.Sleep(5*time.Second - time.Nanosecond)
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, before 5 s")
		store.wantCalls(t, 2, "before 5 s")
		time.Sleep(time.Nanosecond)
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, after 5 s")
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, after 5 s")
		store.wantCalls(t, 1, "after 5 s")
	})
}

func TestCachedOptionsPanic(t *testing.T) {
	for name, o := range map[string]keystore.CacheOptions{
		"TTL": {TTL: -1}, "NegativeTTL": {NegativeTTL: -1}, "Size": {Size: -1}, "NegativeSize": {NegativeSize: -1},
		"Timeout": {Timeout: -1}, "Loads": {Loads: -1}, "FeedInterval": {FeedInterval: -1},
	} {
		if !panics(func() { keystore.NewCached(keystore.NewMemory(), o) }) {
			t.Errorf("a negative %s did not panic", name)
		}
	}
	if !panics(func() { keystore.NewCached(nil, keystore.CacheOptions{}) }) {
		t.Error("NewCached without a store did not panic")
	}
}

func TestCachedBinds(t *testing.T) {
	store := newFake()
	d := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{scope.TasksRead, "future:thing"} })
	quiet := slog.New(slog.DiscardHandler)
	k, err := keystore.NewCached(store, keystore.CacheOptions{Logger: quiet}).Lookup(t.Context(), d)
	if err != nil || k.Granted().Registry() != scope.Contract() || k.Granted().String() != "tasks:read" {
		t.Errorf("Lookup returned a key that grants %v, %v, want tasks:read of the contract", k.Granted(), err)
	}
	other := scope.New(scope.Definition{Name: "future:thing"})
	k, err = keystore.NewCached(store, keystore.CacheOptions{Registry: other, Logger: quiet}).Lookup(t.Context(), d)
	if err != nil || k.Granted().Registry() != other || k.Granted().String() != "future:thing" {
		t.Errorf("Lookup with another registry returned a key that grants %v, %v, want future:thing", k.Granted(), err)
	}
}

// Each scope that nobody knows is logged once, and not without end.
func TestCachedReportsUnknownScopes(t *testing.T) {
	var log logged
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		d := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{"future:thing", scope.TasksRead, "tasks:*"} })
		want(t, cached, d, nil, "a key with unknown scopes")
	}
	if out := log.String(); strings.Count(out, "\n") != 2 || !strings.Contains(out, "future:thing") || !strings.Contains(out, "tasks:*") || !strings.Contains(out, "key_") {
		t.Errorf("three keys with the same two unknown scopes logged %s, want one line a scope", out)
	}
	d := store.add(t, func(k *keystore.Key) {
		for n := range 500 {
			k.Scopes = append(k.Scopes, scope.Name(fmt.Sprintf("future:%d", n)))
		}
	})
	want(t, cached, d, nil, "a key with 500 unknown scopes")
	if n := strings.Count(log.String(), "\n"); n != 100 {
		t.Errorf("502 unknown scopes logged %d lines, want 100", n)
	}
}

// A key that expires while it is cached is refused on the nanosecond.
func TestCachedKeyExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour})
		expiring := store.add(t, func(k *keystore.Key) { k.ExpiresAt = time.Now().Add(time.Minute) })
		ending := store.add(t, func(k *keystore.Key) { k.RevokedAt = time.Now().Add(time.Minute) })
		want(t, cached, expiring, nil, "a key that will expire")
		want(t, cached, ending, nil, "a key that will be revoked")
		time.Sleep(time.Minute - time.Nanosecond)
		want(t, cached, expiring, nil, "1 ns before it expires")
		want(t, cached, ending, nil, "1 ns before it is revoked")
		if _, ok := cached.Peek(expiring); !ok {
			t.Error("Peek does not know a key 1 ns before it expires")
		}
		time.Sleep(time.Nanosecond)
		want(t, cached, expiring, keystore.ErrExpired, "when it expires")
		want(t, cached, ending, keystore.ErrRevoked, "when it is revoked")
		if k, ok := cached.Peek(expiring); ok {
			t.Errorf("Peek returned %v, want nothing of a key that has expired", k)
		}
		store.wantCalls(t, 2, "two keys in one TTL")
	})
}

// A key that was refused when it was loaded is remembered with the refusals,
// and for as long as they.
func TestCachedRefusedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Second})
		d := store.add(t, suspended)
		want(t, cached, d, keystore.ErrSuspended, "a suspended key")
		want(t, cached, d, keystore.ErrSuspended, "a suspended key, again")
		store.wantCalls(t, 1, "a suspended key twice")
		if k, ok := cached.Peek(d); ok {
			t.Errorf("Peek returned %v, want nothing of a suspended key", k)
		}
		store.edit(t, d, func(k *keystore.Key) { k.Suspended = false })
		time.Sleep(time.Second)
		want(t, cached, d, nil, "the key is usable again and NegativeTTL has passed")
		store.edit(t, d, suspended)
		time.Sleep(time.Hour)
		want(t, cached, d, keystore.ErrSuspended, "suspended once more, after TTL")
		if k, ok := cached.Peek(d); ok {
			t.Errorf("Peek returned %v, want nothing of a key that is suspended now", k)
		}
	})
}

func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Minute})
		d := store.add(t)
		if k, ok := cached.Peek(d); ok {
			t.Errorf("Peek returned %v, want nothing before the key was looked up", k)
		}
		store.wantCalls(t, 0, "Peek")
		want(t, cached, d, nil, "a key")
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
		if k, ok := cached.Peek(d); !ok || k.Digest != d {
			t.Errorf("Peek returned %v, %v, want the key", k, ok)
		}
		if k, ok := cached.Peek(unknown(1)); ok {
			t.Errorf("Peek returned %v for an unknown token, want nothing", k)
		}
		time.Sleep(time.Minute)
		if k, ok := cached.Peek(d); ok {
			t.Errorf("Peek returned %v, want nothing after TTL", k)
		}
	})
}

// However many tokens somebody makes up, a key that is remembered stays so.
func TestCachedFloodOfUnknownTokens(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{Size: 10, NegativeSize: 10, TTL: time.Hour})
	var keys []keystore.Digest
	for range 10 {
		keys = append(keys, store.add(t))
		want(t, cached, keys[len(keys)-1], nil, "a key")
	}
	revoked := store.add(t, suspended)
	want(t, cached, revoked, keystore.ErrSuspended, "a key that is refused")
	for n := range 5000 {
		want(t, cached, unknown(n), keystore.ErrNotFound, "an unknown token")
	}
	store.calls.Store(0)
	for _, d := range keys {
		want(t, cached, d, nil, "a key, after the flood")
	}
	store.wantCalls(t, 0, "10 keys that are remembered")
}

// Least recently used keys go first, and both memories are bounded.
func TestCachedSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{Size: 2, NegativeSize: 2})
		a, b, c := store.add(t), store.add(t), store.add(t)
		for _, d := range []keystore.Digest{a, b, a, c} {
			want(t, cached, d, nil, "a key")
			time.Sleep(time.Second) // to which a use is known
		}
		for n := range 3 {
			want(t, cached, unknown(n), keystore.ErrNotFound, "an unknown token")
		}
		store.calls.Store(0)
		want(t, cached, a, nil, "the key that was used again")
		want(t, cached, c, nil, "the key that was used last")
		want(t, cached, unknown(2), keystore.ErrNotFound, "the last unknown token")
		store.wantCalls(t, 0, "what is remembered")
		want(t, cached, b, nil, "the key that was not used for longest")
		want(t, cached, unknown(0), keystore.ErrNotFound, "the first unknown token")
		store.wantCalls(t, 2, "what had to go")
	})
}

func TestForget(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	d, other := store.add(t), store.add(t)
	want(t, cached, d, nil, "a key")
	want(t, cached, other, nil, "another key")
	want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
	store.edit(t, d, suspended)
	cached.Forget(d)
	cached.Forget(unknown(1))
	store.calls.Store(0)
	want(t, cached, other, nil, "a key that was not forgotten")
	store.wantCalls(t, 0, "a key that was not forgotten")
	want(t, cached, d, keystore.ErrSuspended, "a key that was forgotten")
	want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token that was forgotten")
	store.wantCalls(t, 2, "what was forgotten")
}

// What the store refused last is not a token that was usable when it was last asked.
func TestRemembersTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		d := store.add(t)
		want(t, cached, d, nil, "a key")
		time.Sleep(time.Hour)
		if _, usable := cached.Peek(d); usable || !cached.Remembers(d) {
			t.Errorf("an hour later: Peek %t, Remembers %t, want false and true", usable, cached.Remembers(d))
		}
		store.edit(t, d, suspended) // elsewhere
		want(t, cached, d, keystore.ErrSuspended, "the key, suspended")
		if cached.Remembers(d) {
			t.Error("Remembers is true for a key that the store has refused")
		}
	})
}

func TestCachedWithoutEnd(t *testing.T) {
	for _, o := range []keystore.CacheOptions{
		{TTL: math.MaxInt64, NegativeTTL: math.MaxInt64},
		{TTL: math.MaxInt64, NegativeTTL: math.MaxInt64, Timeout: math.MaxInt64, FeedInterval: math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFake()
			cached := keystore.NewCached(store, o)
			d := store.add(t)
			time.Sleep(time.Second)
			for range 2 {
				want(t, cached, d, nil, "a key")
				want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
				time.Sleep(1000 * time.Hour)
			}
			store.wantCalls(t, 2, "a key and an unknown token, for ever")
			if got := cached.MaxStaleness(); got != math.MaxInt64 {
				t.Errorf("MaxStaleness is %v", got)
			}
		})
	}
}
