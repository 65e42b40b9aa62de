package middleware_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// recording hands on a writer as access logs do: one that notes the status, and
// has no Unwrap.
var recording = wrapping(func(w http.ResponseWriter) http.ResponseWriter { return &written{ResponseWriter: w} })

// TestDecisionsInsideIdempotent: an API, or Authenticate and Enforce, inside
// Idempotent refuses the request behind any writer, because a replay would give
// the reply to a key that they refuse. A request that a handler makes is another
// one, and is decided for itself.
func TestDecisionsInsideIdempotent(t *testing.T) {
	ring, log := newKeyring(), newLogged()
	with, without := ring.issue(t, scope.TasksWrite), ring.issue(t)
	secret := steps("201", "secret")
	options := func() middleware.Options {
		return middleware.Options{Hooks: log.hooks(), Idempotency: keyedOptions{Runner: replies()}}
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks()})
	api.HandleFunc("POST /api/v1/x", middleware.Require(scope.TasksWrite), secret)
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks()})
	inners := map[string]http.Handler{
		"API":                      api,
		"Authenticate and Enforce": middleware.Chain(g.Authenticate, g.Enforce(middleware.Require(scope.TasksWrite)))(secret),
		"RequestID and the same": middleware.Chain(g.RequestID, g.Authenticate,
			g.Enforce(middleware.Require(scope.TasksWrite)))(secret),
		"a caller and the same inside": as(by(t, "other"))(middleware.Chain(g.Authenticate,
			g.Enforce(middleware.Require(scope.TasksWrite)))(secret)),
	}
	outers := claiming(ring, options)
	outers["WithCaller"] = func(h http.Handler) http.Handler {
		g := middleware.New(nil, options())
		return middleware.Chain(as(by(t, "user")), g.Enforce(middleware.AnyCaller()), g.Idempotent)(h)
	}
	between := map[string]func(h http.Handler) http.Handler{
		"nothing":           middleware.Chain(),
		"TimeoutHandler":    func(h http.Handler) http.Handler { return http.TimeoutHandler(h, hangs, "") },
		"a status recorder": recording,
		"a buffer": foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			a := serve(h, r.WithContext(r.Context()))
			w.WriteHeader(a.StatusCode)
			_, _ = io.WriteString(w, a.body)
		}),
		"a status recorder and a clone": middleware.Chain(recording,
			foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) { h.ServeHTTP(w, r.Clone(r.Context())) })),
		"a clone with a new body and TimeoutHandler": foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			body, _ := io.ReadAll(r.Body)
			again := r.Clone(r.Context())
			again.Body = io.NopCloser(bytes.NewReader(body))
			http.TimeoutHandler(h, hangs, "").ServeHTTP(w, again)
		}),
	}
	send := func(h http.Handler, token string) answer {
		return serve(h, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: a"))
	}
	for outer, build := range outers {
		for inner, h := range inners {
			for name, writer := range between {
				h, before := build(writer(h)), len(log.String())
				for _, token := range []string{with, without} {
					if a := send(h, token); a.StatusCode != 500 || strings.Contains(a.body, "secret") {
						t.Errorf("%s, %s, %s: got %d %s, want 500", outer, name, inner, a.StatusCode, a.body)
					}
				}
				if got := log.String()[before:]; !strings.Contains(got, "inside Idempotent") {
					t.Errorf("%s, %s, %s: the log does not say it: %s", outer, name, inner, got)
				}
			}
			h := build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for key, want := range map[string]int{with: 201, without: 403} {
					own, _ := http.NewRequestWithContext(r.Context(), "POST", "/api/v1/x", r.Body)
					own.Header = r.Header // which http.Request.Clone would have copied
					own.Header.Set("Authorization", "Bearer "+key)
					wantAnswer(t, fmt.Sprintf("%s, %s: a request within the request", outer, inner), serve(h, own), want)
				}
			}))
			wantAnswer(t, fmt.Sprintf("%s, %s: the request around it", outer, inner), send(h, with), 200)
		}
	}
}

// TestStagesCalledTwice: a handler calls stages again for its own request. The
// key is claimed once.
func TestStagesCalledTwice(t *testing.T) {
	ring, token := oneKey(t, scope.TasksWrite)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
	var runs []string
	create := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs = append(runs, middleware.CallerFrom(r.Context()).Organization())
	})
	for name, twice := range map[string]http.Handler{
		"Idempotent":                    g.Idempotent(create),
		"RequestID and Recover":         middleware.Chain(g.RequestID, g.Recover)(create),
		"RateLimit, which has no limit": g.RateLimit(create),
	} {
		runs = nil
		h := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()),
			g.Idempotent)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			twice.ServeHTTP(w, r)
			recording(twice).ServeHTTP(w, r)
		}))
		for _, replayed := range []string{"", "true"} {
			a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+name))
			if wantID(t, a.Response); a.StatusCode != 200 || a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: %d %s, replayed %q, want 200 and %q", name, a.StatusCode, a.body,
					a.Header.Get("Idempotent-Replayed"), replayed)
			}
		}
		if strings.Join(runs, " ") != "org_1 org_1" {
			t.Errorf("%s: the handler ran for %q, want twice for org_1", name, runs)
		}
	}
}

func TestChain(t *testing.T) {
	mark := func(name string) func(http.Handler) http.Handler {
		return foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			io.WriteString(w, name+"(")
			next.ServeHTTP(w, r)
			io.WriteString(w, ")")
		})
	}
	h := sayOK
	for want, chain := range map[string]func(http.Handler) http.Handler{
		"ok":          middleware.Chain(),
		"a(ok)":       middleware.Chain(mark("a")),
		"a(b(c(ok)))": middleware.Chain(mark("a"), middleware.Chain(mark("b"), mark("c"))),
	} {
		if got := serve(chain(h), request("GET", "/", "", "")).body; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	wantPanic(t, "a stage is nil", func() { middleware.Chain(mark("a"), nil) })
}

// TestMisplacedPieces: a stage that misses what must stand before it answers
// every request with 500 and says in the log what is missing.
func TestMisplacedPieces(t *testing.T) {
	ring, token := oneKey(t)
	store, records := &ratelimit.Memory{}, &idem.Memory{}
	g := middleware.New(ring.keys, middleware.Options{
		RateLimit:   perOrganization(store, ratelimit.MustParse("9-S")),
		Idempotency: keyedOptions{Runner: runnerOf(records)},
	})
	g.RateLimit(http.NotFoundHandler()) // else there is a warning of its own
	anotherRoute := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		serve(g.Enforce(middleware.AnyCaller())(sayOK), r)
		next.ServeHTTP(w, r)
	})
	other := middleware.New(ring.keys, with(keyedOptions{Runner: replies()}))
	limited := func(o rateOptions) func(http.Handler) http.Handler {
		return middleware.New(nil, middleware.Options{RateLimit: o}).RateLimit
	}
	tests := []struct {
		name  string
		chain func(http.Handler) http.Handler
		log   string
	}{
		{"Enforce alone", g.Enforce(middleware.AnyCaller()), "Enforce has no Authenticate before it"},
		{"Enforce before Authenticate", middleware.Chain(g.Enforce(middleware.AnyCaller()), g.Authenticate),
			"Enforce has no Authenticate before it"},
		{"Enforce inside Idempotent", middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent,
			g.Enforce(middleware.Require(scope.TasksRead))), "Enforce stands inside Idempotent"},
		{"Enforce that any caller passes, inside Idempotent",
			middleware.Chain(anyCaller(g), g.Idempotent, g.Enforce(middleware.AnyCaller())), "Enforce stands inside Idempotent"},
		{"RateLimit alone", g.RateLimit, "RateLimit counts by organization or key, and has no Authenticate before it"},
		{"RateLimit before Authenticate", middleware.Chain(g.RateLimit, g.Authenticate),
			"RateLimit counts by organization or key"},
		{"RateLimit by key alone", limited(rateOptions{Store: store,
			Key: &ratelimit.Policy{Name: "key", Limit: ratelimit.MustParse("1-S")}}), "RateLimit counts by organization or key"},
		{"RateLimit of concurrency alone", limited(rateOptions{Concurrent: 1}), "RateLimit counts by organization or key"},
		{"RateLimit by plan alone", limited(rateOptions{Store: store, Plan: planned(nil, nil)}),
			"RateLimit counts by organization or key"},
		{"Idempotent alone", g.Idempotent, "Idempotent has no Enforce before it"},
		{"Idempotent before Enforce", middleware.Chain(g.Authenticate, g.Idempotent, g.Enforce(middleware.AnyCaller())),
			"Idempotent has no Enforce before it"},
		{"Idempotent after the Enforce of another route", middleware.Chain(g.Authenticate, anotherRoute, g.Idempotent),
			"Idempotent has no Enforce before it"},
		{"Idempotent inside another", middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent,
			other.Idempotent), "Idempotent stands inside another Idempotent"},
	}
	for _, tt := range tests {
		log := newLogged()
		ran := false
		h := middleware.Chain(middleware.New(nil, middleware.Options{Hooks: log.hooks()}).RequestID,
			tt.chain)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran = true }))
		wantRefusal(t, tt.name, serve(h, request("GET", "/", token, "")), 500, "internal", "")
		before := len(log.String())
		res := serve(h, request("POST", "/secret-free/path", token, "", "Idempotency-Key: 1"))
		wantRefusal(t, tt.name, res, 500, "internal", "")
		got := log.String()[before:]
		if ran || !strings.Contains(got, tt.log) || !strings.Contains(got, "path=/secret-free/path") ||
			!strings.Contains(got, wantID(t, res.Response)) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: ran %v, got the log %q, want one line about %q", tt.name, ran, got, tt.log)
		}
		if s := records.Stats(); s.Keys != 0 {
			t.Errorf("%s: the key is not free: %+v", tt.name, s)
		}
	}
}

// TestStageOfAnotherGuard: a route takes a stage with other options from a
// second Guard, and the log has nothing to say.
func TestStageOfAnotherGuard(t *testing.T) {
	ring, log := newKeyring(), newLogged()
	o := middleware.Options{Hooks: log.hooks(), Idempotency: keyedOptions{Runner: replies()}}
	g := middleware.New(ring.keys, o)
	o.Idempotency = keyedOptions{Runner: replies(), MismatchStatus: 409}
	other := middleware.New(ring.keys, o)
	mux := http.NewServeMux()
	for path, idempotent := range map[string]func(http.Handler) http.Handler{"/a": g.Idempotent, "/b": other.Idempotent} {
		mux.Handle(path, middleware.Chain(g.Enforce(middleware.AnyCaller()), idempotent)(sayOK))
	}
	h, token := middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(mux), ring.issue(t)
	for path, mismatch := range map[string]int{"/a": 422, "/b": 409} {
		for i, want := range []int{200, 200, mismatch} {
			a := serve(h, request("POST", path, token, strings.Repeat("x", i/2), "Idempotency-Key: "+path))
			if replayed := a.replayed(); a.StatusCode != want || replayed != (i == 1) {
				t.Errorf("%s, request %d: got %d, replayed %v, want %d", path, i, a.StatusCode, replayed, want)
			}
		}
	}
	if log.String() != "" {
		t.Errorf("the log has %s", log)
	}
}

// TestUnknownPaths: around the router, Authenticate and RateLimit decide about
// its own 404s; on a route they do not.
func TestUnknownPaths(t *testing.T) {
	for name, tt := range map[string]struct {
		around bool
		want   string // without a key, and twice with one that may send one request
	}{"around the router": {true, "401 404 429"}, "on the route": {false, "404 404 404"}} {
		ring, token := oneKey(t)
		g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(),
			RateLimit: perOrganization(&ratelimit.Memory{}, ratelimit.Limit{Count: 1, Period: 24 * time.Hour})})
		around, route := middleware.Chain(g.Authenticate, g.RateLimit), middleware.Chain()
		if !tt.around {
			around, route = route, around
		}
		mux := http.NewServeMux()
		mux.Handle("GET /tasks", middleware.Chain(route, g.Enforce(middleware.AnyCaller()))(sayOK))
		h := middleware.Chain(g.RequestID, g.Recover, around)(mux)
		var got []string
		for _, key := range []string{"", token, token} {
			got = append(got, strconv.Itoa(serve(h, request("GET", "/none", key, "")).StatusCode))
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}
