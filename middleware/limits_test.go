package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestLimits: what requests were charged can be looked at, which changes
// nothing, and be reset.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token := ring.issue(t)
		testToken, _ := ring.grant(t, keystore.Grant{Organization: "org_1", Environment: keystore.Sandbox})
		var who []middleware.Principal
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
			Store: ratelimit.NewMemory(), Organization: policy("organization", "60-M", 0), Sandbox: policy("sandbox", "6-M", 0),
			Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, nil },
			Key:  reportOnly("key", "10-M"), Client: policy("client", "1000-S", 0), Concurrent: 9,
		}})
		own, report := policy("own", "5-M", 0), reportOnly("report", "3-M")
		note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, _ := middleware.PrincipalFrom(r.Context())
			who = append(who, p)
		})
		api.Handle("GET /api/v1/x", middleware.AnyCaller(), note, middleware.RouteOptions{Limit: own, Cost: 2})
		api.Handle("GET /api/v1/y", middleware.AnyCaller(), note, middleware.RouteOptions{Limit: own})
		api.Handle("GET /api/v1/z", middleware.AnyCaller(), note, middleware.RouteOptions{Limit: report, ReportOnly: true})
		for _, path := range []string{"x", "y", "z"} {
			if res := serve(api, request("GET", "/api/v1/"+path, token, "")); res.StatusCode != 200 {
				t.Fatalf("%s: got %d %s", path, res.StatusCode, res.body)
			}
		}
		serve(api, request("GET", "/api/v1/z", testToken, ""))
		production, sandbox := who[0], who[3]
		want := func(p middleware.Principal, text string) {
			t.Helper()
			states, err := api.Limits(t.Context(), p)
			if got := statesText(states); err != nil || got != text {
				t.Errorf("got %s, %v, want %s", got, err, text)
			}
		}
		const spent = "organization 56/60 4s, key 6/10 24s, own 2/5 36s, report 2/3 20s"
		for range 3 {
			want(production, spent)
		}
		support, err := middleware.NewPrincipal(nil, middleware.Identity{Organization: production.Organization()})
		if err != nil {
			t.Fatal(err)
		}
		want(support, "organization 56/60 4s, key 10/10 0s, own 2/5 36s, report 2/3 20s")
		want(sandbox, "sandbox 5/6 10s, key 9/10 6s, own 5/5 0s, report 2/3 20s")
		time.Sleep(4 * time.Second)
		want(production, "organization 60/60 0s, key 6/10 20s, own 2/5 32s, report 2/3 16s")
		if err := api.ResetLimits(t.Context(), production); err != nil {
			t.Error(err)
		}
		want(production, "organization 60/60 0s, key 10/10 0s, own 5/5 0s, report 3/3 0s")
		want(sandbox, "sandbox 5/6 6s, key 9/10 2s, own 5/5 0s, report 2/3 16s")
	})
}

// TestLimitsOfAGuard: a caller that was made by hand, and a plan.
func TestLimitsOfAGuard(t *testing.T) {
	g := middleware.New(nil, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(), Key: policy("key", "2-H", 0),
		Plan: func(_ context.Context, p middleware.Principal) (*ratelimit.Policy, error) {
			return map[string]*ratelimit.Policy{"user_1": policy("plan", "3-H", 0), "user_2": ratelimit.Unlimited,
				"user_3": {}}[p.Subject()], nil
		},
	}})
	one, two := by(t, "user_1"), by(t, "user_2")
	h := g.RateLimit(http.HandlerFunc(sayOK))
	for range 3 {
		serve(as(one)(h), request("GET", "/", "", ""))
	}
	for p, want := range map[middleware.Principal]string{one: "plan 1/3 40m0s, key 0/2 1h0m0s", two: "key 2/2 0s",
		by(t, "user_4"): "key 2/2 0s"} {
		states, err := g.Limits(t.Context(), p)
		for i := range states {
			states[i].Reset = states[i].Reset.Round(time.Minute)
		}
		if got := statesText(states); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", p.Subject(), got, err, want)
		}
	}
	if err := g.ResetLimits(t.Context(), one); err != nil {
		t.Error(err)
	}
	if res := serve(as(one)(h), request("GET", "/", "", "")); res.StatusCode != 200 {
		t.Errorf("after a reset: got %d", res.StatusCode)
	}
	if _, err := g.Limits(t.Context(), by(t, "user_3")); err == nil ||
		!strings.Contains(err.Error(), "KeyPlan gave no usable policy") {
		t.Errorf("a plan without sense: got %v", err)
	}
	if _, err := g.Limits(t.Context(), middleware.Principal{}); err == nil {
		t.Error("nobody has limits")
	}
	if err := g.ResetLimits(t.Context(), middleware.Principal{}); err == nil {
		t.Error("the limits of nobody were reset")
	}
}

// TestLimitsOfAChangingPlan: a policy that Plan makes anew for each call is
// one.
func TestLimitsOfAChangingPlan(t *testing.T) {
	api := middleware.NewAPI(keystore.NewMemory(), middleware.Options{RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(),
		Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
			return policy("plan", "3-H", 0), nil
		},
	}})
	api.Handle("GET /api/v1/x", middleware.AnyCaller(), http.HandlerFunc(sayOK),
		middleware.RouteOptions{Limit: policy("plan", "3-H", 0)})
	if states, err := api.Limits(t.Context(), by(t, "")); err != nil || statesText(states) != "plan 3/3 0s, plan 3/3 0s" {
		t.Errorf("got %s, %v", statesText(states), err)
	}
}

// TestLimitsAfterAPlanChange: what is shown and reset is the budget of the
// caller's present plan.
func TestLimitsAfterAPlanChange(t *testing.T) {
	plan := policy("plan", "3-H", 0)
	g := middleware.New(nil, middleware.Options{Hooks: quiet(), RateLimit: middleware.RateLimitOptions{
		Store: ratelimit.NewMemory(), Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy,
			error) {
			return plan, nil
		},
	}})
	p := by(t, "user_1")
	h := as(p)(g.RateLimit(http.HandlerFunc(sayOK)))
	left := func(limit string) (left int64) {
		plan = policy("plan", limit, 0)
		states, err := g.Limits(t.Context(), p)
		if err != nil || len(states) != 1 {
			t.Fatalf("got %v, %v", states, err)
		}
		return states[0].Remaining
	}
	for range 2 {
		serve(h, request("GET", "/", "", ""))
	}
	if a, b := left("5-D"), left("3-H"); a != 5 || b != 1 {
		t.Errorf("got %d of 5 and %d of 3, want 5 and 1", a, b)
	}
	left("5-D")
	serve(h, request("GET", "/", "", ""))
	if err := g.ResetLimits(t.Context(), p); err != nil {
		t.Error(err)
	}
	if a, b := left("5-D"), left("3-H"); a != 5 || b != 1 {
		t.Errorf("after a reset: got %d of 5 and %d of 3, want 5 and 1", a, b)
	}
}

// TestLimitsOfAStore: its errors come back; one that cannot be reset says so;
// the lists are those of requests.
func TestLimitsOfAStore(t *testing.T) {
	down := errors.New("store is down")
	guard := func(s ratelimit.Store) *middleware.Guard {
		return middleware.New(nil, middleware.Options{RateLimit: middleware.RateLimitOptions{Store: s,
			Organization: policy("organization", "9-H", 0), Key: policy("key", "9-H", 0)}})
	}
	p := by(t, "user_1")
	fails := guard(takeFunc(func(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
		return ratelimit.Decision{}, down
	}))
	if _, err := fails.Limits(t.Context(), p); !errors.Is(err, down) {
		t.Errorf("got %v", err)
	}
	if err := fails.ResetLimits(t.Context(), p); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	if states, err := keyless().Limits(t.Context(), p); err != nil || len(states) != 0 {
		t.Errorf("without limits: got %v, %v", states, err)
	}
	if err := keyless().ResetLimits(t.Context(), p); err != nil {
		t.Errorf("without limits: got %v", err)
	}
	store := &lists{Store: ratelimit.NewMemory()}
	if _, err := guard(store).Limits(t.Context(), p); err != nil || strings.Join(store.first, ", ") != "organization key" {
		t.Errorf("got the lists %q, %v", store.first, err)
	}
}
