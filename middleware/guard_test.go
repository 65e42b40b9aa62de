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

// TestUnusedStages: a Guard whose options have limits or a Runner, and whose
// stage no handler has, says so once.
func TestUnusedStages(t *testing.T) {
	ring, token := oneKey(t)
	for _, row := range []struct {
		method, header string
		use            func(*middleware.Guard, http.Handler) http.Handler
		want           []string
	}{
		{"POST", "Idempotency-Key: a", nil,
			[]string{"RateLimit has not been used so far", "Idempotent has not been used so far"}},
		{"POST", "X-Nothing: a", nil, []string{"RateLimit has not been used so far"}},
		{"GET", "Idempotency-Key: a", nil, []string{"RateLimit has not been used so far"}},
		{"POST", "Idempotency-Key: a", func(g *middleware.Guard, h http.Handler) http.Handler { return g.Idempotent(h) },
			[]string{"RateLimit has not been used so far"}},
		{"POST", "Idempotency-Key: a", func(g *middleware.Guard, h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				g.RateLimit(g.Idempotent(h)).ServeHTTP(w, r) // as routers that apply stages to each request
			})
		}, nil},
	} {
		log := newLogged()
		g := middleware.New(ring.keys, middleware.Options{
			Hooks: log.hooks(), Idempotency: keyedOptions{Runner: replies()},
			RateLimit: rateOptions{Store: &ratelimit.Memory{}, Client: policy("client", "9-S", 0)},
		})
		h := http.Handler(sayOK)
		if row.use != nil {
			h = row.use(g, h)
		}
		h = middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()))(h)
		if text := log.String(); text != "" {
			t.Errorf("before a request: got %s", text)
		}
		for range 3 {
			if res := serve(h, request(row.method, "/", token, "", row.header)); res.StatusCode != 200 {
				t.Fatalf("got %d", res.StatusCode)
			}
		}
		text := log.String()
		if strings.Count(text, "\n") != len(row.want) || strings.Count(text, "level=WARN") != len(row.want) {
			t.Errorf("%s with %s: got %q, want %q", row.method, row.header, text, row.want)
		}
		for _, want := range row.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s with %s: got %q, want %q", row.method, row.header, text, want)
			}
		}
	}
}

// TestChargedTwice: a request that two RateLimit stages of the same options
// charge is told in the log, once. Those with policies of their own are not.
func TestChargedTwice(t *testing.T) {
	ring, token := oneKey(t)
	around := func(outer, inner rateOptions) func(*logged) http.Handler {
		return func(log *logged) http.Handler {
			o := middleware.Options{Hooks: log.hooks(), RateLimit: inner}
			api := middleware.NewAPI(ring.keys, o)
			api.HandleFunc("GET /api/v1/tasks", middleware.AnyCaller(), sayOK)
			o.RateLimit = outer
			g := middleware.New(ring.keys, o)
			return middleware.Chain(g.RequestID, g.Authenticate, g.RateLimit)(api)
		}
	}
	plan := func(context.Context, *keystore.Caller) (organization, key *ratelimit.Policy, err error) {
		return policy("plan", "999-S", 0), nil, nil
	}
	limits := middleware.PerOrganization("999-S")
	planned := rateOptions{Store: &ratelimit.Memory{}, Plan: plan}
	elsewhere := limits
	elsewhere.Store = takeFunc((&ratelimit.Memory{}).Take)
	for name, row := range map[string]struct {
		build func(*logged) http.Handler
		want  int
	}{
		"around an API": {around(limits, limits), 1},
		"by a plan":     {around(planned, planned), 1},
		"in a chain": {func(log *logged) http.Handler {
			g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(), RateLimit: limits})
			return middleware.Chain(g.RequestID, g.Authenticate, g.RateLimit, g.RateLimit,
				g.Enforce(middleware.AnyCaller()))(sayOK)
		}, 1},
		"others":        {around(middleware.PerOrganization("999-S"), limits), 0},
		"another store": {around(elsewhere, limits), 0},
		"the same":      {around(elsewhere, elsewhere), 0}, // a func is not compared
	} {
		log := newLogged()
		h := row.build(log)
		for range 3 {
			if res := serve(h, request("GET", "/api/v1/tasks", token, "")); res.StatusCode != 200 {
				t.Fatalf("%s: got %d", name, res.StatusCode)
			}
		}
		if got := strings.Count(log.String(), "stands twice"); got != row.want {
			t.Errorf("%s: got %d lines, want %d: %s", name, got, row.want, log)
		}
	}
}

// TestWaitSettled: a shutdown waits for the creates that run, those of a
// route's own Runner included, as long as its context lets it.
func TestWaitSettled(t *testing.T) {
	own := middleware.RouteOptions{Idempotency: keyedOptions{Runner: replies()}}
	type builder = func(*keyring, middleware.Options, http.Handler) (*middleware.Guard, http.Handler)
	apiWith := func(route middleware.RouteOptions) builder {
		return func(ring *keyring, o middleware.Options, create http.Handler) (*middleware.Guard, http.Handler) {
			api := middleware.NewAPI(ring.keys, o)
			api.Handle("POST /api/v1/tasks", middleware.AnyCaller(), create, route)
			return api.Guard(), api
		}
	}
	for name, build := range map[string]builder{
		"Guard": func(ring *keyring, o middleware.Options, create http.Handler) (*middleware.Guard, http.Handler) {
			g := middleware.New(ring.keys, o)
			return g, middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent)(create)
		},
		"API": apiWith(middleware.RouteOptions{}), "a route's own Runner": apiWith(own),
	} {
		inBubble(t, name, func(t *testing.T) {
			ring := newKeyring()
			token, o := ring.issue(t), middleware.Options{Hooks: quiet()}
			o.Idempotency.Runner = replies()
			own.Idempotency.Runner = replies() // of this bubble
			s, h := build(ring, o, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) }))
			go serve(h, request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: a"))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.WaitSettled(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after a second: got %v, want %v", err, context.DeadlineExceeded)
			}
			begun := time.Now()
			if err := s.WaitSettled(t.Context()); err != nil || time.Since(begun) != 9*time.Second {
				t.Errorf("got %v after %v, want the 9s that the create took", err, time.Since(begun))
			}
		})
	}
	if err := keyless().WaitSettled(t.Context()); err != nil {
		t.Errorf("without a Runner: %v", err)
	}
}
