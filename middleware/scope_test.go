package middleware_test

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestReportOnlyRequirement: a report-only requirement refuses nobody who has a
// key, whoever he is, and the Event tells of those whom it would have refused.
func TestReportOnlyRequirement(t *testing.T) {
	ring := newKeyring()
	writer, reader := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.TasksRead)
	o := &observed{t: t}
	need := middleware.Require(scope.TasksWrite)
	for _, name := range []string{"API", "pieces"} {
		h := bothForms(ring.keys, middleware.Options{
			Hooks: o.hooks(), Idempotency: keyedOptions{Runner: replies()},
			RateLimit: rateOptions{Store: &ratelimit.Memory{}, Key: reportOnly("key", "2-H")},
		}, need.ReportOnly(), sayOK)[name]
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
			got, res := o.ask(h, request("POST", "/api/v1/x", s.token, "{}", "Idempotency-Key: a"))
			if res.StatusCode != s.status || got.ReportedCode != s.reported ||
				res.Header.Get("Idempotent-Replayed") != s.replayed {
				t.Errorf("%s, request %d: got %d, reported %q, replayed %q, want %+v", name, i+1, res.StatusCode, got.ReportedCode,
					res.Header.Get("Idempotent-Replayed"), s)
			}
		}
	}
	need.ReportOnly()
	refuses := apiOf(ring.keys, middleware.Options{Hooks: quiet()}, need, sayOK)
	if got := serve(refuses, request("GET", "/api/v1/x", reader, "")).StatusCode; got != 403 {
		t.Errorf("ReportOnly changed the requirement that it was called on: got %d", got)
	}
	g, ok := middleware.New(ring.keys, middleware.Options{Hooks: quiet()}), sayOK
	wantPanic(t, "the requirement is empty", func() { g.Enforce(middleware.Requirement{}.ReportOnly()) })
	wantPanic(t, "is not one of scope.Default", func() { g.Enforce(middleware.Require("tasks:raed").ReportOnly()) })
	if res := serve(g.RequestID(g.Enforce(need.ReportOnly())(ok)), request("GET", "/", "", "")); res.StatusCode != 500 {
		t.Errorf("without Authenticate: got %d", res.StatusCode)
	}
}

func TestRequirements(t *testing.T) {
	const read, write, cancel = scope.TasksRead, scope.TasksWrite, scope.TasksCancel
	implying := scope.New(scope.Definition{Name: read}, scope.Definition{Name: write, Implies: []scope.Name{read}})
	tests := []struct {
		name     string
		registry *scope.Registry
		need     middleware.Requirement
		has      []scope.Name
		missing  []string // nil: passes
		wanted   string
		detail   string
	}{
		{"one, held", nil, middleware.Require(read), []scope.Name{read}, nil, "", ""},
		{"one, not held", nil, middleware.Require(cancel), []scope.Name{read, write}, []string{"tasks:cancel"},
			"tasks:cancel", "The credentials lack the scope tasks:cancel."},
		{"no implication", nil, middleware.Require(read), []scope.Name{write}, []string{"tasks:read"}, "tasks:read",
			"The credentials lack the scope tasks:read."},
		{"implication", implying, middleware.Require(read), []scope.Name{write}, nil, "", ""},
		{"implication one way", implying, middleware.Require(write), []scope.Name{read}, []string{"tasks:write"},
			"tasks:write", "The credentials lack the scope tasks:write."},
		{"no scopes", nil, middleware.Require(read), nil, []string{"tasks:read"}, "tasks:read",
			"The credentials lack the scope tasks:read."},
		{"no scopes, any key", nil, middleware.AnyCaller(), nil, nil, "", ""},
		{"all, all held", nil, middleware.Require(read, write), []scope.Name{write, cancel, read}, nil, "", ""},
		{"all, one held", nil, middleware.Require(read, write), []scope.Name{read}, []string{"tasks:write"},
			"tasks:read tasks:write", "The credentials lack the scope tasks:write."},
		{"all, none held", nil, middleware.Require(read, write), []scope.Name{cancel},
			[]string{"tasks:read", "tasks:write"}, "tasks:read tasks:write",
			"The credentials lack the scopes tasks:read tasks:write."},
		{"any, one held", nil, middleware.RequireAny(read, write), []scope.Name{write}, nil, "", ""},
		{"any, none held", nil, middleware.RequireAny(read, write), []scope.Name{cancel},
			[]string{"tasks:read", "tasks:write"}, "tasks:read tasks:write",
			"The credentials lack any of the scopes tasks:read tasks:write."},
		{"unknown beside a known one", nil, middleware.Require(read), []scope.Name{"future:thing", read}, nil, "", ""},
		{"unknown alone", nil, middleware.Require(read), []scope.Name{"future:thing"}, []string{"tasks:read"}, "tasks:read",
			"The credentials lack the scope tasks:read."},
		{"wildcards and spellings", nil, middleware.Require(read), []scope.Name{"tasks:*", "*", "TASKS:READ", "tasks:read ",
			"tasks:rea"}, []string{"tasks:read"}, "tasks:read", "The credentials lack the scope tasks:read."},
	}
	for _, tt := range tests {
		ring := newKeyring()
		token := ring.plant(t, keystore.Key{Scopes: tt.has})
		ran := false
		api := apiOf(ring.memory, middleware.Options{Hooks: quiet(), Service: keystore.Service{Scopes: tt.registry},
			Idempotency: keyedOptions{Runner: replies()}}, tt.need, func(http.ResponseWriter, *http.Request) { ran = true })
		res := serve(api, request("POST", "/api/v1/x", token, "", "Idempotency-Key: 1"))
		if tt.missing == nil {
			if res.StatusCode != 200 || !ran {
				t.Errorf("%s: got %d %s", tt.name, res.StatusCode, res.body)
			}
			continue
		}
		wantRefusal(t, tt.name, res, 403, "insufficient_scope", insufficient(tt.wanted))
		if p := res.problem(t); !slices.Equal(p.Missing, tt.missing) || p.Detail != tt.detail || ran {
			t.Errorf("%s: got missing %q, %q, ran %v; want %q, %q", tt.name, p.Missing, p.Detail, ran, tt.missing, tt.detail)
		}
	}
}

func TestRequirementMistakes(t *testing.T) {
	for want, need := range map[string]middleware.Requirement{
		"the requirement is empty": {},
		"is empty":                 middleware.Require(),
		"or say AnyCaller()":       middleware.RequireAny(),
		`did you mean "tasks:read"? scope "task:read" is not one of scope.Default`: middleware.Require("task:read"),
		`scope "nothing:like-it" is not one of scope.Default, and the keys' Service has no others: set Scopes in`: middleware.
			Require(scope.TasksRead, "nothing:like-it"),
	} {
		wantPanic(t, want, func() { keyless().Enforce(need) })
		wantPanic(t, `API.Handle("GET /api/v1/x")`, func() {
			middleware.NewAPI(issuing.NewMemory(), middleware.Options{}).HandleFunc("GET /api/v1/x", need, sayOK)
		})
	}
}

func TestRequirementIsItsOwn(t *testing.T) {
	names := []scope.Name{scope.TasksRead, scope.TasksWrite}
	all, anyOf := middleware.Require(names...), middleware.RequireAny(names...)
	names[0] = "changed"
	keyless().Enforce(all) // which panics for a scope that is not registered
	keyless().Enforce(anyOf)
}

// TestChallengeIsQuoted: a scope that a registry accepts can stand in the
// header as it is.
func TestChallengeIsQuoted(t *testing.T) {
	odd := scope.Name("a!#$%&'()*+,-./:;<=>?@[]^_`{|}~")
	registry := scope.New(scope.Definition{Name: odd, Meaning: "Odd."})
	ring := newKeyring()
	token := ring.plant(t, keystore.Key{})
	api := apiOf(ring.memory, middleware.Options{Hooks: quiet(), Service: keystore.Service{Scopes: registry}},
		middleware.Require(odd), sayOK)
	res := serve(api, request("GET", "/api/v1/x", token, ""))
	wantRefusal(t, "odd scope", res, 403, "insufficient_scope", insufficient(string(odd)))
	if got := res.problem(t).Missing; !slices.Equal(got, []string{string(odd)}) {
		t.Errorf("got %q", got)
	}
}

// TestPlanBeforeTheScopeCheck: a Plan runs before the scope decision, so what it
// does with its context has none.
func TestPlanBeforeTheScopeCheck(t *testing.T) {
	ring := newKeyring()
	g := middleware.New(nil, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
	stage := g.Idempotent(sayOK)
	var inside int
	plan := func(ctx context.Context, p *keystore.Caller) (_, _ *ratelimit.Policy, _ error) {
		inside = serve(stage, request("POST", "/", "", "{}", "Idempotency-Key: 1").WithContext(ctx)).StatusCode
		return ratelimit.Unlimited, nil, nil
	}
	limits := rateOptions{Store: &ratelimit.Memory{}, Plan: plan}
	api := apiOf(ring.keys, middleware.Options{Hooks: quiet(), RateLimit: limits},
		middleware.Require(scope.TasksRead), sayOK)
	for token, want := range map[string]int{ring.issue(t, scope.ChatRead): 403, ring.issue(t, scope.TasksRead): 200} {
		if got := serve(api, request("GET", "/api/v1/x", token, "")).StatusCode; inside != 500 || got != want {
			t.Errorf("got %d, and %d from within Plan, want %d, and 500 there", got, inside, want)
		}
	}
}
