package middleware_test

import (
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// callerService is each stage for callers that WithCaller names.
func callerService(o middleware.Options, h http.Handler) http.Handler {
	g := middleware.New(nil, o)
	return middleware.Chain(g.RateLimit, g.Enforce(middleware.Require(scope.TasksWrite)), g.Idempotent)(h)
}

// TestWithCaller: everything inward works for a caller made by hand as
// for a key, with and without RequestID.
func TestWithCaller(t *testing.T) {
	for _, ids := range []bool{true, false} {
		runs := 0
		o := middleware.Options{
			Hooks: quiet(), RateLimit: middleware.PerOrganization("5-H"),
			Idempotency: keyedOptions{Runner: replies()},
		}
		service := callerService(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.WriteHeader(201)
			_, _ = io.WriteString(w, middleware.CallerFrom(r.Context()).Subject())
		}))
		ask := func(p *keystore.Caller, key string) answer {
			h := as(p)(service)
			if ids {
				h = middleware.Chain(keyless().RequestID, as(p))(service)
			}
			return serve(h, request("POST", "/tasks", "", "{}", "Idempotency-Key: "+key))
		}
		writer, reader := by(t, "user_1", scope.TasksWrite), by(t, "user_2", scope.TasksRead)
		for _, replayed := range []bool{false, true} {
			res := ask(writer, "a")
			if wantAnswer(t, "a writer", res, 201, "user_1"); res.replayed() != replayed {
				t.Errorf("replayed %t, want %t", res.replayed(), replayed)
			}
		}
		wantAnswer(t, "without the scope", ask(reader, "a"), 403)
		// The same key of another subject is another operation.
		if res := ask(by(t, "user_3", scope.TasksWrite), "a"); res.StatusCode != 201 || res.body != "user_3" ||
			res.replayed() || runs != 2 {
			t.Errorf("another subject: got %d %s after %d runs", res.StatusCode, res.body, runs)
		}
		wantAnswer(t, "another key", ask(writer, "b"), 201)
		wantAnswer(t, "over the organization's limit", ask(writer, "a"), 429)
		for _, nobody := range []*keystore.Caller{nil, {}} {
			known := middleware.CallerFrom(middleware.WithCaller(t.Context(), nobody))
			if res := ask(nobody, "a"); res.StatusCode != 500 || known != nil {
				t.Errorf("nobody: got %d for %v", res.StatusCode, known)
			}
		}
		foreign, err := keystore.NewCaller(scope.New(scope.Definition{Name: scope.TasksWrite, Meaning: "x"}),
			keystore.Identity{Organization: "org_9", Scopes: []scope.Name{scope.TasksWrite}})
		if err != nil {
			t.Fatal(err)
		}
		if res := ask(foreign, "a"); res.StatusCode != 500 || runs != 3 {
			t.Errorf("a caller of another registry: got %d after %d runs", res.StatusCode, runs)
		}
	}
}

// TestPartitionsOfCallers: replies never cross organizations, environments or
// subjects, whatever the texts look like when they are put together.
func TestPartitionsOfCallers(t *testing.T) {
	identity := func(organization, subject string, e keystore.Environment) *keystore.Caller {
		p, err := keystore.NewCaller(nil, keystore.Identity{Organization: organization, Subject: subject, Environment: e,
			Scopes: []scope.Name{scope.TasksWrite}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	callers := []*keystore.Caller{
		identity("a", "b c", ""), identity("a b", "c", ""), identity("a b c", "", ""), identity("a", "b", ""),
		identity("ab", "", ""), identity("a", "b", keystore.Sandbox), identity("a", "", ""),
		identity("a", "", keystore.Sandbox), identity("a", "production", ""),
	}
	runs := 0
	limits := rateOptions{Store: &ratelimit.Memory{}, Key: policy("key", "1-H", 0)}
	for _, o := range []middleware.Options{
		{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}},                    // replies
		{Hooks: quiet(), RateLimit: limits, Idempotency: keyedOptions{Runner: replies()}}, // counters of RateLimitOptions.Key
	} {
		h := callerService(o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { runs++ }))
		runs = 0
		for i, p := range callers {
			if res := serve(as(p)(h), request("POST", "/", "", "{}", "Idempotency-Key: same")); res.StatusCode != 200 ||
				runs != i+1 {
				t.Errorf("%v: got %d after %d runs", p.LogValue(), res.StatusCode, runs)
			}
		}
	}
	// A key and a subject are two callers, too: the one by its name, which
	// another store may choose, the other by its own.
	h := callerService(middleware.Options{Hooks: quiet(), RateLimit: limits,
		Idempotency: keyedOptions{Runner: replies()}}, sayOK)
	ring := newKeyring()
	token := ring.plant(t, keystore.Key{ID: "user_1", Scopes: []scope.Name{scope.TasksWrite}})
	auth := middleware.New(ring.keys, middleware.Options{}).Authenticate
	for i, h := range []http.Handler{auth(h), as(by(t, "user_1", scope.TasksWrite))(h)} {
		if res := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: same")); res.StatusCode != 200 ||
			res.replayed() {
			t.Errorf("caller %d: got %d %s", i, res.StatusCode, res.body)
		}
	}
}

// TestWithCallerInside: what stages outside decided for another caller does
// not hold for the one that WithCaller names, and not the other way round.
func TestWithCallerInside(t *testing.T) {
	ring, token := oneKey(t, scope.TasksWrite)
	log := newLogged()
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: keyedOptions{Runner: replies()}})
	ran := false
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ran = true })
	reader := by(t, "reader", scope.TasksRead)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: keyedOptions{Off: true}})
	api.Handle("POST /api/v1/x", middleware.Require(scope.TasksWrite), as(reader)(g.Idempotent(handler)))
	api.Handle("POST /api/v1/y", middleware.AnyCaller(),
		as(reader)(g.Enforce(middleware.Require(scope.TasksWrite))(handler)))
	outer := middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.Require(scope.TasksWrite)))
	for _, tt := range []struct {
		name   string
		h      http.Handler
		path   string
		status int
		log    string
	}{
		{"Idempotent with the scopes of the outer caller", outer(as(reader)(g.Idempotent(handler))), "/", 500,
			"Idempotent has no Enforce before it"},
		{"the same in an API", api, "/api/v1/x", 500, "Idempotent has no Enforce before it"},
		{"Require", outer(as(reader)(g.Enforce(middleware.Require(scope.TasksWrite))(handler))), "/", 403, ""},
		{"Enforce in an API", api, "/api/v1/y", 403, ""},
		{"nobody", outer(as(nil)(g.Enforce(middleware.AnyCaller())(handler))), "/", 500,
			"Enforce has no Authenticate before it"},
		{"Authenticate inside", as(by(t, "writer", scope.TasksWrite))(middleware.Chain(g.RequestID, g.Authenticate,
			g.Enforce(middleware.Require(scope.TasksRead)))(handler)), "/", 403, ""},
		{"API inside", as(reader)(testAPI(ring.keys, middleware.Options{Hooks: log.hooks()})), "/api/v1/tasks/1/cancel",
			403, ""},
		{"Enforce inside Idempotent", outer(g.Idempotent(as(reader)(g.Enforce(middleware.AnyCaller())(handler)))), "/", 500,
			"Enforce stands inside Idempotent"},
		{"Idempotent inside Idempotent", outer(g.Idempotent(as(reader)(g.Idempotent(handler)))), "/", 500,
			"Idempotent has no Enforce before it"},
		{"Authenticate inside Idempotent", outer(g.Idempotent(as(reader)(g.Authenticate(handler)))), "/", 500,
			"Authenticate stands inside Idempotent"},
	} {
		for _, key := range []string{"", tt.name} {
			ran = false
			r := request("POST", tt.path, token, "{}")
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			before := len(log.String())
			res := serve(tt.h, r)
			if res.StatusCode != tt.status || ran || !strings.Contains(log.String()[before:], tt.log) {
				t.Errorf("%s, key %q: got %d, ran %t, want %d and the log about %q: %s", tt.name, key, res.StatusCode, ran,
					tt.status, tt.log, log.String()[before:])
			}
		}
	}
}

// TestCallerOfTheEvent: the Event and the Problem hook name the caller that the
// innermost stage was told of, and nobody after a refused authentication.
func TestCallerOfTheEvent(t *testing.T) {
	ring, token := oneKey(t)
	g := middleware.New(ring.keys, middleware.Options{})
	problem := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "taken"})
	})
	inAPI := func(h http.Handler) http.Handler {
		return apiOf(ring.keys, middleware.Options{}, middleware.AnyCaller(), h.ServeHTTP)
	}
	within := foreign(func(w http.ResponseWriter, r *http.Request, h http.Handler) { // a request within a request
		sub := request("GET", "/api/v1/x", r.Header.Get("X-Inner"), "").WithContext(r.Context())
		_, _ = io.WriteString(w, serve(h, sub).body)
	})
	for _, tt := range []struct {
		name       string
		outside    bool // WithCaller stands outside RequestID
		h          http.Handler
		token      string
		inner      string // the token of a request within
		event      string // the caller of the outermost Event
		inProblems string // the callers that the hook saw
	}{
		{"WithCaller outside", true, sayOK, "", "", "user", ""},
		{"WithCaller outside, refused inside", true,
			g.Enforce(middleware.Require(scope.TasksWrite))(problem), "", "", "user", "user"},
		{"WithCaller outside, not authenticated", true, g.Authenticate(problem), "", "", "", "-"},
		{"WithCaller inside", false, as(by(t, "user"))(problem), "", "", "user", "user"},
		{"WithCaller inside a key", false, middleware.Chain(g.Authenticate, as(by(t, "user")))(problem), token, "",
			"user", "user"},
		{"refused inside a key", false, middleware.Chain(g.Authenticate, as(by(t, "user")),
			g.Enforce(middleware.Require(scope.TasksWrite)))(problem), token, "", "user", "user"},
		{"API", false, inAPI(problem), token, "", "key", "key"},
		{"API, not authenticated", false, inAPI(problem), "", "", "", "-"},
		{"WithCaller around an API, not authenticated", true, inAPI(problem), "", "", "", "-"},
		{"a request within, as another key", false, inAPI(within(inAPI(problem))), token, token, "key", "key"},
		{"a request within, not authenticated", false, inAPI(within(inAPI(problem))), token, "x", "key", "-"},
		{"the same with RequestID", false, inAPI(within(g.RequestID(inAPI(problem)))), token, "x", "key", "-"},
	} {
		name := func(p *keystore.Caller, nobody string) string {
			switch {
			case p.KeyID() != "":
				return "key"
			case p.Subject() != "":
				return p.Subject()
			}
			return nobody
		}
		var events, problems []string
		hooks := quiet()
		hooks.Observe = func(_ context.Context, e middleware.Event) {
			if !e.Nested {
				events = append(events, name(e.Caller, ""))
			}
		}
		hooks.ProblemBody = func(r *http.Request, p middleware.Problem) (string, []byte) {
			problems = append(problems, name(middleware.CallerFrom(r.Context()), "-"))
			return "text/plain", []byte("no")
		}
		// The hooks of the outermost stage are those of all.
		h := middleware.New(nil, middleware.Options{Hooks: hooks}).RequestID(tt.h)
		if tt.outside {
			h = as(by(t, "user"))(h)
		}
		serve(h, request("GET", "/api/v1/x", tt.token, "", "X-Inner: "+tt.inner))
		if got := strings.Join(problems, " "); !reflect.DeepEqual(events, []string{tt.event}) || got != tt.inProblems {
			t.Errorf("%s: got the event of %q and problems of %q, want %q and %q", tt.name, events, got, tt.event, tt.inProblems)
		}
	}
}
