package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestRouteLimit: a route's policy and cost are part of the one decision.
func TestRouteLimit(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	hooks := quiet()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks, Replies: replies(), Limits: middleware.Limits{
		Store: ratelimit.NewMemory(), Organization: policy("organization", "10-H", 0), FieldsDraft11: true,
	}})
	exports := policy("exports", "1-H", 3)
	ok := http.HandlerFunc(sayOK)
	api.Handle("GET /api/v1/export", middleware.AnyKey(), middleware.RouteLimit{Policy: exports}.Handler(ok))
	api.Handle("GET /api/v1/export/large", middleware.AnyKey(), middleware.RouteLimit{Policy: exports, Cost: 2}.Handler(ok))
	api.Handle("GET /api/v1/dear", middleware.AnyKey(), middleware.RouteLimit{Cost: 5}.Handler(ok))
	api.Handle("GET /api/v1/impossible", middleware.AnyKey(), middleware.RouteLimit{Cost: 11}.Handler(ok))
	api.Handle("POST /api/v1/export", middleware.AnyKey(), middleware.RouteLimit{Cost: 1}.Handler(ok))
	steps := []struct {
		path, policy string
		status       int
		left, shared int64 // of organization and exports, -1: no such item
	}{
		{"/api/v1/export", "", 200, 9, 2},
		{"/api/v1/export/large", "", 200, 7, 0},
		{"/api/v1/export", "exports", 429, 7, 0},
		{"/api/v1/impossible", "", 400, 0, 0},
		{"/api/v1/dear", "", 200, 2, -1},
		{"/api/v1/dear", "organization", 429, 2, -1},
	}
	for _, tt := range steps {
		res := serve(api, request("GET", tt.path, token, ""))
		if res.StatusCode != tt.status {
			t.Errorf("%s: got %d %s, want %d", tt.path, res.StatusCode, res.body, tt.status)
		}
		if tt.status == 400 {
			if p := res.problem(t); p.Code != "bad_request" || res.Header.Get("Retry-After") != "" || !strings.Contains(p.Detail, "more at once") {
				t.Errorf("%s: got %s", tt.path, res.body)
			}
			continue
		}
		states := items(t, res.Header, "RateLimit")
		if states[0].params["r"] != tt.left || len(states) > 1 && states[1].params["r"] != tt.shared || len(states) == 1 && tt.shared >= 0 {
			t.Errorf("%s: got %v, want %d and %d left", tt.path, states, tt.left, tt.shared)
		}
		if tt.status == 429 && res.problem(t).Policy != tt.policy {
			t.Errorf("%s: got %s, want policy %s", tt.path, res.body, tt.policy)
		}
	}
	for _, route := range api.Routes() {
		if route.Idempotent != (route.Method == "POST") {
			t.Errorf("%+v: RouteLimit hides the handler from the API", route)
		}
	}
}

func TestRouteLimitMistakes(t *testing.T) {
	ok := http.HandlerFunc(sayOK)
	keys := keystore.NewMemory()
	p := policy("p", "1-S", 3)
	for want, f := range map[string]func(){
		"the handler is nil":                func() { middleware.RouteLimit{}.Handler(nil) },
		"the cost is negative":              func() { middleware.RouteLimit{Cost: -1}.Handler(ok) },
		"RouteLimit: ratelimit":             func() { middleware.RouteLimit{Policy: &ratelimit.Policy{Name: "x"}}.Handler(ok) },
		`more than the burst of policy "p"`: func() { middleware.RouteLimit{Policy: p, Cost: 4}.Handler(ok) },
		`more than the burst of policy "q"`: func() { middleware.RouteLimit{Policy: policy("q", "3-S", 0), Cost: 4}.Handler(ok) },
		"the route has a rate limit and Limits": func() {
			middleware.NewAPI(keys, middleware.Options{}).Handle("GET /api/v1/x", middleware.AnyKey(), middleware.RouteLimit{Policy: p}.Handler(ok))
		},
		`has the name "p" of one of the API's`: func() {
			middleware.NewAPI(keys, middleware.Options{Limits: middleware.Limits{Store: ratelimit.NewMemory(), Key: p}}).
				Handle("GET /api/v1/x", middleware.AnyKey(), middleware.RouteLimit{Policy: p}.Handler(ok))
		},
	} {
		wantPanic(t, want, f)
	}
}
