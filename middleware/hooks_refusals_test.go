package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// A failing store is no way to fill the log.
func TestFaultsAreLoggedOnceASecond(t *testing.T) {
	log := newLogged()
	h := middleware.New(brokenKeys{}, middleware.Options{Hooks: log.hooks()}).Authenticate(http.NotFoundHandler())
	token := newKeyring().issue(t)
	for range 100 {
		serve(h, request("GET", "/", token, ""))
	}
	if n := strings.Count(log.String(), "could not be checked"); n < 1 || n > 3 {
		t.Errorf("100 failures in an instant have %d lines", n)
	}
}

type brokenKeys struct{}

func (brokenKeys) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errors.New("no route to host")
}

// The Problem hook finds the request id, also where a handler panicked.
func TestHookFindsTheID(t *testing.T) {
	for _, line := range []string{"Idempotency-Key: 1", "X-Other: 1"} {
		ring := newKeyring()
		hooks, seen := quiet(), ""
		hooks.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) {
			seen = middleware.RequestIDFrom(r.Context())
			return "text/plain", []byte(p.RequestID)
		}
		api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}, Hooks: hooks})
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) { panic("boom") })
		if got := serve(api, request("POST", "/api/v1/x", ring.issue(t), "{}", line)); seen == "" || got.body != seen || seen != got.Header.Get("Svc-Request-Id") {
			t.Errorf("%s: the hook saw %q and wrote %q, the client got %q", line, seen, got.body, got.Header.Get("Svc-Request-Id"))
		}
	}
}
