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

// TestMisplacedPieces: a stage that misses what must stand before it answers
// every request with 500 and says in the log what is missing.
func TestMisplacedPieces(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := ratelimit.NewMemory()
	g := middleware.New(ring.keys, middleware.Options{
		RateLimit:   middleware.PerOrganization(store, ratelimit.MustParse("9-S")),
		Idempotency: middleware.IdempotencyOptions{Runner: replies()},
	})
	g.RateLimit(http.NotFoundHandler()) // else there is a warning of its own
	other := middleware.New(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	limited := func(o middleware.RateLimitOptions) func(http.Handler) http.Handler {
		return middleware.New(nil, middleware.Options{RateLimit: o}).RateLimit
	}
	tests := []struct {
		name  string
		chain func(http.Handler) http.Handler
		log   string
	}{
		{"Require alone", g.AnyKey, "Require has no Authenticate before it"},
		{"Require before Authenticate", middleware.Chain(g.AnyKey, g.Authenticate), "Require has no Authenticate before it"},
		{"Require inside Idempotent", middleware.Chain(g.Authenticate, g.AnyKey, g.Idempotent, g.Require(scope.TasksRead)), "Require stands inside Idempotent"},
		{"RateLimit alone", g.RateLimit, "RateLimit counts by organization or key, and has no Authenticate before it"},
		{"RateLimit before Authenticate", middleware.Chain(g.RateLimit, g.Authenticate), "RateLimit counts by organization or key"},
		{"RateLimit by key alone", limited(middleware.RateLimitOptions{Store: store, Key: &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("1-S")}}), "RateLimit counts by organization or key"},
		{"RateLimit of concurrency alone", limited(middleware.RateLimitOptions{Concurrent: 1}), "RateLimit counts by organization or key"},
		{"RateLimit by plan alone", limited(middleware.RateLimitOptions{Store: store, Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, nil }}), "RateLimit counts by organization or key"},
		{"Idempotent alone", g.Idempotent, "Idempotent has no Require before it"},
		{"Idempotent before Require", middleware.Chain(g.Authenticate, g.Idempotent, g.AnyKey), "Idempotent has no Require before it"},
		{"Idempotent inside another", middleware.Chain(g.Authenticate, g.AnyKey, g.Idempotent, other.Idempotent), "Idempotent stands inside another Idempotent"},
	}
	for _, tt := range tests {
		log := newLogged()
		ran := false
		h := middleware.Chain(middleware.New(nil, middleware.Options{Hooks: log.hooks()}).RequestID, tt.chain)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran = true }))
		res := serve(h, request("POST", "/secret-free/path", token, "", "Idempotency-Key: 1"))
		wantRefusal(t, tt.name, res, 500, "internal", "")
		if got := log.String(); ran || !strings.Contains(got, tt.log) || !strings.Contains(got, "path=/secret-free/path") || !strings.Contains(got, wantID(t, res.Response)) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: ran %v, got the log %q, want one line about %q", tt.name, ran, got, tt.log)
		}
	}
}

// TestPiecesOnAnotherRouter puts the stages around a router that knows nothing
// of them, copies the request and wraps the writer between them.
func TestPiecesOnAnotherRouter(t *testing.T) {
	type key struct{}
	foreign := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(unwrapper{w}, r.Clone(context.WithValue(r.Context(), key{}, 1)))
		})
	}
	ring := newKeyring()
	reader, writer := ring.issue(t, scope.TasksRead), ring.issue(t, scope.TasksWrite)
	g := middleware.New(ring.keys, middleware.Options{
		Hooks:       quiet(),
		Failures:    ratelimit.MustParse("100-S"),
		RateLimit:   middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("100-S")),
		Idempotency: middleware.IdempotencyOptions{Runner: replies()},
	})
	runs := 0
	routes := map[string]http.Handler{
		"GET /tasks": g.Require(scope.TasksRead)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, _ := middleware.PrincipalFrom(r.Context())
			io.WriteString(w, p.Organization()+" "+middleware.RequestIDFrom(r.Context()))
		})),
		"POST /tasks": middleware.Chain(g.Require(scope.TasksWrite), foreign, g.Idempotent)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.WriteHeader(201)
		})),
		"GET /panic": g.AnyKey(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("boom") })),
	}
	router := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := routes[r.Method+" "+r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "the router's own", 404)
	})
	h := middleware.Chain(foreign, g.RequestID, foreign, g.Recover, foreign, g.Authenticate, foreign, g.RateLimit, foreign)(router)
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
	h := middleware.Chain(middleware.New(ring.keys, middleware.Options{Hooks: quiet()}).Authenticate, stage())(http.HandlerFunc(sayOK))
	if res := serve(h, request("GET", "/", ring.issue(t), "")); res.StatusCode != 200 || wantID(t, res.Response) == "" {
		t.Errorf("got %d", res.StatusCode)
	}
	if res := serve(h, request("GET", "/", "", "")); res.StatusCode != 401 || res.Header.Get(idHeader) != "" || res.problem(t).RequestID != "" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
}

// unwrapper is how a foreign stage wraps a writer since Go 1.20: with Unwrap
// and no optional interface of its own.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }
