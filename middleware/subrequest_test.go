package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// A handler may send requests of its own through the API on its own context. Each
// is decided for itself, and none changes who the outer one is.
func TestRequestWithinRequest(t *testing.T) {
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
	service, _ := ring.grant(t, keystore.Grant{Organization: "org_service", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksWrite}})
	outer, powerless := ring.issue(t), ring.issue(t, scope.TasksRead)
	var runs atomic.Int64
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	within := func(r *http.Request, token, key string) *httptest.ResponseRecorder {
		sub, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, "/api/v1/tasks", strings.NewReader("{}"))
		sub.Header.Set("Authorization", "Bearer "+token)
		sub.Header.Set("Idempotency-Key", key)
		rec := httptest.NewRecorder()
		api.ServeHTTP(rec, sub)
		return rec
	}
	api.HandleFunc("POST /api/v1/batch", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		for i, want := range []string{"", "true"} {
			rec := within(r, service, "same")
			if got := rec.Header().Get("Idempotent-Replayed"); rec.Code != http.StatusCreated || got != want || len(rec.Header()["Svc-Request-Id"]) != 1 {
				t.Errorf("inner request %d: %d with %v, want 201 and replayed %q", i, rec.Code, rec.Header(), want)
			}
		}
		var parallel sync.WaitGroup
		for range 50 {
			parallel.Go(func() { within(r, service, "other") })
			parallel.Go(func() {
				if rec := within(r, powerless, "other"); rec.Code != http.StatusForbidden {
					t.Errorf("a key without the scope got %d", rec.Code)
				}
			})
		}
		parallel.Wait()
		who, _ := middleware.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, who.Organization())
	})
	got := serve(api, request("POST", "/api/v1/batch", outer, "{}", "Idempotency-Key: outer"))
	if got.StatusCode != 200 || got.body != "org_1" {
		t.Errorf("the outer request: %d %q, want 200 and its own organization", got.StatusCode, got.body)
	}
	if runs.Load() != 2 {
		t.Errorf("ran %d times for two keys", runs.Load())
	}
}

// A handler beside the API, within RequestID alone, sends requests on its own
// context before anybody is authenticated: at once, or one after another.
func TestRequestsWithinRequestIDAlone(t *testing.T) {
	ring := newKeyring()
	strong, _ := ring.grant(t, keystore.Grant{Organization: "org_strong", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksWrite}})
	weak, _ := ring.grant(t, keystore.Grant{Organization: "org_weak", Environment: keystore.Production})
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), Limits: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1000-S"))})
	api.HandleFunc("POST /api/v1/x", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		who, _ := middleware.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, who.Organization())
	})
	api.HandleFunc("GET /api/v1/nothing", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	guarded := middleware.RequireScope(middleware.Require(scope.TasksWrite), middleware.ScopeOptions{Hooks: quiet()})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request without a key ran a guarded handler")
	}))
	batch := middleware.RequestID(middleware.RequestIDOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		within := func(method, path, token string) answer {
			return serve(api, request(method, path, token, "").WithContext(r.Context()))
		}
		if got := within("GET", "/api/v1/nothing", strong); got.StatusCode != 200 || got.Header.Get("Svc-Request-Id") != middleware.RequestIDFrom(r.Context()) {
			t.Errorf("an empty response: %d with %v", got.StatusCode, got.Header)
		}
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if got := within("POST", "/api/v1/x", weak); got.StatusCode != 403 {
					t.Errorf("a key without the scope got %d as %s", got.StatusCode, got.body)
				}
			})
			wg.Go(func() {
				if got := within("POST", "/api/v1/x", strong); got.StatusCode != 200 || got.body != "org_strong" {
					t.Errorf("a key with the scope got %d as %s", got.StatusCode, got.body)
				}
			})
		}
		wg.Wait()
		if who, ok := middleware.PrincipalFrom(r.Context()); ok {
			t.Errorf("the request outside has become %s", who.Organization())
		}
		guarded.ServeHTTP(w, r)
	}))
	if got := serve(batch, request("POST", "/batch", "", "")); got.StatusCode != 500 {
		t.Errorf("the guarded handler outside: got %d, want 500", got.StatusCode)
	}
}

// TestKeyFromAnotherHeader: a stage in between that puts the key where it belongs
// does not put it into the log.
func TestKeyFromAnotherHeader(t *testing.T) {
	ring := newKeyring()
	token, logged := ring.issue(t), newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: logged.hooks()})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		panic("cannot read " + r.Header.Get("Authorization"))
	})
	h := middleware.RequestID(middleware.RequestIDOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+r.Header.Get("X-Api-Key"))
		api.ServeHTTP(w, r)
	}))
	if got := serve(h, request("GET", "/api/v1/x", "", "", "X-Api-Key: "+token)); got.StatusCode != 500 || strings.Contains(logged.String(), token) {
		t.Errorf("got %d, and the log has the key: %t", got.StatusCode, strings.Contains(logged.String(), token))
	}
}

// TestPathValuesOfALargerMux: the API's mux leaves alone what one outside has found.
func TestPathValuesOfALargerMux(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Base: "/t"})
	api.HandleFunc("GET /t/{x}/y", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	for _, path := range []string{"/t/acme/y", "/t/acme/none"} {
		mux := http.NewServeMux()
		mux.HandleFunc("/t/{tenant}/", func(w http.ResponseWriter, r *http.Request) {
			api.ServeHTTP(w, r)
			if tenant := r.PathValue("tenant"); tenant != "acme" || r.Pattern != "/t/{tenant}/" {
				t.Errorf("%s: tenant %q and pattern %q afterwards", path, tenant, r.Pattern)
			}
		})
		serve(mux, request("GET", path, token, ""))
	}
}

// NotStarted speaks for the operation whose claim the handler runs under, through
// whatever stages stand in between, and for no other.
func TestNotStartedOfWhom(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	between := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	limited := middleware.RateLimit(middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1000-S")))
	api := middleware.NewAPI(ring.keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/inner", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { middleware.NotStarted(r.Context()) })
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		freed   bool
	}{
		"its own": {func(w http.ResponseWriter, r *http.Request) { middleware.NotStarted(r.Context()) }, true},
		"of a request within": {func(w http.ResponseWriter, r *http.Request) {
			serve(api, request("POST", "/api/v1/inner", token, "").WithContext(r.Context()))
		}, false},
	} {
		runs := 0
		h := keyed(ring, replies(), middleware.IdempotencyOptions{}, between(limited(between(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			tt.handler(w, r)
		})))))
		for range 2 {
			serve(h, request("POST", "/x", token, "{}", "Idempotency-Key: a"))
		}
		if freed := runs == 2; freed != tt.freed {
			t.Errorf("%s: ran %d times for one key, want the key freed: %t", name, runs, tt.freed)
		}
	}
}

// TestHedgedRequest: somebody outside the API may pass on one request twice at once.
func TestHedgedRequest(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	h := middleware.RequestID(middleware.RequestIDOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				r := r.WithContext(r.Context())
				r.Body = io.NopCloser(strings.NewReader("{}"))
				rec := httptest.NewRecorder()
				if api.ServeHTTP(rec, r); rec.Code != 201 {
					t.Errorf("got %d", rec.Code)
				}
			})
		}
		both.Wait()
	}))
	r := request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: a")
	if serve(h, r); runs.Load() != 1 || r.Pattern != "POST /api/v1/x" {
		t.Errorf("ran %d times, pattern %q", runs.Load(), r.Pattern)
	}
}
