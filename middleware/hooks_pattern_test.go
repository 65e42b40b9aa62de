package middleware_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// router is a router that tells the pattern by a function and in a context
// value, as chi does. It answers /none by itself.
type router struct{ h http.Handler }

type routed struct{ pattern string }

type routedKey struct{}

func patternOf(r *http.Request) string {
	if route, ok := r.Context().Value(routedKey{}).(*routed); ok {
		return route.pattern
	}
	return ""
}

func (x router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, _ := r.Context().Value(routedKey{}).(*routed)
	if route == nil { // stages outside have not asked for it
		route = new(routed)
		r = r.WithContext(context.WithValue(r.Context(), routedKey{}, route))
	}
	if strings.HasSuffix(r.URL.Path, "/none") {
		http.NotFound(w, r)
		return
	}
	route.pattern = "/tasks/{id}"
	x.h.ServeHTTP(w, r)
}

// mounted puts the value of a router into the context outside the stages.
func mounted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), routedKey{}, new(routed))))
	})
}

// TestPattern: the Event has the pattern of the route, whoever found the route.
func TestPattern(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, tt := range []struct {
		name  string
		build func(g *middleware.Guard) http.Handler
		path  string
		hook  func(*http.Request) string
		want  string
	}{
		{"Require on the route", func(g *middleware.Guard) http.Handler {
			return middleware.Chain(g.RequestID, g.Authenticate)(router{g.AnyKey(http.HandlerFunc(sayOK))})
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"found when the response ends", func(g *middleware.Guard) http.Handler {
			return mounted(middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey)(router{http.HandlerFunc(sayOK)}))
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"asked again, behind a ServeMux outside", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/", middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey)(router{http.HandlerFunc(sayOK)}))
			return mounted(mux)
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"an unknown path behind a ServeMux outside", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/", middleware.Chain(g.RequestID, g.Authenticate)(router{http.HandlerFunc(sayOK)}))
			return mounted(mux)
		}, "/tasks/none", patternOf, "/tasks/"},
		{"an unknown path", func(g *middleware.Guard) http.Handler {
			return mounted(middleware.Chain(g.RequestID, g.Authenticate)(router{http.HandlerFunc(sayOK)}))
		}, "/none", patternOf, ""},
		{"a ServeMux without the hook", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.AnyKey(http.HandlerFunc(sayOK)))
			return middleware.Chain(g.RequestID, g.Authenticate)(mux)
		}, "/tasks/1", nil, "/tasks/{task}"},
		{"a ServeMux behind a copy of the request", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.AnyKey(http.HandlerFunc(sayOK)))
			return middleware.Chain(g.RequestID, g.Authenticate)(mounted(mux))
		}, "/tasks/1", nil, "/tasks/{task}"},
		{"a hook that knows nothing", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.AnyKey(http.HandlerFunc(sayOK)))
			return middleware.Chain(g.RequestID, g.Authenticate)(mux)
		}, "/tasks/1", func(*http.Request) string { return "" }, "/tasks/{task}"},
		{"an API, whose mux knows it", func(*middleware.Guard) http.Handler { return nil }, "/api/v1/tasks/1", func(*http.Request) string { return "wrong" }, "GET /api/v1/tasks/{task}"},
	} {
		var got []string
		hooks := quiet()
		hooks.Pattern = tt.hook
		hooks.Observe = func(_ context.Context, e middleware.Event) { got = append(got, e.Pattern) }
		o := middleware.Options{Hooks: hooks}
		h := tt.build(middleware.New(ring.keys, o))
		if h == nil {
			api := middleware.NewAPI(ring.keys, o)
			api.HandleFunc("GET /api/v1/tasks/{task}", middleware.AnyKey(), sayOK)
			h = api
		}
		serve(h, request("GET", tt.path, token, ""))
		if len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestPatternIsAskedForTheEventAlone: once it has answered it is not asked
// again, and never where nobody observes.
func TestPatternIsAskedForTheEventAlone(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, tt := range []struct {
		name    string
		answers string
		observe bool
		calls   int
	}{{"answers", "/x", true, 1}, {"does not", "", true, 2}, {"nobody observes", "/x", false, 0}} {
		calls := 0
		hooks := quiet()
		hooks.Pattern = func(*http.Request) string { calls++; return tt.answers }
		if tt.observe {
			hooks.Observe = func(context.Context, middleware.Event) {}
		}
		g := middleware.New(ring.keys, middleware.Options{Hooks: hooks})
		serve(middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey)(http.HandlerFunc(sayOK)), request("GET", "/", token, ""))
		if calls != tt.calls {
			t.Errorf("%s: asked %d times, want %d", tt.name, calls, tt.calls)
		}
	}
}

// TestPanickingHooks: a hook that watches cannot spoil a response. The log
// tells of it, without the key.
func TestPanickingHooks(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	boom := func(r *http.Request) { panic("boom " + r.Header.Get("Authorization")) }
	for name, set := range map[string]func(*middleware.Hooks){
		"Pattern": func(h *middleware.Hooks) {
			h.Observe = func(context.Context, middleware.Event) {}
			h.Pattern = func(r *http.Request) string { boom(r); return "" }
		},
		"Observe": func(h *middleware.Hooks) {
			h.Observe = func(ctx context.Context, e middleware.Event) { panic("boom " + token) }
		},
	} {
		log := newLogged()
		hooks := log.hooks()
		set(hooks)
		o := middleware.Options{Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
		api := middleware.NewAPI(ring.keys, o)
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), sayOK)
		g := middleware.New(ring.keys, o)
		for form, h := range map[string]http.Handler{"API": api, "pieces": middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey, g.Idempotent)(http.HandlerFunc(sayOK))} {
			before := len(log.String())
			srv := start(t, h) // a panic that got out would cut the connection
			r := newRequest(t, "POST", srv.URL+"/api/v1/x", token, nil)
			r.Header.Set("Idempotency-Key", form)
			if res := do(t, srv.Client(), r); res.StatusCode != 200 || res.body != "ok" {
				t.Errorf("%s, %s: got %d %s", name, form, res.StatusCode, res.body)
			}
			srv.Close()
			if name == "Pattern" && form == "API" {
				continue // it is not asked: the mux knows
			}
			if got := log.String()[before:]; !strings.Contains(got, "panic while serving") || !strings.Contains(got, "boom") || strings.Contains(got, token) {
				t.Errorf("%s, %s: got the log %s", name, form, got)
			}
		}
	}
}

// TestUnknownPathAsksThePattern: of an API, too, which may be part of a larger
// router.
func TestUnknownPathAsksThePattern(t *testing.T) {
	ring := newKeyring()
	var got string
	hooks := quiet()
	hooks.Pattern = func(*http.Request) string { return "/api/*" }
	hooks.Observe = func(_ context.Context, e middleware.Event) { got = e.Pattern }
	serve(testAPI(keystore.Store(ring.keys), middleware.Options{Hooks: hooks}), request("GET", "/api/v1/none", ring.issue(t), ""))
	if got != "/api/*" {
		t.Errorf("got %q", got)
	}
}

// TestInnerPatternOutside: what stands outside an outer mux, such as otelhttp,
// reads the inner pattern at the end, as with a stock mux inside. What stands
// between the two reads the outer one until then.
func TestInnerPatternOutside(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var events []middleware.Event
	hooks := quiet()
	hooks.Observe = func(_ context.Context, e middleware.Event) { events = append(events, e) }
	o := middleware.Options{Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies()}}
	boom := func(http.ResponseWriter, *http.Request) { panic("boom") }
	stock, api, g := http.NewServeMux(), middleware.NewAPI(ring.keys, o), middleware.New(ring.keys, o)
	for pattern, h := range map[string]http.HandlerFunc{"GET /api/v1/a/{id}": sayOK, "POST /api/v1/a/{id}": sayOK, "PUT /api/v1/a/{id}": boom} {
		stock.HandleFunc(pattern, h)
		api.HandleFunc(pattern, middleware.AnyKey(), h)
	}
	for name, inner := range map[string]http.Handler{
		"stock": middleware.Chain(g.Recover, g.Authenticate)(stock), "API": api,
		"pieces": middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.AnyKey, g.Idempotent)(stock),
	} {
		for _, tt := range []struct{ method, path, token, key, want string }{
			{"GET", "/api/v1/a/1", token, "", "GET /api/v1/a/{id}"},
			{"HEAD", "/api/v1/a/1", token, "", "GET /api/v1/a/{id}"},
			{"POST", "/api/v1/a/1", token, "k", "POST /api/v1/a/{id}"},
			{"PUT", "/api/v1/a/1", token, "", "PUT /api/v1/a/{id}"},
			{"GET", "/api/v1/none", token, "", "/api/v1/"},
			{"GET", "/api/v1/a/1", "", "", "/api/v1/"},
		} {
			var outside *http.Request
			between, mux := "", http.NewServeMux()
			mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, r *http.Request) {
				defer func() { between = r.Pattern }()
				inner.ServeHTTP(w, r.WithContext(r.Context()))
			})
			events = nil
			otel := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outside = r
				mux.ServeHTTP(w, r)
			})
			line := "X-None: 1"
			if tt.key != "" {
				line = "Idempotency-Key: " + tt.key
			}
			serve(otel, request(tt.method, tt.path, tt.token, "", line+name))
			if between != "/api/v1/" {
				t.Errorf("%s, %s %s: behind a copy got %q", name, tt.method, tt.path, between)
			}
			mux = http.NewServeMux()
			mux.Handle("/api/v1/", inner)
			serve(otel, request(tt.method, tt.path, tt.token, "", line+name+"2"))
			if outside.Pattern != tt.want {
				t.Errorf("%s, %s %s: got %q outside, want %q", name, tt.method, tt.path, outside.Pattern, tt.want)
			}
			if name == "stock" {
				continue // no Event
			}
			want := tt.want
			if name == "API" && tt.path == "/api/v1/none" {
				want = ""
			}
			if e := events[len(events)-1]; len(events) != 2 || e.Pattern != want {
				t.Errorf("%s, %s %s: got the Events %+v, want the pattern %q", name, tt.method, tt.path, events, want)
			}
		}
	}
}
