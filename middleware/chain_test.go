package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

func TestChain(t *testing.T) {
	mark := func(name string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, name+"(")
				next.ServeHTTP(w, r)
				io.WriteString(w, ")")
			})
		}
	}
	h := http.HandlerFunc(sayOK)
	for want, chain := range map[string]func(http.Handler) http.Handler{
		"ok":          middleware.Chain(),
		"a(ok)":       middleware.Chain(mark("a")),
		"a(b(c(ok)))": middleware.Chain(mark("a"), middleware.Chain(mark("b"), mark("c"))),
	} {
		if got := serve(chain(h), request("GET", "/", "", "")).body; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	wantPanic(t, "a stage is nil", func() { middleware.Chain(mark("a"), nil) })
}

// TestMisplacedPieces: a stage that misses what must stand before it answers every
// request with 500 and says in the log what is missing.
func TestMisplacedPieces(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := ratelimit.NewMemory()
	authenticate := middleware.Authenticate(ring.keys, middleware.AuthOptions{})
	require := middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{})
	limit := middleware.RateLimit(middleware.PerOrganization(store, ratelimit.MustParse("9-S")))
	idempotent := middleware.Idempotency(replies(), middleware.IdempotencyOptions{})
	tests := []struct {
		name  string
		chain func(http.Handler) http.Handler
		log   string
	}{
		{"RequireScope alone", require, "RequireScope stands where no Authenticate is before it"},
		{"RequireScope before Authenticate", middleware.Chain(require, authenticate), "RequireScope stands where no Authenticate is before it"},
		{"RateLimit alone", limit, "RateLimit counts by organization or key where no Authenticate is before it"},
		{"RateLimit before Authenticate", middleware.Chain(limit, authenticate), "RateLimit counts by organization or key"},
		{"RateLimit by key alone", middleware.RateLimit(middleware.Limits{Store: store, Key: policy("key", "1-S", 0)}), "RateLimit counts by organization or key"},
		{"RateLimit of concurrency alone", middleware.RateLimit(middleware.Limits{Concurrent: 1}), "RateLimit counts by organization or key"},
		{"RateLimit by plan alone", middleware.RateLimit(middleware.Limits{Store: store, Plan: func(middleware.Principal) *ratelimit.Policy { return nil }}), "RateLimit counts by organization or key"},
		{"Idempotency alone", idempotent, "Idempotency stands where no RequireScope is before it"},
		{"Idempotency before RequireScope", middleware.Chain(authenticate, idempotent, require), "Idempotency stands where no RequireScope is before it"},
		{"RouteLimit outside an API", middleware.Chain(authenticate, middleware.RouteLimit{}.Handler), "RouteLimit stands outside an API"},
		{"ThrottleFailures behind Authenticate", middleware.Chain(authenticate, middleware.ThrottleFailures(ratelimit.MustParse("1-S"), middleware.ThrottleOptions{})), "ThrottleFailures stands behind Authenticate"},
	}
	for _, tt := range tests {
		log := newLogged()
		ran := false
		h := middleware.Chain(middleware.RequestID(middleware.RequestIDOptions{Hooks: log.hooks()}), tt.chain)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran = true }))
		res := serve(h, request("POST", "/secret-free/path", token, "", "Idempotency-Key: 1"))
		wantRefusal(t, tt.name, res, 500, "internal", "")
		if got := log.String(); ran || !strings.Contains(got, tt.log) || !strings.Contains(got, "path=/secret-free/path") || !strings.Contains(got, wantID(t, res.Response)) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: ran %v, got the log %q, want one line about %q", tt.name, ran, got, tt.log)
		}
	}
}

// TestPiecesOnAnotherRouter puts the stages around a router that knows nothing of
// them, copies the request and wraps the writer between them.
func TestPiecesOnAnotherRouter(t *testing.T) {
	type key struct{}
	foreign := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(unwrapper{w}, r.Clone(context.WithValue(r.Context(), key{}, 1)))
		})
	}
	ring := newKeyring()
	reader, writer := ring.issue(t, scope.TasksRead), ring.issue(t, scope.TasksWrite)
	runs := 0
	routes := map[string]http.Handler{
		"GET /tasks": middleware.RequireScope(middleware.Require(scope.TasksRead), middleware.ScopeOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, _ := middleware.PrincipalFrom(r.Context())
			io.WriteString(w, p.Organization()+" "+middleware.RequestIDFrom(r.Context()))
		})),
		"POST /tasks": middleware.Chain(middleware.RequireScope(middleware.Require(scope.TasksWrite), middleware.ScopeOptions{}), foreign,
			middleware.Idempotency(replies(), middleware.IdempotencyOptions{}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.WriteHeader(201)
		})),
		"GET /panic": middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("boom") })),
	}
	router := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := routes[r.Method+" "+r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "the router's own", 404)
	})
	h := middleware.Chain(foreign, stage(), foreign, middleware.Recover(middleware.RecoverOptions{}), foreign,
		middleware.ThrottleFailures(ratelimit.MustParse("100-S"), middleware.ThrottleOptions{}), foreign,
		middleware.Authenticate(ring.keys, middleware.AuthOptions{}), foreign,
		middleware.RateLimit(middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("100-S"))), foreign)(router)
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		runs = 0
		srv := serve(h)
		for _, tt := range []struct {
			method, path, token string
			status              int
			body                string
		}{
			{"GET", "/tasks", "", 401, ""},
			{"GET", "/tasks", reader, 200, "org_1 "},
			{"GET", "/tasks", writer, 403, ""},
			{"GET", "/none", reader, 404, "the router's own\n"},
			{"POST", "/tasks", reader, 403, ""},
			{"POST", "/tasks", writer, 201, ""},
			{"POST", "/tasks", writer, 201, ""},
			{"GET", "/panic", reader, 500, ""},
		} {
			r := newRequest(t, tt.method, srv.URL+tt.path, tt.token, nil)
			r.Header.Set("Idempotency-Key", r.Proto+srv.URL)
			res := do(t, srv.Client(), r)
			id := wantID(t, res.Response)
			if tt.path == "/tasks" && tt.status == 200 {
				tt.body += id
			}
			if res.StatusCode != tt.status || tt.body != "" && res.body != tt.body {
				t.Errorf("%s %s: got %d %q, want %d %q", tt.method, tt.path, res.StatusCode, res.body, tt.status, tt.body)
			}
		}
		if runs != 1 {
			t.Errorf("the POST ran %d times", runs)
		}
	})
}

// TestRequestIDBehindAuthenticate: the order is not the recommended one, and
// whatever reaches the inner stage has the id.
func TestRequestIDBehindAuthenticate(t *testing.T) {
	ring := newKeyring()
	h := middleware.Chain(middleware.Authenticate(ring.keys, middleware.AuthOptions{Hooks: quiet()}), stage())(http.HandlerFunc(sayOK))
	if res := serve(h, request("GET", "/", ring.issue(t), "")); res.StatusCode != 200 || wantID(t, res.Response) == "" {
		t.Errorf("got %d", res.StatusCode)
	}
	if res := serve(h, request("GET", "/", "", "")); res.StatusCode != 401 || res.Header.Get(idHeader) != "" || res.problem(t).RequestID != "" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
}
