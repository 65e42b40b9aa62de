package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// brokenStore is a store that cannot answer.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []ratelimit.Take) (ratelimit.Decision, error) {
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
		limits middleware.Limits
		want   string
	}{
		{"alone", middleware.Limits{Store: brokenStore{}, Organization: mode(ratelimit.Open)}, "503 503 503 503"},
		{"Local", middleware.Limits{Store: failover(), Organization: mode(ratelimit.Local)}, "200 200 429 429"},
		{"Open", middleware.Limits{Store: failover(), Organization: mode(ratelimit.Open)}, "200 200 200 200"},
		{"Closed", middleware.Limits{Store: failover(), Organization: mode(ratelimit.Closed)}, "503 503 503 503"},
		{"Closed beside Open", middleware.Limits{Store: failover(), Organization: mode(ratelimit.Open), Key: &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("9-S"), OnFailure: ratelimit.Closed}}, "503 503 503 503"},
	}
	for _, tt := range tests {
		tt.limits.FieldsDraft11 = true
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
	api := testAPI(ring.keys, middleware.Options{Hooks: log.hooks(), Limits: middleware.PerOrganization(brokenStore{}, ratelimit.MustParse("1-S"))})
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

// TestPlanWithoutSense: a plan that is no limit fails closed.
func TestPlanWithoutSense(t *testing.T) {
	api, live, _, _ := limited(t, middleware.Limits{Plan: func(middleware.Principal) *ratelimit.Policy { return &ratelimit.Policy{} }})
	wantRefusal(t, "zero policy", serve(api, request("GET", "/api/v1/tasks", live, "")), 503, "rate_store_unavailable", "")
}
