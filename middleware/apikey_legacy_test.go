package middleware_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

const (
	jwt     = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1c2VyXzEifQ.c2lnbmF0dXJl"
	oldKey  = "acme_0123456789abcdef0123456789abcdef01234567"
	oldKey2 = "acme_fedcba9876543210fedcba9876543210fedcba98"
	bareKey = "00112233445566778899aabbccddeeff00112233" // nothing says that it is a key
)

func mac(pepper, token string) (d keystore.Digest) {
	h := hmac.New(sha256.New, []byte(pepper))
	h.Write([]byte(token))
	h.Sum(d[:0])
	return d
}

// acme is a service with keys of an older system, hashed with one of two
// peppers.
func acme() keystore.Service {
	return keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name: "acme", Prefix: "acme_", Match: func(token string) bool { return len(token) == 45 },
		Digests: keystore.HMACDigests([]byte("the new pepper"), []byte("the old pepper")),
	}}}
}

// importOld stores the key of an older system under the digest of a pepper.
func importOld(t *testing.T, ring *keyring, token, pepper string, e keystore.Environment) *keystore.Key {
	t.Helper()
	issuer := keystore.NewIssuer(ring.memory, keystore.IssuerOptions{Service: acme()})
	key, err := issuer.Import(t.Context(), &keystore.Key{
		Organization: "org_1", CreatedBy: "import", Name: "old", Environment: e,
		Legacy: "acme", Digest: mac(pepper, token), Hint: token[len(token)-4:],
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestLegacyKeys: keys of an older shape pass under each of their digests, and
// their record says of which environment they are.
func TestLegacyKeys(t *testing.T) {
	ring := newKeyring()
	key := importOld(t, ring, oldKey, "the old pepper", keystore.Production)
	importOld(t, ring, oldKey2, "the new pepper", keystore.Sandbox)
	token := ring.issue(t)
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), Service: acme(), Keys: middleware.KeyOptions{Environment: keystore.Production}})
	for _, tt := range []struct {
		name, token string
		status      int
		detail      string
		asked       int64
	}{
		{"the second pepper", oldKey, 200, "", 2},
		{"the present shape", token, 200, "", 1},
		{"another environment", oldKey2, 401, "the API key is a sandbox one", 1},
		{"unknown", strings.Replace(oldKey, "0", "9", 1), 401, "not valid", 2},
		{"cut off", oldKey[:20], 401, "not copied whole", 0},
	} {
		before := store.lookups.Load()
		res := serve(api, request("GET", "/api/v1/any", tt.token, ""))
		if asked := store.lookups.Load() - before; res.StatusCode != tt.status || asked != tt.asked {
			t.Errorf("%s: got %d after %d look-ups, want %d after %d", tt.name, res.StatusCode, asked, tt.status, tt.asked)
		}
		if tt.status == 401 && !strings.Contains(res.problem(t).Detail, tt.detail) {
			t.Errorf("%s: got %s, want it about %q", tt.name, res.body, tt.detail)
		}
	}
	revoked := key.Clone()
	revoked.Suspended = true
	if err := ring.keys.Update(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	if res := serve(api, request("GET", "/api/v1/any", oldKey, "")); res.StatusCode != 401 || !strings.Contains(res.body, "suspended") {
		t.Errorf("suspended: got %d %s", res.StatusCode, res.body)
	}
	broken := acme()
	broken.Legacy[0].Digests = func(string) []keystore.Digest { return make([]keystore.Digest, 9) }
	log := newLogged()
	res := serve(testAPI(store, middleware.Options{Hooks: log.hooks(), Service: broken}), request("GET", "/api/v1/any", oldKey, ""))
	if wantRefusal(t, "broken Digests", res, 503, "key_store_unavailable", ""); !strings.Contains(log.String(), "9 digests") {
		t.Errorf("broken Digests: got the log %s", log)
	}
}

// TestThrottleLegacyKeys: over budget, a live key that the cache knows under
// any of its digests passes, and no other token reaches the store.
func TestThrottleLegacyKeys(t *testing.T) { synctest.Test(t, throttleLegacyKeys) }

func throttleLegacyKeys(t *testing.T) {
	ring := newKeyring()
	importOld(t, ring, oldKey, "the old pepper", keystore.Production)
	key2 := importOld(t, ring, oldKey2, "the old pepper", keystore.Production)
	store := &countedStore{Store: ring.memory}
	cached := keystore.NewCached(store, keystore.CacheOptions{Service: acme()})
	api := testAPI(cached, middleware.Options{Hooks: quiet(), Failures: ratelimit.MustParse("2-H")})
	ask := func(token string) int { return serve(api, request("GET", "/api/v1/any", token, "")).StatusCode }
	unknown := func(i int) string { return fmt.Sprintf("acme_%040d", i) }

	for i, want := range []int{200, 200, 401, 401, 429, 429} {
		token := unknown(i)
		if i < 2 {
			token = []string{oldKey, oldKey2}[i]
		}
		if got := ask(token); got != want {
			t.Fatalf("request %d: got %d, want %d", i, got, want)
		}
	}
	before := store.lookups.Load()
	for i := range 20 {
		if got := ask(unknown(100 + i)); got != 429 {
			t.Errorf("an unknown key over budget: got %d", got)
		}
		if got := ask(oldKey); got != 200 {
			t.Errorf("a live key over budget: got %d", got)
		}
	}
	if asked := store.lookups.Load() - before; asked != 0 {
		t.Errorf("the store was asked %d times over budget", asked)
	}
	// What the cache remembers is too old by now: the store decides.
	time.Sleep(5 * time.Minute)
	if got := ask(oldKey); got != 200 || store.lookups.Load() == before {
		t.Errorf("a live key over budget that is looked up again: got %d after %d look-ups", got, store.lookups.Load()-before)
	}
	suspended := key2.Clone()
	suspended.Suspended = true
	if err := ring.memory.Update(t.Context(), suspended); err != nil {
		t.Fatal(err)
	}
	cached.Invalidate(key2.Digest)
	if got := ask(oldKey2); got != 429 {
		t.Errorf("a key that is not live any more: got %d, want the throttle's refusal", got)
	}
}
