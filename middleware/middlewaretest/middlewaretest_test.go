package middlewaretest_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewaretest"
	"github.com/sallyport-go/sallyport/scope"
)

func TestAs(t *testing.T) {
	given := httptest.NewRequest("GET", "/", nil)
	r := middlewaretest.As(given, nil, "org_1", scope.TasksWrite)
	p := middleware.CallerFrom(r.Context())
	if p.Organization() != "org_1" || p.Environment() != keystore.Production || p.KeyID() != "" ||
		!p.Has(scope.TasksWrite) || p.Has(scope.TasksRead) {
		t.Errorf("got %v", p.LogValue())
	}
	if middleware.CallerFrom(given.Context()) != nil {
		t.Error("As changed the request that it was given")
	}
	other := middleware.CallerFrom(middlewaretest.As(r, nil, "org_2").Context())
	if other.Organization() != "org_2" || other.Has(scope.TasksWrite) {
		t.Errorf("As twice: got %v", other.LogValue())
	}
	own := scope.New(scope.Definition{Name: "parcels:read"})
	p = middleware.CallerFrom(middlewaretest.As(r, own, "org_1", "parcels:read").Context())
	if !p.Has("parcels:read") {
		t.Errorf("a registry of its own: got %v", p.LogValue())
	}
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v,
			`A nil registry means scope.Default, which has no scope "tasks:wriet"; did you mean "tasks:write"`) {
			t.Errorf("got panic %q", v)
		}
	}()
	middlewaretest.As(given, nil, "org_1", "tasks:wriet")
}

// TestAsThroughStages: which stages take the caller for authenticated.
func TestAsThroughStages(t *testing.T) {
	g := middleware.New(issuing.NewMemory(), middleware.Options{
		RateLimit:   middleware.PerOrganization("9-S"),
		Idempotency: replies(),
	})
	inside := middleware.Chain(g.RateLimit, g.Enforce(middleware.Require(scope.TasksWrite)), g.Idempotent)
	for _, tt := range []struct {
		name   string
		stages func(http.Handler) http.Handler
		scope  scope.Name
		status int
	}{
		{"inside Authenticate", inside, scope.TasksWrite, 200},
		{"without the scope", inside, scope.TasksRead, 403},
		{"Authenticate", middleware.Chain(g.Authenticate, inside), scope.TasksWrite, 401},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
		r.Header.Set("Idempotency-Key", "1")
		w := httptest.NewRecorder()
		h := tt.stages(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		h.ServeHTTP(w, middlewaretest.As(r, nil, "org_1", tt.scope))
		if w.Code != tt.status {
			t.Errorf("%s: got %d, want %d", tt.name, w.Code, tt.status)
		}
	}
}

func TestKeyed(t *testing.T) {
	for name, dress := range map[string]func(*http.Request) *http.Request{
		"Keyed":            func(r *http.Request) *http.Request { return r },
		"As outside Keyed": func(r *http.Request) *http.Request { return middlewaretest.As(r, nil, "org_1") },
	} {
		given := httptest.NewRequest("POST", "/", nil)
		r, freed := middlewaretest.Keyed(dress(given), 2)
		r = dress(r)
		if middleware.ExecutionFrom(r.Context()).Attempt() != 2 || middleware.ExecutionFrom(given.Context()).Attempt() != 1 {
			t.Errorf("%s: got %d executions, and %d without", name,
				middleware.ExecutionFrom(r.Context()).Attempt(), middleware.ExecutionFrom(given.Context()).Attempt())
		}
		if middleware.ExecutionFrom(given.Context()).Free(); freed() {
			t.Errorf("%s: Free of another request counts", name)
		}
		if middleware.ExecutionFrom(r.Context()).Free(); !freed() {
			t.Errorf("%s: Free does not count", name)
		}
	}
}

// TestKeyedInsideAClaim: where there is a real claim, the handler speaks for
// that.
func TestKeyedInsideAClaim(t *testing.T) {
	g := middleware.New(nil, middleware.Options{Idempotency: replies()})
	runs := 0
	stages := middleware.Chain(g.Enforce(middleware.AnyCaller()), g.Idempotent)
	h := stages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		if got := middleware.ExecutionFrom(r.Context()).Attempt(); got != 1 {
			t.Errorf("got %d executions", got)
		}
		middleware.ExecutionFrom(r.Context()).Free()
	}))
	r, freed := middlewaretest.Keyed(middlewaretest.As(httptest.NewRequest("POST", "/", nil), nil, "org_1"), 7)
	r.Header.Set("Idempotency-Key", "1")
	for range 2 {
		h.ServeHTTP(httptest.NewRecorder(), r.Clone(context.WithoutCancel(r.Context())))
	}
	if runs != 2 || freed() {
		t.Errorf("ran %d times, the fake claim was freed: %t", runs, freed())
	}
}

func replies() middleware.IdempotencyOptions {
	return middleware.IdempotencyOptions{Runner: idem.NewRunner(&idem.Memory{}, idem.Options{})}
}

// TestOpenRoutes: a route that asks for no scope is returned, however its
// pattern is written.
func TestOpenRoutes(t *testing.T) {
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(),
		keystore.Key{Organization: "org_1", Environment: keystore.Production, Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	g := middleware.New(keys, middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}})
	mux, ok := http.NewServeMux(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, pattern := range []string{"GET /tasks/{id}", "GET /files/{path...}", "GET /{$}", "GET api.example.com/hosts"} {
		mux.Handle(pattern, g.Enforce(middleware.Require(scope.TasksRead))(ok))
	}
	mux.Handle("GET /account", g.Enforce(middleware.AnyCaller())(ok))
	mux.Handle("DELETE /tasks/{id}", ok)
	mux.Handle("GET /old", http.RedirectHandler("/new", http.StatusMovedPermanently))
	h := middleware.Chain(g.RequestID, g.Authenticate)(mux)
	got := middlewaretest.OpenRoutes(h, secret.Reveal(), "GET /tasks/{id}", "GET /files/{path...}", "GET /files/*",
		"GET /tasks/{id:[0-9]{1,2}}", "GET \t/{$}", "GET api.example.com/hosts",
		"GET /account", "DELETE /tasks/{id}", "GET /old", "GET /none")
	want := []string{"GET /account: 200", "DELETE /tasks/{id}: 500", "GET /old: 301", "GET /none: 404"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := middlewaretest.OpenRoutes(h, "svc_live_x", "GET /tasks/{id}"); !slices.Equal(got, []string{
		"GET /tasks/{id}: 401"}) {
		t.Errorf("with a wrong key: got %q", got)
	}
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, `"/tasks" has no method`) {
			t.Errorf("without a method: got the panic %q", v)
		}
	}()
	middlewaretest.OpenRoutes(h, "", "/tasks")
}
