package middleware_test

import (
	"context"
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

// A handler may send requests of its own through the API on its own context.
// Each is decided for itself, and none changes who the outer one is.
func TestRequestWithinRequest(t *testing.T) {
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
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
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1000-S"))})
	api.HandleFunc("POST /api/v1/x", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		who, _ := middleware.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, who.Organization())
	})
	api.HandleFunc("GET /api/v1/nothing", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	guarded := middleware.New(nil, middleware.Options{Hooks: quiet()}).Require(scope.TasksWrite)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request without a key ran a guarded handler")
	}))
	batch := middleware.New(nil, middleware.Options{}).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// TestKeyFromAnotherHeader: a stage in between that puts the key where it
// belongs does not put it into the log.
func TestKeyFromAnotherHeader(t *testing.T) {
	ring := newKeyring()
	token, logged := ring.issue(t), newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: logged.hooks()})
	api.HandleFunc("GET /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		panic("cannot read " + r.Header.Get("Authorization"))
	})
	h := middleware.New(nil, middleware.Options{}).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+r.Header.Get("X-Api-Key"))
		api.ServeHTTP(w, r)
	}))
	if got := serve(h, request("GET", "/api/v1/x", "", "", "X-Api-Key: "+token)); got.StatusCode != 500 || strings.Contains(logged.String(), token) {
		t.Errorf("got %d, and the log has the key: %t", got.StatusCode, strings.Contains(logged.String(), token))
	}
}

// TestPathValuesOfALargerMux: the API's mux leaves the path values alone that
// one outside has found, and tells it the inner pattern at the end.
func TestPathValuesOfALargerMux(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Base: "/t"})
	api.HandleFunc("GET /t/{x}/y", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	for path, pattern := range map[string]string{"/t/acme/y": "GET /t/{x}/y", "/t/acme/none": "/t/{tenant}/"} {
		mux := http.NewServeMux()
		mux.HandleFunc("/t/{tenant}/", func(w http.ResponseWriter, r *http.Request) {
			api.ServeHTTP(w, r)
			if tenant := r.PathValue("tenant"); tenant != "acme" || r.Pattern != pattern {
				t.Errorf("%s: tenant %q and pattern %q afterwards", path, tenant, r.Pattern)
			}
		})
		serve(mux, request("GET", path, token, ""))
	}
}

// FreeKey speaks for the operation whose claim the handler runs under,
// through whatever stages stand in between, and for no other.
func TestFreeKeyOfWhom(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	between := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	limited := middleware.New(nil, middleware.Options{RateLimit: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1000-S"))}).RateLimit
	api := middleware.NewAPI(ring.keys, middleware.Options{})
	api.HandleFunc("POST /api/v1/inner", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { middleware.FreeKey(r.Context()) })
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		freed   bool
	}{
		"its own": {func(w http.ResponseWriter, r *http.Request) { middleware.FreeKey(r.Context()) }, true},
		"of a request within": {func(w http.ResponseWriter, r *http.Request) {
			serve(api, request("POST", "/api/v1/inner", token, "").WithContext(r.Context()))
		}, false},
	} {
		runs := 0
		h := keyed(ring, middleware.Options{}, between(limited(between(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// TestHedgedRequest: somebody outside the API may pass on one request twice at
// once.
func TestHedgedRequest(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	h := middleware.New(nil, middleware.Options{}).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	if serve(h, r); runs.Load() != 1 {
		t.Errorf("ran %d times", runs.Load())
	}
}

// TestFreeKeyOfANestedRequest: a keyed handler creates something and then
// sends a request on its own context to a handler that calls FreeKey. That
// frees the claim of the inner request alone.
func TestFreeKeyOfANestedRequest(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	options := func() middleware.Options {
		return middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
	}
	// Each builds the same two routes, /batch and /inner.
	builds := map[string]func(batch, inner http.HandlerFunc) http.Handler{
		"API": func(batch, inner http.HandlerFunc) http.Handler {
			api := middleware.NewAPI(ring.keys, options())
			api.HandleFunc("POST /api/v1/batch", middleware.AnyKey(), batch)
			api.HandleFunc("POST /api/v1/inner", middleware.AnyKey(), inner)
			return api
		},
	}
	for name, ids := range map[string]bool{"pieces": true, "pieces without RequestID": false} {
		builds[name] = func(batch, inner http.HandlerFunc) http.Handler {
			g := middleware.New(ring.keys, options())
			stages := middleware.Chain(g.Authenticate, g.AnyKey, g.Idempotent)
			if ids {
				stages = middleware.Chain(g.RequestID, g.Recover, stages)
			}
			mux := http.NewServeMux()
			mux.Handle("POST /api/v1/batch", stages(batch))
			mux.Handle("POST /api/v1/inner", stages(inner))
			return mux
		}
	}
	for name, build := range builds {
		for _, innerKey := range []string{"", "inner"} {
			var h http.Handler
			created, inner := 0, 0
			sendInner := func(ctx context.Context) answer {
				r := request("POST", "/api/v1/inner", token, "{}").WithContext(ctx)
				if innerKey != "" {
					r.Header.Set("Idempotency-Key", innerKey)
				}
				return serve(h, r)
			}
			h = build(func(w http.ResponseWriter, r *http.Request) {
				created++
				if a := sendInner(r.Context()); a.StatusCode != 200 {
					t.Errorf("%s, inner key %q: the inner request got %d %s", name, innerKey, a.StatusCode, a.body)
				}
				w.WriteHeader(http.StatusCreated)
			}, func(w http.ResponseWriter, r *http.Request) {
				inner++
				middleware.FreeKey(r.Context())
			})
			for range 3 {
				if a := serve(h, request("POST", "/api/v1/batch", token, "{}", "Idempotency-Key: outer")); a.StatusCode != 201 {
					t.Errorf("%s, inner key %q: %d %s", name, innerKey, a.StatusCode, a.body)
				}
			}
			sendInner(t.Context())
			if created != 1 || inner != 2 {
				t.Errorf("%s, inner key %q: created %d, the inner handler ran %d times; want 1 and 2", name, innerKey, created, inner)
			}
		}
	}
}

// TestRefusalOfANestedRequest: a 429 of RateLimit in a request within a request
// frees nothing of the outer one.
func TestRefusalOfANestedRequest(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	limit := middleware.New(nil, middleware.Options{RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Client: policy("client", "1-H", 0)}}).RateLimit(http.HandlerFunc(sayOK))
	created := 0
	h := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		created++
		for _, want := range []int{200, 429} {
			if a := serve(limit, request("GET", "/", "", "").WithContext(r.Context())); a.StatusCode != want {
				t.Errorf("the inner request got %d, want %d", a.StatusCode, want)
			}
		}
	}))
	for range 3 {
		serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	}
	if created != 1 {
		t.Errorf("created %d times, want once", created)
	}
}

// TestStagesCalledTwice: a handler calls stages again for its own request. The
// key is claimed once.
func TestStagesCalledTwice(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksWrite)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	var runs []string
	create := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := middleware.PrincipalFrom(r.Context())
		runs = append(runs, who.Organization())
	})
	for name, twice := range map[string]http.Handler{
		"Idempotent":                    g.Idempotent(create),
		"RequestID and Recover":         middleware.Chain(g.RequestID, g.Recover)(create),
		"RateLimit, which has no limit": g.RateLimit(create),
	} {
		runs = nil
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey, g.Idempotent)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			twice.ServeHTTP(w, r)
			twice.ServeHTTP(w, r)
		}))
		for _, replayed := range []string{"", "true"} {
			a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+name))
			if wantID(t, a.Response); a.StatusCode != 200 || a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: %d %s, replayed %q, want 200 and %q", name, a.StatusCode, a.body, a.Header.Get("Idempotent-Replayed"), replayed)
			}
		}
		if strings.Join(runs, " ") != "org_1 org_1" {
			t.Errorf("%s: the handler ran for %q, want twice for org_1", name, runs)
		}
	}
}
