package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// reportOnly returns a policy that refuses nothing.
func reportOnly(name, limit string) *ratelimit.Policy {
	p := policy(name, limit, 0)
	p.ReportOnly = true
	return p
}

// TestReportOnlyLimits: a report-only policy refuses nothing, the Event says
// what it would have refused, and no enforced limit depends on it.
func TestReportOnlyLimits(t *testing.T) {
	const limitedCode, costCode = "rate_limited", "bad_request"
	type step struct {
		path     string
		status   int
		reported string
		policy   string // of the Event
	}
	any := func(n int, s step) (steps []step) {
		for range n {
			steps = append(steps, s)
		}
		return steps
	}
	for _, tt := range []struct {
		name   string
		limits middleware.RateLimitOptions
		steps  []step
	}{
		{"a policy", middleware.RateLimitOptions{Organization: reportOnly("organization", "1-H")},
			append(any(1, step{"/any", 200, "", ""}), any(2, step{"/any", 200, limitedCode, "organization"})...)},
		{"beside one that is enforced", middleware.RateLimitOptions{Organization: reportOnly("organization", "1-H"), Key: policy("key", "3-H", 0)},
			[]step{{"/any", 200, "", "key"}, {"/any", 200, limitedCode, "organization"}, {"/any", 200, limitedCode, "organization"}, {"/any", 429, "", "key"}}},
		{"the other way round", middleware.RateLimitOptions{Organization: policy("organization", "3-H", 0), Key: reportOnly("key", "1-H"), Client: reportOnly("client", "1-H")},
			[]step{{"/any", 200, "", "organization"}, {"/any", 200, limitedCode, "key"}, {"/any", 200, limitedCode, "key"}, {"/any", 429, "", "organization"}}},
		{"chosen by the plan", middleware.RateLimitOptions{Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
			return reportOnly("plan", "1-H"), nil
		}},
			[]step{{"/any", 200, "", ""}, {"/any", 200, limitedCode, "plan"}}},
		{"a route", middleware.RateLimitOptions{Organization: policy("organization", "1-H", 0), Key: policy("key", "9-H", 0)},
			[]step{{"/reported", 200, "", ""}, {"/reported", 200, limitedCode, "organization"}, {"/any", 429, "", "organization"}}},
		{"a route with a limit of its own", middleware.RateLimitOptions{Organization: policy("organization", "9-H", 0)},
			[]step{{"/own", 200, "", ""}, {"/own", 200, limitedCode, "own"}, {"/any", 200, "", "organization"}}},
		{"a cost over the burst", middleware.RateLimitOptions{Organization: reportOnly("organization", "1-H")},
			[]step{{"/five", 200, costCode, ""}, {"/any", 200, "", ""}}},
		{"a cost over the burst of a route", middleware.RateLimitOptions{Organization: policy("organization", "1-H", 0)},
			[]step{{"/reported-five", 200, costCode, ""}, {"/any", 200, "", "organization"}}},
		{"an unknown path", middleware.RateLimitOptions{Organization: reportOnly("organization", "1-H")},
			[]step{{"/none", 404, "", ""}, {"/none", 404, limitedCode, "organization"}}},
	} {
		ring, log := newKeyring(), newLogged()
		token := ring.issue(t)
		var got middleware.Event
		hooks := log.hooks()
		hooks.Observe = func(_ context.Context, e middleware.Event) { got = e }
		tt.limits.Store = ratelimit.NewMemory()
		api := testAPI(ring.keys, middleware.Options{Hooks: hooks, RateLimit: tt.limits})
		ok := http.HandlerFunc(sayOK)
		api.HandleWith("GET /api/v1/reported", middleware.AnyKey(), middleware.RouteOptions{ReportOnly: true}, ok)
		api.HandleWith("GET /api/v1/own", middleware.AnyKey(), middleware.RouteOptions{Limit: reportOnly("own", "1-H")}, ok)
		if tt.name == "a cost over the burst" { // elsewhere this is a panic
			api.HandleWith("GET /api/v1/five", middleware.AnyKey(), middleware.RouteOptions{Cost: 5}, ok)
		}
		api.HandleWith("GET /api/v1/reported-five", middleware.AnyKey(), middleware.RouteOptions{Cost: 5, ReportOnly: true}, ok)
		for i, s := range tt.steps {
			res := serve(api, request("GET", "/api/v1"+s.path, token, ""))
			if res.StatusCode != s.status || got.Reported != s.reported || s.policy != "" && got.Policy != s.policy {
				t.Errorf("%s, request %d to %s: got %d, reported %q by %q, want %d, %q by %q", tt.name, i+1, s.path, res.StatusCode, got.Reported, got.Policy, s.status, s.reported, s.policy)
			}
			if got.Outcome == "" || got.Outcome == s.reported {
				t.Errorf("%s, request %d: got the outcome %q", tt.name, i+1, got.Outcome)
			}
		}
		if log.String() != "" {
			t.Errorf("%s: got the log %s", tt.name, log)
		}
	}
}

// TestReportOnlyCharges: an enforced refusal charges no report-only policy, and
// the fields of the response tell of no report-only policy.
func TestReportOnlyCharges(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := ratelimit.NewMemory()
	reported, enforced := reportOnly("organization", "9-H"), policy("key", "2-H", 0)
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Store: store, Organization: reported, Key: enforced, Fields: middleware.FieldsDraft11}})
	for i, status := range []int{200, 200, 429, 429} {
		res := serve(api, request("GET", "/api/v1/any", token, ""))
		if res.StatusCode != status {
			t.Errorf("request %d: got %d, want %d", i+1, res.StatusCode, status)
		}
		if fields := res.Header.Get("RateLimit-Policy") + res.Header.Get("RateLimit"); strings.Contains(fields, "organization") || !strings.Contains(fields, "key") {
			t.Errorf("request %d: got the fields %s", i+1, fields)
		}
	}
	d, err := store.Take(t.Context(), []ratelimit.Charge{{Policy: reported, Bucket: callerOf(t, ring).Tenant()}})
	if err != nil || d.States[0].Remaining != 7 {
		t.Errorf("got %+v, %v; want 7 of 9 left after two requests that were let through", d.States[0], err)
	}
}

// TestReportOnlyFails: a store that fails for a report-only limit, and a Plan
// that fails on a report-only route, refuse nothing and are in the log.
func TestReportOnlyFails(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	down := takeFunc(func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
		return ratelimit.Decision{}, errors.New("store is down")
	})
	plan := func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
		return nil, errors.New("no such plan")
	}
	for _, tt := range []struct {
		name   string
		limits middleware.RateLimitOptions
		path   string
		status int
		log    string
	}{
		{"a policy", middleware.RateLimitOptions{Store: down, Organization: reportOnly("organization", "1-H")}, "/any", 200, "store is down"},
		{"a route", middleware.RateLimitOptions{Store: down, Organization: policy("organization", "1-H", 0)}, "/reported", 200, "store is down"},
		{"a route, the plan", middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Plan: plan}, "/reported", 200, "no such plan"},
		{"another route, the plan", middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Plan: plan}, "/any", 503, "no such plan"},
		{"one that is enforced beside it", middleware.RateLimitOptions{Store: down, Organization: reportOnly("organization", "1-H"), Key: policy("key", "1-H", 0)}, "/any", 503, "store is down"},
		{"concurrency", middleware.RateLimitOptions{Store: down, Concurrent: 1, Organization: reportOnly("organization", "1-H")}, "/reported", 200, "store is down"},
	} {
		log := newLogged()
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: tt.limits})
		api.HandleWith("GET /api/v1/reported", middleware.AnyKey(), middleware.RouteOptions{ReportOnly: true}, http.HandlerFunc(sayOK))
		if res := serve(api, request("GET", "/api/v1"+tt.path, token, "")); res.StatusCode != tt.status || !strings.Contains(log.String(), tt.log) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: got %d and the log %q, want %d and one line about %q", tt.name, res.StatusCode, log, tt.status, tt.log)
		}
	}
}

// TestReportOnlyConcurrent: the limit of what is in progress is not
// report-only.
func TestReportOnlyConcurrent(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{Concurrent: 1}})
	inner := 0
	api.HandleWith("GET /api/v1/x", middleware.AnyKey(), middleware.RouteOptions{ReportOnly: true}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inner = serve(api, request("GET", "/api/v1/x", token, "")).StatusCode
	}))
	if res := serve(api, request("GET", "/api/v1/x", token, "")); res.StatusCode != 200 || inner != 429 {
		t.Errorf("got %d, and %d for a second request in progress", res.StatusCode, inner)
	}
}

// TestReportOnlyRequirement: a report-only requirement refuses nobody who has a
// key, whoever he is, and the Event tells of those whom it would have refused.
func TestReportOnlyRequirement(t *testing.T) {
	ring := newKeyring()
	writer, reader := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.TasksRead)
	var got middleware.Event
	hooks := quiet()
	hooks.Observe = func(_ context.Context, e middleware.Event) { got = e }
	need := middleware.Require(scope.TasksWrite)
	o := func() middleware.Options {
		return middleware.Options{
			Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies()},
			RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory(), Key: reportOnly("key", "2-H")},
		}
	}
	ok := http.HandlerFunc(sayOK)
	byNeed, byRoute := middleware.NewAPI(ring.keys, o()), middleware.NewAPI(ring.keys, o())
	byNeed.Handle("POST /api/v1/x", need.ReportOnly(), ok)
	byRoute.HandleWith("POST /api/v1/x", need, middleware.RouteOptions{ReportOnly: true}, ok)
	g := middleware.New(ring.keys, o())
	for name, h := range map[string]http.Handler{
		"Requirement": byNeed, "RouteOptions": byRoute,
		"pieces": middleware.Chain(g.RequestID, g.Authenticate, g.RateLimit, g.Check(need.ReportOnly()), g.Idempotent)(ok),
	} {
		for i, s := range []struct {
			token    string
			status   int
			reported string
			replayed string
		}{
			{writer, 200, "", ""}, {reader, 200, "insufficient_scope", "true"}, {reader, 200, "insufficient_scope", "true"},
			{reader, 200, "rate_limited", "true"}, // the limit would have refused first
			{"", 401, "", ""},
		} {
			res := serve(h, request("POST", "/api/v1/x", s.token, "{}", "Idempotency-Key: a"))
			if res.StatusCode != s.status || got.Reported != s.reported || res.Header.Get("Idempotent-Replayed") != s.replayed {
				t.Errorf("%s, request %d: got %d, reported %q, replayed %q, want %+v", name, i+1, res.StatusCode, got.Reported, res.Header.Get("Idempotent-Replayed"), s)
			}
		}
	}
	if need.ReportOnly(); serve(mustRefuse(ring.keys, need), request("GET", "/api/v1/x", reader, "")).StatusCode != 403 {
		t.Error("ReportOnly changed the requirement that it was called on")
	}
	wantPanic(t, "the requirement is empty", func() { g.Check(middleware.Requirement{}.ReportOnly()) })
	wantPanic(t, "is not one of the contract", func() { g.Check(middleware.Require("tasks:raed").ReportOnly()) })
	if res := serve(g.RequestID(g.Check(need.ReportOnly())(ok)), request("GET", "/", "", "")); res.StatusCode != 500 {
		t.Errorf("without Authenticate: got %d", res.StatusCode)
	}
}

func mustRefuse(keys keystore.Store, need middleware.Requirement) http.Handler {
	api := middleware.NewAPI(keys, middleware.Options{Hooks: quiet()})
	api.Handle("GET /api/v1/x", need, http.HandlerFunc(sayOK))
	return api
}

// lists records the lists of charges that a store gets.
type lists struct {
	ratelimit.Store
	first []string // the policies of each list
}

func (l *lists) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	var names []string
	for _, c := range charges {
		names = append(names, c.Policy.Name)
	}
	l.first = append(l.first, strings.Join(names, " "))
	return l.Store.Take(ctx, charges)
}

// TestReportOnlyOrder: taking report-only policies out of a decision changes
// the order of no others. ratelimitredis keeps counters by the first of a
// decision.
func TestReportOnlyOrder(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	store := &lists{Store: ratelimit.NewMemory()}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
		Store: store, Organization: reportOnly("organization", "9-H"), Key: reportOnly("key", "9-H"), Client: policy("client", "9-H", 0),
	}})
	api.HandleWith("GET /api/v1/x", middleware.AnyKey(), middleware.RouteOptions{Limit: policy("route", "9-H", 0)}, http.HandlerFunc(sayOK))
	api.HandleFunc("GET /api/v1/y", middleware.AnyKey(), sayOK)
	for path, want := range map[string]string{"/api/v1/x": "route client, organization key", "/api/v1/y": "client, organization key"} {
		store.first = nil
		serve(api, request("GET", path, token, ""))
		if got := strings.Join(store.first, ", "); got != want {
			t.Errorf("%s: got the decisions %s, want %s", path, got, want)
		}
	}
}
