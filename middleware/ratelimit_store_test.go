package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// brokenStore is a store that cannot answer.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, errors.New("redis: connection refused")
}

// TestRateStoreDown: each policy's mode decides behind a Failover, and a store
// alone is an error of ours.
func TestRateStoreDown(t *testing.T) {
	mode := func(m ratelimit.FailureMode) *ratelimit.Policy {
		p := policy("organization", "2-H", 0)
		p.OnFailure = m
		return p
	}
	failover := func() ratelimit.Store {
		return ratelimit.NewFailover(brokenStore{}, ratelimit.FailoverOptions{Logger: quiet().Logger})
	}
	tests := []struct {
		name   string
		limits middleware.RateLimitOptions
		want   string
	}{
		{"alone", middleware.RateLimitOptions{Store: brokenStore{}, Organization: mode(ratelimit.Open)}, "503 503 503 503"},
		{"Local", middleware.RateLimitOptions{Store: failover(), Organization: mode(ratelimit.Local)}, "200 200 429 429"},
		{"Open", middleware.RateLimitOptions{Store: failover(), Organization: mode(ratelimit.Open)}, "200 200 200 200"},
		{"Closed", middleware.RateLimitOptions{Store: failover(), Organization: mode(ratelimit.Closed)}, "503 503 503 503"},
		{"Closed beside Open", middleware.RateLimitOptions{Store: failover(), Organization: mode(ratelimit.Open), Key: &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("9-S"), OnFailure: ratelimit.Closed}}, "503 503 503 503"},
	}
	for _, tt := range tests {
		tt.limits.Fields = middleware.FieldsDraft11
		api, live, _, _ := limited(t, tt.limits)
		var got []string
		for range 4 {
			res := serve(api, request("GET", "/api/v1/tasks", live, ""))
			got = append(got, strconv.Itoa(res.StatusCode))
			if res.StatusCode == 503 {
				wantRefusal(t, tt.name, res, 503, "rate_store_unavailable", "")
				if strings.Contains(res.body, "redis") {
					t.Errorf("%s: the cause is in the body: %s", tt.name, res.body)
				}
			} else {
				items(t, res.Header, "RateLimit")
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, strings.Join(got, " "), tt.want)
		}
	}
}

func TestRateStoreDownIsLogged(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	log := newLogged()
	api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: middleware.PerOrganization(brokenStore{}, ratelimit.MustParse("1-S"))})
	serve(api, request("GET", "/api/v1/any", token, ""))
	if got := log.String(); !strings.Contains(got, "connection refused") || strings.Count(got, "\n") != 1 {
		t.Errorf("got the log %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	serve(api, request("GET", "/api/v1/any", token, "").WithContext(ctx))
	if got := log.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("a client that has left is in the log: %q", got)
	}
}

// TestRateFaultsHideNoOther: two causes within one second have a line each.
func TestRateFaultsHideNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token, log := ring.issue(t), newLogged()
		limits := middleware.PerOrganization(brokenStore{}, ratelimit.MustParse("1-S"))
		broken := errors.New("no such plan")
		limits.Plan = func(context.Context, middleware.Principal) (*ratelimit.Policy, error) { return nil, broken }
		api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: limits})
		serve(api, request("GET", "/api/v1/any", token, ""))
		broken = nil
		for range 2 {
			serve(api, request("GET", "/api/v1/any", token, ""))
		}
		for _, want := range []string{"gave no usable policy", "the rate limit store does not answer"} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("%d lines say %q, want 1: %s", n, want, log)
			}
		}
	})
}

// TestPlanWithoutSense: a plan that is no limit fails closed.
func TestPlanWithoutSense(t *testing.T) {
	api, live, _, _ := limited(t, middleware.RateLimitOptions{Plan: func(context.Context, middleware.Principal) (*ratelimit.Policy, error) {
		return &ratelimit.Policy{}, nil
	}})
	wantRefusal(t, "zero policy", serve(api, request("GET", "/api/v1/tasks", live, "")), 503, "rate_store_unavailable", "")
}

// lateHeedful is a store whose caller leaves while it decides.
type lateHeedful struct {
	ratelimit.Store
	leave context.CancelFunc
}

func (s lateHeedful) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	s.leave()
	if err := ctx.Err(); err != nil {
		return ratelimit.Decision{}, err
	}
	return s.Store.Take(ctx, charges)
}

// A client that closes its sending half during the decision is served.
func TestClientLeavesDuringTake(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	ctx, cancel := context.WithCancel(t.Context())
	limits := middleware.PerOrganization(lateHeedful{ratelimit.NewMemory(), cancel}, ratelimit.MustParse("10-S"))
	api := testAPI(ring.keys, middleware.Options{RateLimit: limits})
	if a := serve(api, request("GET", "/api/v1/any", token, "").WithContext(ctx)); a.StatusCode != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.StatusCode, a.body)
	}
}

// denier is a store that denies and names no wait, against its contract.
type denier struct{}

func (denier) Take(context.Context, []ratelimit.Charge) (ratelimit.Decision, error) {
	return ratelimit.Decision{}, nil
}

// TestDenialWithoutAWait: a 429 has a Retry-After all the same.
func TestDenialWithoutAWait(t *testing.T) {
	ring := newKeyring()
	api := testAPI(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: middleware.PerOrganization(denier{}, ratelimit.MustParse("1-S"))})
	res := serve(api, request("GET", "/api/v1/any", ring.issue(t), ""))
	if got := res.Header.Get("Retry-After"); res.StatusCode != 429 || got != "1" {
		t.Errorf("got %d and Retry-After %q, want 429 and 1", res.StatusCode, got)
	}
}
