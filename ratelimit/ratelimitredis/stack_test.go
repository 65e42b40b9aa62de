package ratelimitredis_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

// get sends a request with a valid key through all stages.
type get func() *httptest.ResponseRecorder

func newStack(t testing.TB, limits middleware.RateLimitOptions, route middleware.RouteOptions) get {
	t.Helper()
	keys := issuing.NewMemory()
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "org_1", Environment: keystore.Production, Name: "test", Scopes: []scope.Name{scope.AccountRead},
	})
	if err != nil {
		t.Fatal(err)
	}
	hooks := &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}
	api := middleware.NewAPI(keys, middleware.Options{RateLimit: limits, Hooks: hooks})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead),
		func(http.ResponseWriter, *http.Request) {}, route)
	return func() *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/api/v1/account", nil)
		r.Header.Set("Authorization", "Bearer "+secret.Reveal())
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
}

// A request with four limits costs one command; one that is known to be denied
// costs none.
func TestCommandsOfARequest(t *testing.T) {
	client := redistest.Start(t).Client()
	get := newStack(t, middleware.RateLimitOptions{
		Store:        ratelimitredis.New(client, ratelimitredis.Options{Failover: patient}),
		Organization: named("organization", 100),
		Key:          named("key", 100),
		Client:       named("client", 100),
	}, middleware.RouteOptions{Policy: named("account", 12)})
	warmUp := get()
	for _, step := range []struct {
		name             string
		requests, status int
		commands         int
	}{
		{"admitted", 11, 200, 11},
		{"denied for the first time", 1, 429, 1},
		{"known to be denied", 50, 429, 0},
	} {
		before := scriptCalls(t, client)
		for range step.requests {
			if w := get(); w.Code != step.status {
				t.Fatalf("%s: got %d, want %d\n%s", step.name, w.Code, step.status, w.Body)
			}
		}
		if n := scriptCalls(t, client) - before; n != step.commands {
			t.Errorf("%d requests %s: got %d commands, want %d", step.requests, step.name, n, step.commands)
		}
	}
	if warmUp.Code != 200 {
		t.Errorf("got %d for the first request, want 200", warmUp.Code)
	}
}
