package keystore_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// want looks d up and reports another error than wanted, or a key whose
// refusal differs.
func want(t testing.TB, c keystore.Store, d keystore.Digest, wanted error, rule string) {
	t.Helper()
	k, err := c.Lookup(t.Context(), d)
	if err == nil {
		err = k.Refused()
	}
	if !errors.Is(err, wanted) || (err == nil) != (wanted == nil) {
		t.Errorf("%s: Lookup and Refused gave %v, want %v", rule, err, wanted)
	}
}

func TestCachedRemembersForTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{TTL: 30 * time.Second})
		d := store.add(t)
		// The answer is as old as the question, which took a second.
		store.slow(time.Second)
		want(t, cached, d, nil, "the first lookup")
		store.edit(t, d, suspended)
		time.Sleep(29*time.Second - time.Nanosecond)
		store.wantCalls(t, 1, "the first lookup")
		want(t, cached, d, nil, "1 ns before TTL has passed since the store was asked")
		store.wantCalls(t, 0, "1 ns before TTL has passed")
		time.Sleep(time.Nanosecond)
		want(t, cached, d, keystore.ErrSuspended, "when TTL has passed")
		store.wantCalls(t, 1, "when TTL has passed")

		made := unknown(0)
		want(t, cached, made, keystore.ErrNotFound, "a token without a key")
		store.add(t, func(k *keystore.Key) { k.Digest = made })
		time.Sleep(4*time.Second - time.Nanosecond)
		want(t, cached, made, keystore.ErrNotFound, "1 ns before NegativeTTL has passed since the store was asked")
		time.Sleep(time.Nanosecond)
		want(t, cached, made, nil, "when NegativeTTL has passed")
	})
}

// The digests of an older system are remembered whatever their parts repeat, and
// wherever their random bytes are.
func TestCachedRemembersEachDigest(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{Size: 1 << 11, NegativeTTL: time.Hour}) // in 16 LRUs
	var digests []keystore.Digest
	for _, repeated := range []int{8, 16, 32} { // bytes
		for i := range byte(20) {
			part := bytes.Repeat([]byte{0}, repeated)
			part[0], part[repeated/2] = i, byte(repeated)
			digests = append(digests, keystore.Digest(bytes.Repeat(part, 32/repeated)))
			if repeated == 32 { // the halves in the other order
				digests = append(digests, keystore.Digest(append(part[16:], part[:16]...)))
			}
		}
	}
	for _, at := range []int{0, 7, 12, 28} {
		for i := range byte(100) {
			var d keystore.Digest
			d[at], d[at+3] = i, 2
			digests = append(digests, d)
		}
	}
	for range 3 {
		for _, d := range digests {
			want(t, cached, d, keystore.ErrNotFound, "no key")
		}
	}
	store.wantCalls(t, int64(len(digests)), "three lookups of each")
}

// A Cached made outside a bubble serves inside it, where the clock is another.
func TestCachedFromOutsideTheBubble(t *testing.T) {
	store := newFake()
	d := store.add(t)
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			want(t, cached, d, nil, "a key")
		}
	})
	store.wantCalls(t, 1, "two lookups in the bubble")
}

func TestCachedBinds(t *testing.T) {
	store := newFake()
	d := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{scope.TasksRead, "future:thing"} })
	other := scope.New(scope.Definition{Name: "future:thing"})
	for registry, want := range map[*scope.Registry]string{nil: "tasks:read", other: "future:thing"} {
		k, err := keystore.NewCached(store, keystore.CacheOptions{Service: keystore.Service{Scopes: registry},
			Logger: slog.New(slog.DiscardHandler)}).Caller(t.Context(), d)
		if err != nil || k.Granted().Registry() != cmp.Or(registry, scope.Default()) || k.Granted().String() != want {
			t.Errorf("the caller is granted %v, %v, want %s", k.Granted(), err, want)
		}
	}
}

// A change of the key that Lookup returned does not change what is remembered.
func TestCachedCopies(t *testing.T) {
	store := newFake()
	d := store.add(t, func(k *keystore.Key) {
		k.Attributes, k.Networks = map[string]string{"plan": "free"}, prefixes("192.0.2.0/24")
	})
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	for range 2 {
		k, err := cached.Lookup(t.Context(), d)
		if err != nil || k.Attributes["plan"] != "free" || k.Networks[0] != prefixes("192.0.2.0/24")[0] {
			t.Fatalf("got %+v, error %v, want the key as it is stored", k, err)
		}
		k.Attributes["plan"], k.Networks[0] = "gold", prefixes("0.0.0.0/0")[0]
	}
}

// Each scope that nobody knows is logged once, and not without end.
func TestCachedReportsUnknownScopes(t *testing.T) {
	var log logged
	store, cached := newCached(keystore.CacheOptions{Logger: log.logger()})
	for range 3 {
		d := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{"future:thing", scope.TasksRead, "tasks:*"} })
		want(t, cached, d, nil, "a key with unknown scopes")
	}
	if out := log.String(); strings.Count(out, "\n") != 2 || !strings.Contains(out, "future:thing") ||
		!strings.Contains(out, "tasks:*") || !strings.Contains(out, "key_") {
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
		store, cached := newCached(keystore.CacheOptions{TTL: time.Hour})
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
		store, cached := newCached(keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Second})
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
		if k, ok := cached.Peek(d); ok || !cached.Remembers(d) {
			t.Errorf("after TTL: Peek %v, Remembers %t, want nothing, and that it was usable", k, cached.Remembers(d))
		}
		want(t, cached, d, keystore.ErrSuspended, "suspended once more, after TTL")
		if k, ok := cached.Peek(d); ok || cached.Remembers(d) {
			t.Errorf("suspended: Peek %v, Remembers %t, want nothing, and that it was not", k, cached.Remembers(d))
		}
	})
}

// However many tokens somebody makes up, a key that is remembered stays so.
func TestCachedFloodOfUnknownTokens(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{Size: 10, TTL: time.Hour})
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

// Least recently used keys go first, to the second.
func TestCachedOrder(t *testing.T) {
	const almost = time.Second - 1
	for _, tt := range []struct {
		uses []time.Duration // of a, b, a, b and so on: when, after the one before
		gone int
	}{
		{[]time.Duration{0, 0, 0}, 0},
		{[]time.Duration{0, 0, almost}, 0},
		{[]time.Duration{0, 0, time.Second}, 1},
		{[]time.Duration{0, 0, time.Second, 0, almost}, 0},
		{[]time.Duration{0, 0, time.Second, 0, time.Second}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, cached := newCached(keystore.CacheOptions{Size: 2})
			keys, third := []keystore.Digest{store.add(t), store.add(t)}, store.add(t)
			for i, after := range tt.uses {
				time.Sleep(after)
				want(t, cached, keys[i%2], nil, "a key")
			}
			want(t, cached, third, nil, "a third key")
			store.calls.Store(0)
			want(t, cached, keys[1-tt.gone], nil, "the key that stays")
			store.wantCalls(t, 0, fmt.Sprint(tt.uses))
			want(t, cached, keys[tt.gone], nil, "the key that had to go")
			store.wantCalls(t, 1, fmt.Sprint(tt.uses))
		})
	}
}

// Both memories are bounded, and Invalidate of all leaves the order as it is.
func TestCachedSize(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{Size: 2, NegativeTTL: time.Hour})
	a, b, c := store.add(t), store.add(t), store.add(t)
	want(t, cached, a, nil, "a key")
	want(t, cached, b, nil, "a key")
	cached.Invalidate()
	want(t, cached, c, nil, "a third key")
	if a, b, c := cached.Remembers(a), cached.Remembers(b), cached.Remembers(c); a || !b || !c {
		t.Errorf("known to have been usable: %t, %t, %t, want the last two", a, b, c)
	}
	for n := range 3 {
		want(t, cached, unknown(n), keystore.ErrNotFound, "an unknown token")
	}
	store.calls.Store(0)
	want(t, cached, unknown(2), keystore.ErrNotFound, "the last unknown token")
	store.wantCalls(t, 0, "what is remembered")
	want(t, cached, unknown(0), keystore.ErrNotFound, "the first unknown token")
	store.wantCalls(t, 1, "what had to go")
}

// Digests with one sum have one place.
func TestCachedDigestsThatShareAPlace(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{NegativeTTL: time.Hour})
	a := store.add(t)
	shifted := func(by uint64) keystore.Digest {
		d, word := a, binary.LittleEndian
		word.PutUint64(d[16:], word.Uint64(d[16:])+by)
		word.PutUint64(d[24:], word.Uint64(d[24:])-by*0x9e3779b97f4a7c15)
		return d
	}
	b, c := shifted(1), shifted(2)
	store.add(t, suspended, func(k *keystore.Key) { k.Digest = b })
	for range 2 {
		want(t, cached, a, nil, "a key")
		want(t, cached, b, keystore.ErrSuspended, "one that is refused")
	}
	store.wantCalls(t, 2, "one usable, the other refused")
	for range 2 {
		want(t, cached, b, keystore.ErrSuspended, "one that is refused")
		want(t, cached, c, keystore.ErrNotFound, "one that is unknown")
	}
	store.wantCalls(t, 3, "both refused, in turn")
	cached.Invalidate(b)
	want(t, cached, a, nil, "a key, after another was invalidated")
	want(t, cached, c, keystore.ErrNotFound, "one that is unknown, likewise")
	store.wantCalls(t, 0, "what another digest's change leaves")
}

func TestOneLoadForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{})
		d := store.add(t)
		store.slow(10 * time.Millisecond)
		var callers sync.WaitGroup
		for range 500 {
			callers.Go(func() { want(t, cached, d, nil, "one of 500 callers") })
			callers.Go(func() { want(t, cached, unknown(1), keystore.ErrNotFound, "one of 500 with an unknown token") })
		}
		callers.Wait()
		store.wantCalls(t, 2, "500 callers each with two tokens")
	})
}

// A caller who leaves waits for the answer like everybody else: net/http
// cancels the context of a client that has closed its side and still reads.
func TestCallerWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{})
		d := store.add(t)
		type traceKey struct{}
		var asked context.Context
		store.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if asked = ctx; ctx.Value(traceKey{}) != "first" {
				t.Errorf("the store's context has the trace %v, want the values of the caller who caused the question",
					ctx.Value(traceKey{}))
			}
			time.Sleep(time.Second)
			if err := ctx.Err(); err != nil {
				t.Errorf("the question ended with the caller who caused it: %v", err)
			}
			return store.Store.Lookup(ctx, d)
		})
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "first"))
		late, cancel := context.WithDeadline(ctx, time.Now().Add(time.Millisecond))
		defer cancel()
		var callers sync.WaitGroup
		for name, ctx := range map[string]context.Context{"leaves": ctx, "has a deadline": late} {
			callers.Go(func() {
				if k, err := cached.Lookup(ctx, d); err != nil || k.Digest != d {
					t.Errorf("Lookup by a caller who %s returned %v, %v, want the key", name, k, err)
				}
			})
		}
		synctest.Wait()
		callers.Go(func() { want(t, cached, d, nil, "a caller who stays") })
		time.Sleep(time.Millisecond)
		leave()
		callers.Wait()
		store.wantCalls(t, 1, "three callers")
		if err := asked.Err(); err != context.Canceled { // so that its timer does not stay until Timeout
			t.Errorf("after the question its context says %v, want that it is cancelled", err)
		}

		// Nor does it matter when the context ended before the lookup began.
		if _, err := cached.Lookup(ctx, d); err != nil {
			t.Errorf("Lookup of a remembered key with a context that has ended returned %v, want the key", err)
		}
		if _, err := cached.Lookup(ctx, store.add(t)); err != nil {
			t.Errorf("Lookup with a context that has ended returned %v, want the key", err)
		}
		store.wantCalls(t, 1, "a key that was not remembered")
	})
}

// A cache of many keys is bounded too, though it has several LRUs.
func TestCachedSizeOfMany(t *testing.T) {
	const size = 1024
	store, cached := newCached(keystore.CacheOptions{Size: size})
	var keys []keystore.Digest
	for range 2 * size {
		keys = append(keys, store.add(t))
		want(t, cached, keys[len(keys)-1], nil, "a key")
	}
	remembered := 0
	for _, d := range keys {
		if cached.Remembers(d) {
			remembered++
		}
	}
	// Digests are random: that one of 16 LRUs gets less than its share of
	// twice as many keys happens once in 10^8 runs.
	if remembered != size {
		t.Errorf("%d keys are remembered, want %d", remembered, size)
	}
}

// When a Logger panics, its own request ends, and nobody waits for it.
func TestCachedLoggerPanics(t *testing.T) {
	store, cached := newCached(keystore.CacheOptions{Logger: slog.New(panicHandler{})})
	d := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{"future:thing"} })
	if !panics(func() { cached.Lookup(t.Context(), d) }) {
		t.Error("the Logger was not asked")
	}
	want(t, cached, d, nil, "the next lookup")
}

type panicHandler struct{ slog.Handler }

func (panicHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (panicHandler) Handle(context.Context, slog.Record) error { panic("disk full") }

// Keys are looked up, driven out by others and revoked at the same time. From
// the moment at which Revoke has returned nobody finds the key usable.
func TestRevokeAmongEvictions(t *testing.T) {
	for _, size := range []int{1, 5, 100} {
		cached := keystore.NewCached(issuing.NewMemory(),
			keystore.CacheOptions{Size: size, TTL: time.Hour, Timeout: time.Hour})
		issuer := issuing.New(cached, issuing.Options{})
		type issued struct {
			id      string
			digest  keystore.Digest
			revoked atomic.Bool
		}
		issue := func() *issued {
			secret, k, err := issuer.Issue(t.Context(), keystore.Key{Organization: "acme", Environment: keystore.Production})
			must(t, err)
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
		for i := range 250 {
			k := live[i%len(live)].Load()
			_, err := issuer.Revoke(t.Context(), "acme", k.id)
			must(t, err)
			k.revoked.Store(true)
			want(t, cached, k.digest, keystore.ErrRevoked, "after Revoke has returned")
			live[i%len(live)].Store(issue())
		}
		revoking.Store(false)
		wg.Wait()
	}
}

// A question that was asked before a revocation, and answered after it.
func TestRevokeWhileLoading(t *testing.T) {
	for name, invalidate := range map[string]func(c *keystore.Cached, d keystore.Digest){
		"Invalidate":        func(c *keystore.Cached, d keystore.Digest) { c.Invalidate(d) },
		"Invalidate of all": func(c *keystore.Cached, _ keystore.Digest) { c.Invalidate() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, cached := newCached(keystore.CacheOptions{})
				d := store.add(t)
				store.slow(time.Second)
				var before sync.WaitGroup
				before.Go(func() { cached.Lookup(t.Context(), d) })
				synctest.Wait()
				time.Sleep(time.Millisecond)

				store.edit(t, d, func(k *keystore.Key) { k.RevokedAt = time.Now() })
				invalidate(cached, d)
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
