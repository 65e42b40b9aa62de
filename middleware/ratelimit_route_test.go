package middleware_test

import (
	"context"
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
	log := newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}, RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(), Fields: middleware.FieldsDraft11,
		// A plan, because a cost over the burst of a fixed policy is a mistake.
		Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
			return policy("organization", "10-H", 0), nil
		},
	}})
	exports := policy("exports", "1-H", 3)
	ok := http.HandlerFunc(sayOK)
	api.HandleWith("GET /api/v1/export", middleware.AnyKey(), middleware.RouteOptions{Limit: exports}, ok)
	api.HandleWith("GET /api/v1/export/large", middleware.AnyKey(), middleware.RouteOptions{Limit: exports, Cost: 2}, ok)
	api.HandleWith("GET /api/v1/dear", middleware.AnyKey(), middleware.RouteOptions{Cost: 5}, ok)
	api.HandleWith("GET /api/v1/impossible", middleware.AnyKey(), middleware.RouteOptions{Cost: 11}, ok)
	api.HandleWith("POST /api/v1/export", middleware.AnyKey(), middleware.RouteOptions{Cost: 1}, ok)
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
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "a route costs more") || !strings.Contains(text, `policy \"organization\", cost 11, burst 10`) {
		t.Errorf("got the log %s, want one line", text)
	}
	for _, route := range api.Routes() {
		if route.Idempotent != (route.Method == "POST") {
			t.Errorf("%+v: want only the POST route idempotent", route)
		}
	}
}

func TestRouteLimitMistakes(t *testing.T) {
	p := policy("p", "1-S", 3)
	store := middleware.RateLimitOptions{Store: ratelimit.NewMemory()}
	taken := store
	taken.Key = p
	each := func(set func(o *middleware.RateLimitOptions)) middleware.RateLimitOptions {
		o := store
		o.Organization, o.Sandbox, o.Key, o.Client = policy("org", "9-S", 0), policy("sandbox", "9-S", 0), policy("key", "9-S", 0), policy("client", "9-S", 0)
		set(&o)
		return o
	}
	small := policy("small", "9-S", 3)
	plan := func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, nil }
	for want, row := range map[string]struct {
		api   middleware.RateLimitOptions
		route middleware.RouteOptions
	}{
		"Cost is negative":                                               {store, middleware.RouteOptions{Cost: -1}},
		"Cost is set and no policy applies":                              {store, middleware.RouteOptions{Cost: 2}},
		"RouteOptions.Limit: ratelimit":                                  {store, middleware.RouteOptions{Limit: &ratelimit.Policy{Name: "x"}}},
		`more than the burst of policy "p"`:                              {store, middleware.RouteOptions{Limit: p, Cost: 4}},
		`more than the burst of policy "q"`:                              {store, middleware.RouteOptions{Limit: policy("q", "3-S", 0), Cost: 4}},
		`of policy "small", so no request under it would`:                {each(func(o *middleware.RateLimitOptions) { o.Organization = small }), middleware.RouteOptions{Cost: 4}},
		`burst of policy "small", so no request under it would`:          {each(func(o *middleware.RateLimitOptions) { o.Sandbox = small }), middleware.RouteOptions{Cost: 4}},
		`the burst of policy "small", so no request under it would`:      {each(func(o *middleware.RateLimitOptions) { o.Key, o.Plan = small, plan }), middleware.RouteOptions{Cost: 4}},
		`than the burst of policy "small", so no request under it would`: {each(func(o *middleware.RateLimitOptions) { o.Client, o.Plan, o.KeyPlan = small, plan, plan }), middleware.RouteOptions{Cost: 4}},
		"a rate limit and RateLimit.Store is nil":                        {middleware.RateLimitOptions{}, middleware.RouteOptions{Limit: p}},
		`has the name "p" of one of the API's`:                           {taken, middleware.RouteOptions{Limit: p}},
	} {
		api := middleware.NewAPI(keystore.NewMemory(), middleware.Options{RateLimit: row.api})
		wantPanic(t, want, func() {
			api.HandleWith("GET /api/v1/x", middleware.AnyKey(), row.route, http.HandlerFunc(sayOK))
		})
	}
	// Some requests may pass where a plan chooses, and all where a limit only
	// reports.
	for _, o := range []middleware.RateLimitOptions{
		each(func(o *middleware.RateLimitOptions) { o.Organization, o.Sandbox, o.Plan = small, small, plan }),
		each(func(o *middleware.RateLimitOptions) { o.Key, o.KeyPlan = small, plan }),
		each(func(o *middleware.RateLimitOptions) { o.Organization = reportOnly("organization", "1-S") }),
	} {
		middleware.NewAPI(keystore.NewMemory(), middleware.Options{RateLimit: o}).
			HandleWith("GET /api/v1/x", middleware.AnyKey(), middleware.RouteOptions{Cost: 4}, http.HandlerFunc(sayOK))
	}
	// A cost of the whole burst passes once.
	middleware.NewAPI(keystore.NewMemory(), middleware.Options{RateLimit: store}).
		HandleWith("GET /api/v1/x", middleware.AnyKey(), middleware.RouteOptions{Limit: p, Cost: 3}, http.HandlerFunc(sayOK))
}
