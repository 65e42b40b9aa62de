package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// countedStore counts lookups.
type countedStore struct {
	keystore.Store
	lookups atomic.Int64
}

func (s *countedStore) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	s.lookups.Add(1)
	return s.Store.Lookup(ctx, d)
}

// lookupFunc is a store in one function.
type lookupFunc func(context.Context, keystore.Digest) (*keystore.Key, error)

func (f lookupFunc) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	return f(ctx, d)
}

const (
	missing = `Bearer realm="api"`
	invalid = `Bearer realm="api", error="invalid_token"`
)

// wantRefusal checks status, code, challenge and what every refusal carries.
func wantRefusal(t testing.TB, what string, res answer, status int, code, challenge string) {
	t.Helper()
	p := res.problem(t)
	if res.StatusCode != status || p.Code != code || p.Status != status || p.RequestID != wantID(t, res.Response) {
		t.Errorf("%s: got %d %s, want %d %q with the id of the header", what, res.StatusCode, res.body, status, code)
	}
	if got := strings.Join(res.Header.Values("Www-Authenticate"), "|"); got != challenge {
		t.Errorf("%s: got challenge %q, want %q", what, got, challenge)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("%s: got Cache-Control %q", what, got)
	}
	if (res.Header.Get("Retry-After") != "") != (status == 429 || status == 503) {
		t.Errorf("%s: got Retry-After %q with %d", what, res.Header.Get("Retry-After"), status)
	}
}

// TestRefusalsHelp: the detail says which mistake was made, and nothing about
// keys that the client does not hold.
func TestRefusalsHelp(t *testing.T) {
	ring := newKeyring()
	past := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	live := ring.issue(t)
	tests := []struct{ name, token, detail string }{
		{"cut off", live[:20], "wrong length"},
		{"mistyped", swapLast(live), "mistyped"},
		{"other prefix", "sk_live_0123456789", "prefix of this service"},
		{"publishable", "svc_pub_0123456789", "publishable key"},
		{"unknown environment", "svc_prod_0123456789", "names no environment of this service"},
		{"quoted", `"` + live + `"`, "quote"},
		{"too long", strings.Repeat("a", 300), "longer than any key"},
		{"unknown", keystore.Service{}.Generate(keystore.Production).Reveal(), "The API key is not valid."},
		{"expired", ring.plant(t, keystore.Key{ExpiresAt: past}), "expired on 2020-02-03 04:05:06 UTC"},
		{"revoked", ring.plant(t, keystore.Key{RevokedAt: past}), "revoked on 2020-02-03 04:05:06 UTC"},
		{"suspended", ring.plant(t, keystore.Key{Suspended: true}), "suspended"},
		{"revoked and without the scope", ring.plant(t, keystore.Key{RevokedAt: past}), "revoked"},
	}
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	for _, tt := range tests {
		res := serve(api, request("GET", "/api/v1/account", tt.token, ""))
		wantRefusal(t, tt.name, res, 401, "api_key_invalid", invalid)
		if got := res.problem(t).Detail; !strings.Contains(got, tt.detail) || strings.Contains(got, tt.token) {
			t.Errorf("%s: got detail %q, want one about %q", tt.name, got, tt.detail)
		}
	}
}

func TestEnvironmentOfHost(t *testing.T) {
	ring := newKeyring()
	live := ring.issue(t)
	test, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Sandbox})
	store := &countedStore{Store: ring.memory}
	api := testAPI(store, middleware.Options{Hooks: quiet(), Keys: middleware.KeyOptions{Environment: keystore.Production, Realm: "live"}})
	res := serve(api, request("GET", "/api/v1/any", test, ""))
	wantRefusal(t, "test key", res, 401, "api_key_invalid", `Bearer realm="live", error="invalid_token"`)
	if got := res.problem(t).Detail; got != "This host takes production keys, and the API key is a sandbox one." || store.lookups.Load() != 0 {
		t.Errorf("got %q after %d lookups", got, store.lookups.Load())
	}
	if res := serve(api, request("GET", "/api/v1/any", live, "")); res.StatusCode != 200 {
		t.Errorf("live key: got %d", res.StatusCode)
	}
}

// TestStoreAnswers: only "no such key" is 401. A store that fails, gives back
// nothing or a record that does not fit is an error of ours: 503, and the cause
// is in the log. A cache in front of the store changes nothing.
func TestStoreAnswers(t *testing.T) {
	ring := newKeyring()
	token, key := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production})
	wrongDigest, wrongEnvironment := key.Clone(), key.Clone()
	wrongDigest.Digest[0]++
	wrongEnvironment.Environment = keystore.Sandbox
	const secretText = "password=hunter2"
	tests := []struct {
		name   string
		key    *keystore.Key
		err    error
		status int
		logs   string
	}{
		{"found", key, nil, 200, ""},
		{"not found", nil, keystore.ErrNotFound, 401, ""},
		{"not found, wrapped", nil, fmt.Errorf("in table keys: %w", keystore.ErrNotFound), 401, ""},
		{"nothing", nil, nil, 503, "keystore: record is corrupt"},
		{"other digest", wrongDigest, nil, 503, "keystore: record is corrupt"},
		{"other environment", wrongEnvironment, nil, 503, "keystore: record is corrupt"},
		{"corrupt", nil, fmt.Errorf("row 7: %w", keystore.ErrCorrupt), 503, "row 7"},
		{"down", nil, errors.New("dial tcp: " + secretText), 503, secretText},
		{"overloaded", nil, keystore.ErrOverloaded, 503, "too many lookups"},
		{"timed out", nil, context.DeadlineExceeded, 503, "deadline exceeded"},
	}
	for _, tt := range tests {
		store := lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { return tt.key, tt.err })
		for name, keys := range map[string]keystore.Store{tt.name: store, tt.name + ", cached": keystore.NewCached(store, keystore.CacheOptions{})} {
			log := newLogged()
			res := serve(testAPI(keys, middleware.Options{Hooks: log.hooks()}), request("GET", "/api/v1/any", token, ""))
			switch tt.status {
			case 200:
				if res.StatusCode != 200 {
					t.Errorf("%s: got %d %s", name, res.StatusCode, res.body)
				}
			case 401:
				wantRefusal(t, name, res, 401, "api_key_invalid", invalid)
			case 503:
				wantRefusal(t, name, res, 503, "key_store_unavailable", "")
			}
			if strings.Contains(res.body, secretText) || strings.Contains(res.body, "row 7") {
				t.Errorf("%s: the cause is in the body: %s", name, res.body)
			}
			got := log.String()
			if tt.logs == "" && got != "" || tt.logs != "" && (!strings.Contains(got, tt.logs) || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "could not be checked")) {
				t.Errorf("%s: got the log %q, want an error about %q", name, got, tt.logs)
			}
		}
	}
}

// TestClientLeavesDuringLookup: the look-up goes on, because net/http also
// reports a client that has only closed its sending half.
func TestClientLeavesDuringLookup(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	ctx, leave := context.WithCancel(t.Context())
	store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		leave()
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the look-up has no deadline")
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return ring.memory.Lookup(ctx, d)
	})
	log := newLogged()
	if res := serve(testAPI(store, middleware.Options{Hooks: log.hooks()}), request("GET", "/api/v1/any", token, "").WithContext(ctx)); res.StatusCode != 200 || log.String() != "" {
		t.Errorf("got %d and the log %q", res.StatusCode, log)
	}
}

// TestKeyExpiresWhileCached: the instant counts, not the lookup.
func TestKeyExpiresWhileCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production, ExpiresAt: time.Now().Add(10 * time.Second)})
		api := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
		ask := func() int { return serve(api, request("GET", "/api/v1/any", token, "")).StatusCode }
		if got := ask(); got != 200 {
			t.Errorf("at once: got %d", got)
		}
		time.Sleep(10*time.Second - 1)
		if got := ask(); got != 200 {
			t.Errorf("a nanosecond before: got %d", got)
		}
		time.Sleep(time.Nanosecond)
		if got := ask(); got != 401 {
			t.Errorf("at the instant: got %d", got)
		}
	})
}

// TestRevokedKeyIsRefusedAtOnce: through the cache that the issuer works on.
func TestRevokedKeyIsRefusedAtOnce(t *testing.T) {
	ring := newKeyring()
	token, key := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production})
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	if res := serve(api, request("GET", "/api/v1/any", token, "")); res.StatusCode != 200 {
		t.Fatalf("got %d", res.StatusCode)
	}
	changed := key.Clone()
	changed.RevokedAt = time.Now()
	if err := ring.keys.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if res := serve(api, request("GET", "/api/v1/any", token, "")); res.StatusCode != 401 {
		t.Errorf("got %d after the revocation", res.StatusCode)
	}
}

func TestRejectBrowsers(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := &countedStore{Store: ring.memory}
	rejecting := testAPI(store, middleware.Options{Hooks: quiet(), Keys: middleware.KeyOptions{RejectBrowsers: true}})
	open := testAPI(ring.keys, middleware.Options{Hooks: quiet()})
	tests := []struct {
		header string
		want   int
	}{
		{"Sec-Fetch-Site: cross-site", 401},
		{"Sec-Fetch-Site: same-site", 401},
		{"Sec-Fetch-Site: same-origin", 401},
		{"Sec-Fetch-Site: none", 200}, // typed into the address bar, as some tools do
		{"Sec-Fetch-Mode: cors", 200}, // what fetch of Node.js sends
		{"Origin: https://shop.example", 401},
		{"Origin: null", 401},
		{"User-Agent: Mozilla/5.0", 200},
	}
	for _, tt := range tests {
		before := store.lookups.Load()
		res := serve(rejecting, request("GET", "/api/v1/any", token, "", tt.header))
		if res.StatusCode != tt.want {
			t.Errorf("%s: got %d, want %d", tt.header, res.StatusCode, tt.want)
		}
		if tt.want == 401 {
			wantRefusal(t, tt.header, res, 401, "api_key_invalid", invalid)
			if !strings.Contains(res.problem(t).Detail, "browser") || store.lookups.Load() != before {
				t.Errorf("%s: got %s", tt.header, res.body)
			}
		}
		if res := serve(open, request("GET", "/api/v1/any", token, "", tt.header)); res.StatusCode != 200 {
			t.Errorf("%s without the option: got %d", tt.header, res.StatusCode)
		}
	}
}

// TestLastUsed: accepted keys are noted, refused ones are not.
func TestLastUsed(t *testing.T) {
	ring := newKeyring()
	token, key := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Production})
	past := ring.plant(t, keystore.Key{ID: "key_past", ExpiresAt: time.Unix(1e9, 0)})
	last := keystore.NewLastUsed(ring.memory, keystore.LastUsedOptions{})
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), Keys: middleware.KeyOptions{LastUsed: last}})
	serve(api, request("GET", "/api/v1/any", token, ""))
	serve(api, request("GET", "/api/v1/any", past, ""))
	if err := flush(last); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{key.ID: true, "key_past": false} {
		found, err := ring.memory.Find(t.Context(), "org_1", id)
		if err != nil || !found.LastUsedAt.IsZero() != want {
			t.Errorf("%s: got %v, %v; used: %v", id, found.LastUsedAt, err, want)
		}
	}
}

// nobody is an Authenticator that knows no caller.
type nobody struct{}

func (nobody) Authenticate(*http.Request) (middleware.Principal, error) {
	return middleware.Principal{}, middleware.ErrNoCredentials
}

func TestAuthenticatePanics(t *testing.T) {
	keys := keystore.NewMemory()
	with := func(o middleware.KeyOptions) func() {
		return func() { middleware.New(keys, middleware.Options{Keys: o}) }
	}
	for want, f := range map[string]func(){
		"without a key store":   func() { keyless().Authenticate(http.NotFoundHandler()) },
		"leave one of them nil": func() { middleware.New(keys, middleware.Options{Authenticator: nobody{}}) },
		`prefix "No!"`:          func() { middleware.New(keys, middleware.Options{Service: keystore.Service{Prefix: "No!"}}) },
		`the realm "a\"b"`:      with(middleware.KeyOptions{Realm: `a"b`}),
		`the realm "a\nb"`:      with(middleware.KeyOptions{Realm: "a\nb"}),
		`environment "staging"`: with(middleware.KeyOptions{Environment: "staging"}),
	} {
		wantPanic(t, want, f)
	}
}

// TestAuthenticateAlone: it needs nothing before it.
func TestAuthenticateAlone(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	h := middleware.New(ring.keys, middleware.Options{Hooks: quiet()}).Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := middleware.PrincipalFrom(r.Context())
		fmt.Fprint(w, p.Organization(), ok)
	}))
	if res := serve(h, request("GET", "/", token, "")); res.body != "org_1true" {
		t.Errorf("got %d %q", res.StatusCode, res.body)
	}
	res := serve(h, request("GET", "/", "", ""))
	if p := res.problem(t); res.StatusCode != 401 || p.Code != "api_key_missing" || p.RequestID != "" || res.Header.Get("Www-Authenticate") != missing {
		t.Errorf("got %d %s", res.StatusCode, res.body)
	}
}

// authenticatorFunc is an Authenticator in one function.
type authenticatorFunc func(*http.Request) (middleware.Principal, error)

func (f authenticatorFunc) Authenticate(r *http.Request) (middleware.Principal, error) { return f(r) }

// TestAuthenticator: each of the answers that an Authenticator may give, and
// those that it may not.
func TestAuthenticator(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var caller middleware.Principal
	g := middleware.New(ring.keys, middleware.Options{})
	serve(g.Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ = middleware.PrincipalFrom(r.Context())
	})), request("GET", "/", token, ""))

	byHand, err := middleware.NewPrincipal(nil, middleware.Identity{Organization: "org_1", Subject: "user_1"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := middleware.NewPrincipal(scope.New(), middleware.Identity{Organization: "org_1"})
	if err != nil {
		t.Fatal(err)
	}
	teapot := &middleware.Problem{Status: 418, Code: "teapot", Detail: "No."}
	for _, tt := range []struct {
		name      string
		principal middleware.Principal
		err       error
		status    int
		code      string
		logged    string
	}{
		{"a caller", caller, nil, 200, "", ""},
		{"no credentials", middleware.Principal{}, middleware.ErrNoCredentials, 401, "api_key_missing", ""},
		{"no credentials, wrapped", middleware.Principal{}, fmt.Errorf("cookie: %w", middleware.ErrNoCredentials), 401, "api_key_missing", ""},
		{"refused", middleware.Principal{}, teapot, 418, "teapot", ""},
		{"broken", middleware.Principal{}, errors.New("no answer"), 503, "key_store_unavailable", "no answer"},
		{"broken, and yet a caller", caller, errors.New("no answer"), 503, "key_store_unavailable", "no answer"},
		{"neither", middleware.Principal{}, nil, 500, "internal", "neither a principal nor an error"},
		{"a nil problem", middleware.Principal{}, (*middleware.Problem)(nil), 500, "internal", "a nil *Problem"},
		{"a problem that refuses nothing", middleware.Principal{}, &middleware.Problem{Status: 200}, 500, "internal", "status 200"},
		{"a principal of other scopes", foreign, nil, 500, "internal", "another scope registry"},
		{"a principal made by hand", byHand, nil, 200, "", ""},
	} {
		log := newLogged()
		o := middleware.Options{Hooks: log.hooks(), Authenticator: authenticatorFunc(func(*http.Request) (middleware.Principal, error) {
			return tt.principal, tt.err
		})}
		res := serve(testAPI(nil, o), request("GET", "/api/v1/any", "", ""))
		if res.StatusCode != tt.status || tt.code != "" && res.problem(t).Code != tt.code {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, res.StatusCode, res.body, tt.status, tt.code)
		}
		if got := log.String(); (got != "") != (tt.logged != "") || !strings.Contains(got, tt.logged) {
			t.Errorf("%s: got the log %q, want one about %q", tt.name, got, tt.logged)
		}
	}
}

// heedful is a limiter's store that gives up when its context ends.
type heedful struct{ ratelimit.Store }

func (s heedful) Take(ctx context.Context, takes []ratelimit.Charge) (ratelimit.Decision, error) {
	if err := ctx.Err(); err != nil {
		return ratelimit.Decision{}, err
	}
	return s.Store.Take(ctx, takes)
}

// TestHalfClosedClient: a client that closes its sending half after the request
// still waits for the response. net/http cancels the request's context then.
func TestHalfClosedClient(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	left := make(chan (<-chan struct{}), 1)
	store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		<-<-left // net/http has noticed
		return ring.memory.Lookup(ctx, d)
	})
	log := newLogged()
	for name, keys := range map[string]keystore.Store{"bare": store, "cached": keystore.NewCached(store, keystore.CacheOptions{})} {
		o := middleware.Options{
			Hooks: log.hooks(), RateLimit: middleware.PerOrganization(heedful{ratelimit.NewMemory()}, ratelimit.MustParse("100-S")),
			Idempotency: middleware.IdempotencyOptions{Runner: replies()},
		}
		api := middleware.NewAPI(keys, o)
		api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), sayOK)
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), sayOK)
		srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case left <- r.Context().Done():
			default:
			}
			api.ServeHTTP(w, r)
		}))
		for _, head := range []string{"GET /api/v1/x HTTP/1.1\r\n", "POST /api/v1/x HTTP/1.1\r\nContent-Length: 0\r\n", "POST /api/v1/x HTTP/1.1\r\nContent-Length: 0\r\nIdempotency-Key: 1\r\n"} {
			if cached, ok := keys.(*keystore.Cached); ok {
				cached.Invalidate(keystore.DigestOf(token))
			}
			c := dial(t, srv)
			c.send(head + "Host: a\r\nAuthorization: Bearer " + token + "\r\n\r\n")
			if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if res := c.next("GET"); res.StatusCode != 200 || res.body != "ok" {
				t.Errorf("%s, %q: got %d %s", name, head, res.StatusCode, res.body)
			}
		}
	}
	if got := log.String(); got != "" {
		t.Errorf("got the log %s", got)
	}
}

// TestRefusalsOfAuthenticators: a status of the classes 4xx and 5xx is sent, any
// other breaks the contract.
func TestRefusalsOfAuthenticators(t *testing.T) {
	for status, want := range map[int]int{399: 500, 400: 400, 599: 599, 600: 500} {
		guard := middleware.New(nil, middleware.Options{Hooks: quiet(), Authenticator: middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
			return middleware.Principal{}, &middleware.Problem{Status: status, Code: "mine"}
		})})
		if res := serve(guard.Authenticate(http.HandlerFunc(sayOK)), request("GET", "/", "", "")); res.StatusCode != want {
			t.Errorf("status %d: got %d, want %d", status, res.StatusCode, want)
		}
	}
}
