package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestThrottleLegacyKeys: over budget, an active key that the cache knows under
// any of its digests passes, and no other token reaches the store.
func TestThrottleLegacyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		importOld(t, ring, oldKey, "the old pepper", keystore.Production)
		key2 := importOld(t, ring, oldKey2, "the old pepper", keystore.Production)
		store := &countedStore{Store: ring.memory}
		cached := keystore.NewCached(store, keystore.CacheOptions{Service: acme()})
		api := testAPI(cached, middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("2-H")})
		ask := func(what, token string, want int) {
			t.Helper()
			wantAnswer(t, what, serve(api, request("GET", "/api/v1/any", token, "")), want)
		}
		unknown := func(i int) string { return fmt.Sprintf("acme_%040d", i) }
		ask("an active key", oldKey, 200)
		ask("another", oldKey2, 200)
		ask("an unknown key", unknown(1), 401)
		ask("an unknown key", unknown(2), 401)
		before := store.lookups.Load()
		for i := range 20 {
			ask("an unknown key over budget", unknown(100+i), 429)
			ask("an active key over budget", oldKey, 200)
		}
		if asked := store.lookups.Load() - before; asked != 0 {
			t.Errorf("the store was asked %d times over budget", asked)
		}
		// What the cache remembers is too old by now: the store decides.
		time.Sleep(5 * time.Minute)
		if ask("an active key that is looked up again", oldKey, 200); store.lookups.Load() == before {
			t.Error("the store was not asked again")
		}
		suspended := key2.Clone()
		suspended.Suspended = true
		if err := ring.memory.Update(t.Context(), suspended, issuing.AuditEntry{}); err != nil {
			t.Fatal(err)
		}
		cached.Invalidate(key2.Digest)
		ask("a key that is not live any more", oldKey2, 429)
	})
}

// TestThrottleFailures: 60 wrong keys of one address. Those over the limit cost
// the store nothing, and nobody else notices.
func TestThrottleFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		live, unseen := ring.issue(t), ring.issue(t)
		hooks, last := quiet(), middleware.Event{}
		hooks.Observe = func(_ context.Context, e middleware.Event) { last = e }
		api, store := throttled(ring, "5-M", middleware.Options{Hooks: hooks})
		ask := func(address, token string) answer {
			return serve(api, from(address, request("GET", "/api/v1/any", token, "")))
		}
		const here, elsewhere = "192.0.2.1:1", "192.0.2.2:1"
		if res := ask(here, live); res.StatusCode != 200 {
			t.Fatalf("got %d", res.StatusCode)
		}
		for i := range 60 {
			res := ask(here, wellFormed())
			if i < 5 {
				wantRefusal(t, "wrong key", res, 401, "api_key_invalid", invalid)
				continue
			}
			wantRefusal(t, "wrong key over the limit", res, 429, "too_many_failures", "")
			if got := res.problem(t).Policy; got != "failures" || res.Header.Get("Retry-After") != "12" {
				t.Errorf("got policy %q and Retry-After %q, want failures and 12", got, res.Header.Get("Retry-After"))
			}
		}
		if last.Stage != middleware.StageAuthenticate || last.Outcome != "too_many_failures" || last.Policy != "failures" ||
			last.Caller.KeyID() != "" {
			t.Errorf("got event %+v", last)
		}
		if got := store.lookups.Load(); got != 6 {
			t.Errorf("got %d lookups, want 6: one that found and five that did not", got)
		}
		wantRefusal(t, "malformed key", ask(here, "x"), 429, "too_many_failures", "")
		wantRefusal(t, "no key", ask(here, ""), 401, "api_key_missing", missing)
		wantAnswer(t, "an active key that is cached", ask(here, live), 200)
		wantRefusal(t, "an active key that is not", ask(here, unseen), 429, "too_many_failures", "")
		wantRefusal(t, "wrong key elsewhere", ask(elsewhere, wellFormed()), 401, "api_key_invalid", invalid)
		wantAnswer(t, "an active key elsewhere", ask(elsewhere, unseen), 200)
		wantAnswer(t, "the active key, now cached", ask(here, unseen), 200)

		time.Sleep(12*time.Second - 1)
		wantRefusal(t, "before the wait is over", ask(here, wellFormed()), 429, "too_many_failures", "")
		time.Sleep(time.Nanosecond)
		wantRefusal(t, "after the wait", ask(here, wellFormed()), 401, "api_key_invalid", invalid)
		wantRefusal(t, "once", ask(here, wellFormed()), 429, "too_many_failures", "")
	})
}

// TestThrottleManyAtOnce: what is looked up at one moment is not charged yet. It
// is bounded by the Cached, of another store by what comes. All but the failures
// that were left are 429, and the next wrong key costs no look-up.
func TestThrottleManyAtOnce(t *testing.T) {
	imported := func(i int) string { return fmt.Sprintf("acme_%040d", i) }
	generated := make([]string, 1000)
	for i := range generated {
		generated[i] = wellFormed()
	}
	for name, tt := range map[string]struct {
		cached  bool
		token   func(i int) string
		lookups int64
		want    map[int]int
	}{
		"one key":           {false, func(int) string { return generated[0] }, 1000, map[int]int{401: 5, 429: 995}},
		"one key, cached":   {true, func(int) string { return generated[0] }, 1, map[int]int{401: 5, 429: 995}},
		"many keys":         {false, func(i int) string { return generated[i] }, 1000, map[int]int{401: 5, 429: 995}},
		"many keys, cached": {true, func(i int) string { return generated[i] }, 64, map[int]int{401: 5, 429: 59, 503: 936}},
		"imported, one":     {true, func(int) string { return imported(0) }, 2, map[int]int{401: 5, 429: 995}},
		"imported, many":    {true, imported, 128, map[int]int{401: 5, 429: 59, 503: 936}},
	} {
		inBubble(t, name, func(t *testing.T) {
			asked := &countedStore{Store: newKeyring().memory}
			var store keystore.Store = lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
				key, err := asked.Lookup(ctx, d)
				time.Sleep(time.Second)
				return key, err
			})
			if tt.cached {
				store = keystore.NewCached(store, keystore.CacheOptions{Service: acme()})
			}
			api := testAPI(store, middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("5-H")})
			ask := func(token string) int { return serve(api, request("GET", "/api/v1/any", token, "")).StatusCode }
			statuses := make(chan int, 1000)
			for i := range cap(statuses) {
				go func() { statuses <- ask(tt.token(i)) }()
			}
			got := map[int]int{}
			for range cap(statuses) {
				got[<-statuses]++
			}
			if n := asked.lookups.Load(); n != tt.lookups || !maps.Equal(got, tt.want) {
				t.Errorf("%d look-ups and the statuses %v, want %d and %v", n, got, tt.lookups, tt.want)
			}
			if got, n := ask(wellFormed()), asked.lookups.Load(); got != 429 || n != tt.lookups {
				t.Errorf("the next wrong key: got %d after %d look-ups, want 429 after %d", got, n, tt.lookups)
			}
		})
	}
}

// TestThrottleChargesFailures: neither keys that are good nor a store that is down
// or panics use the budget up.
func TestThrottleChargesFailures(t *testing.T) {
	ring := newKeyring()
	down, panics := false, false
	api := testAPI(lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		if panics {
			panic("boom")
		}
		if down {
			return nil, errors.New("down")
		}
		return ring.memory.Lookup(ctx, d)
	}), middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("2-H")})
	ask := func(token string) answer { return serve(api, request("GET", "/api/v1/any", token, "")) }
	wantRefusal(t, "wrong key", ask(wellFormed()), 401, "api_key_invalid", invalid)
	for range 10 {
		wantAnswer(t, "an active key", ask(ring.issue(t)), 200)
	}
	down = true
	for range 10 {
		wantRefusal(t, "store down", ask(wellFormed()), 503, "key_store_unavailable", "")
	}
	panics = true
	for range 10 {
		wantRefusal(t, "store panics", ask(wellFormed()), 500, "internal", "")
	}
	down, panics = false, false
	wantRefusal(t, "the second wrong key", ask(wellFormed()), 401, "api_key_invalid", invalid)
	wantRefusal(t, "the third", ask(wellFormed()), 429, "too_many_failures", "")
}

// TestThrottleByAddress: which addresses are one client.
func TestThrottleByAddress(t *testing.T) {
	tests := []struct {
		name, first, second string
		forwarded           [2]string
		same                bool
	}{
		{"ports", "192.0.2.1:1", "192.0.2.1:2", [2]string{}, true},
		{"neighbours", "192.0.2.1:1", "192.0.2.2:1", [2]string{}, false},
		{"one /64", "[2001:db8::1]:1", "[2001:db8::ffff:1:2:3]:1", [2]string{}, true},
		{"two /64", "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", [2]string{}, false},
		{"mapped", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", [2]string{}, true},
		{"mapped neighbours", "[::ffff:192.0.2.1]:1", "[::ffff:192.0.2.2]:1", [2]string{}, false},
		{"untrusted word", "192.0.2.1:1", "192.0.2.1:1", [2]string{"6.6.6.6", "7.7.7.7"}, true},
		{"behind one proxy", "10.0.0.1:1", "10.0.0.1:1", [2]string{"6.6.6.6", "7.7.7.7"}, false},
		{"behind two proxies", "10.0.0.1:1", "10.0.0.2:1", [2]string{"6.6.6.6", "6.6.6.6"}, true},
	}
	for _, tt := range tests {
		api, _ := throttled(newKeyring(), "1-H", middleware.Options{TrustedProxies: trust("10.0.0.0/8")})
		var got [2]int
		for i, address := range []string{tt.first, tt.second} {
			r := from(address, request("GET", "/api/v1/any", wellFormed(), ""))
			if tt.forwarded[i] != "" {
				r.Header.Set("X-Forwarded-For", tt.forwarded[i])
			}
			res := serve(api, r)
			got[i] = res.StatusCode
			if strings.Contains(res.body, "192.0.2") || strings.Contains(res.body, "6.6.6.6") {
				t.Errorf("%s: the address is in the body: %s", tt.name, res.body)
			}
		}
		if got[0] != 401 || (got[1] == 429) != tt.same {
			t.Errorf("%s: got %v, want one client: %v", tt.name, got, tt.same)
		}
	}
}

// TestThrottleSparesLiveKeys: keys that never failed are not refused, however
// many of their requests are verified at once.
func TestThrottleSparesLiveKeys(t *testing.T) {
	for _, tt := range []struct {
		name       string
		keys, each int
		cached     bool
	}{
		{"one key, cached", 1, 50, true},
		{"one key", 1, 50, false},
		{"many keys, cached", 50, 1, true},
		{"many keys", 25, 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := newKeyring()
			var store keystore.Store = lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
				time.Sleep(30 * time.Millisecond)
				return ring.memory.Lookup(ctx, d)
			})
			if tt.cached {
				store = keystore.NewCached(store, keystore.CacheOptions{})
			}
			api := testAPI(store, middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("10-M")})
			statuses := make(chan int, tt.keys*tt.each)
			for range tt.keys {
				token := ring.issue(t)
				for range tt.each {
					go func() { statuses <- serve(api, request("GET", "/api/v1/any", token, "")).StatusCode }()
				}
			}
			got := map[int]int{}
			for range cap(statuses) {
				got[<-statuses]++
			}
			if got[200] != cap(statuses) {
				t.Errorf("%s: statuses %v, want %d times 200", tt.name, got, cap(statuses))
			}
			// Nothing was charged: ten failures are left, and no more.
			got = map[int]int{}
			for range 11 {
				got[serve(api, request("GET", "/api/v1/any", wellFormed(), "")).StatusCode]++
			}
			if got[401] != 10 || got[429] != 1 {
				t.Errorf("%s: failures afterwards: %v, want 10 times 401", tt.name, got)
			}
		})
	}
}
