package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestValidate: a configuration hears of all its mistakes at once, and New and
// NewAPI panic with the same text.
func TestValidate(t *testing.T) {
	bad := &ratelimit.Policy{Name: "same", Limit: ratelimit.Limit{Count: -1, Period: time.Second}}
	o := middleware.Options{
		Base:          "api",
		RequestID:     middleware.RequestIDOptions{Header: "Content-Type"},
		Keys:          middleware.KeyOptions{Format: keystore.Format{Prefix: "No!"}, Realm: `a"b`, Environment: "staging"},
		Authenticator: nobody{},
		Failures:      ratelimit.Limit{Count: -1},
		RateLimit:     middleware.RateLimitOptions{Organization: bad, Key: bad, Concurrent: -1},
		Idempotency: middleware.IdempotencyOptions{
			Methods: []string{"GET", "post"}, MaxBody: 2, MaxBodies: 1, Timeout: -1, FreeOn: []int{200}, Streaming: []string{"text/x-log; charset=utf-8"},
		},
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		`Options.Base: "api" is not a path`,
		`Options.RequestID.Header: "Content-Type" is a standard header`,
		`prefix "No!"`, `the realm "a\"b"`, `unknown environment "staging"`,
		"Options.Failures: ratelimit:", "it applies to API keys only",
		`two policies are named "same"`, "there is a policy and Store is nil", "Concurrent is negative",
		"leave GET out of Methods", `"post" in Methods`, "a limit is negative", "MaxBodies is smaller than twice MaxBody", "FreeOn has 200", `charset=utf-8" in Streaming`, "Options.Idempotency: a field is set and Runner is nil",
	} {
		n := 0
		for _, line := range lines {
			if strings.Contains(line, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("got %d lines about %q, want one, in\n%s", n, want, err)
		}
	}
	if got := strings.Count(err.Error(), "ratelimit: policy"); got != 2 {
		t.Errorf("got %d lines about policies that are not valid, want 2, in\n%s", got, err)
	}
	wantPanic(t, err.Error(), func() { middleware.New(nil, o) })
	wantPanic(t, err.Error(), func() { middleware.NewAPI(nil, o) })
}

func TestValidateAccepts(t *testing.T) {
	for name, o := range map[string]middleware.Options{
		"nothing":       {},
		"authenticator": {Authenticator: nobody{}},
		"statuses":      {Idempotency: middleware.IdempotencyOptions{Runner: replies(), FreeOn: []int{400, 599}}},
		"one name for organization and sandbox": {RateLimit: middleware.RateLimitOptions{
			Store:        ratelimit.NewMemory(),
			Organization: &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("9-S")},
			Sandbox:      &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("1-S")},
		}},
	} {
		if err := o.Validate(); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestRequestIDHeadersWithAMeaning: the id may not take the place of a header
// that clients or proxies read.
func TestRequestIDHeadersWithAMeaning(t *testing.T) {
	for header, ok := range map[string]bool{
		"X-Request-Id": true, "Contents": true, "content-length": false, "Access-Control-Allow-Origin": false, "Set-Cookie": false, "X-RateLimit-Reset": false,
		"RateLimit": false, "Idempotent-Replayed": false, "LOCATION": false,
	} {
		err := middleware.Options{RequestID: middleware.RequestIDOptions{Header: header}}.Validate()
		if (err == nil) != ok {
			t.Errorf("%s: got %v", header, err)
		}
	}
}

// TestRealms: a realm stands in quotes in a challenge, as it is.
func TestRealms(t *testing.T) {
	for realm, ok := range map[string]bool{
		"acme (v1), live": true, `a"b`: false, `a\b`: false, "a\tb": false, "a\x7f": false, "über": false, "a\xff": false,
	} {
		err := middleware.Options{Keys: middleware.KeyOptions{Realm: realm}}.Validate()
		if (err == nil) != ok {
			t.Errorf("%q: got %v", realm, err)
		}
	}
}

func TestConfigurationThatWouldFailOpen(t *testing.T) {
	for _, methods := range [][]string{{"post"}, {""}, {"PO ST"}} {
		mustPanic(t, fmt.Sprint(methods), func() {
			middleware.New(nil, middleware.Options{Idempotency: middleware.IdempotencyOptions{Methods: methods}})
		})
	}
	for _, header := range []string{"Location", "set-cookie", "Content-Length", "Transfer-Encoding", "Trailer", "two words", "Retry-After"} {
		mustPanic(t, header, func() {
			middleware.New(nil, middleware.Options{RequestID: middleware.RequestIDOptions{Header: header}})
		})
	}
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	api.HandleFunc("POST\t /api/v1/x", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	if routes := api.Routes(); len(routes) != 1 || routes[0].Method != "POST" || !routes[0].Idempotent {
		t.Errorf("a tab in the pattern: got %+v", routes)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p == nil || !strings.HasPrefix(fmt.Sprint(p), "middleware: ") {
			t.Errorf("%s: got panic %v, want one of this package", what, p)
		}
	}()
	f()
}
