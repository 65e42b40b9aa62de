package middleware_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
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

// needs is a handler that asks for a requirement.
func needs(need middleware.Requirement) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if middleware.Allow(w, r, need) {
			sayOK(w, r)
		}
	}
}

// TestAllowIsEnforce: whatever the requirement and the key, a handler that asks
// answers as Enforce does, to the byte, and the Events are the same.
func TestAllowIsEnforce(t *testing.T) {
	const read, write, cancel = scope.TasksRead, scope.TasksWrite, scope.TasksCancel
	ring, o := newKeyring(), &observed{t: t}
	options := middleware.Options{Hooks: o.hooks(), ResourceMetadata: "https://example.com/meta",
		TrustRequestID: func(*http.Request) bool { return true }}
	for name, tt := range map[string]struct {
		need     middleware.Requirement
		has      []scope.Name
		status   int
		reported string
	}{
		"held":             {middleware.Require(read), []scope.Name{read}, 200, ""},
		"not held":         {middleware.Require(read), []scope.Name{write}, 403, ""},
		"one of all":       {middleware.Require(read, write), []scope.Name{read}, 403, ""},
		"none of all":      {middleware.Require(read, write), nil, 403, ""},
		"one of any":       {middleware.RequireAny(read, write), []scope.Name{write}, 200, ""},
		"none of any":      {middleware.RequireAny(read, write), []scope.Name{cancel}, 403, ""},
		"any caller":       {middleware.AnyCaller(), nil, 200, ""},
		"report-only":      {middleware.Require(read).ReportOnly(), nil, 200, "insufficient_scope"},
		"report-only, has": {middleware.Require(read).ReportOnly(), []scope.Name{read}, 200, ""},
		"report-only, any": {middleware.RequireAny(read, write).ReportOnly(), []scope.Name{cancel}, 200,
			"insufficient_scope"},
		"report-only, any, has":   {middleware.RequireAny(read, write).ReportOnly(), []scope.Name{read}, 200, ""},
		"report-only, any caller": {middleware.AnyCaller().ReportOnly(), nil, 200, ""},
	} {
		token := ring.issue(t, tt.has...)
		api := middleware.NewAPI(ring.keys, options)
		api.HandleFunc("GET /api/v1/enforced", tt.need, sayOK)
		api.Handle("GET /api/v1/asked", middleware.AnyCaller(), needs(tt.need))
		g := middleware.New(ring.keys, options)
		pieces := func(need middleware.Requirement, h http.Handler) http.Handler {
			return middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(need))(h)
		}
		hidden := func(need middleware.Requirement, h http.Handler) http.Handler {
			return middleware.Chain(g.RequestID, g.Authenticate, foreignWriter, g.Enforce(need))(h)
		}
		for form, both := range map[string][2]http.Handler{
			"API":    {api, api},
			"pieces": {pieces(tt.need, sayOK), pieces(middleware.AnyCaller(), needs(tt.need))},
			"hidden": {hidden(tt.need, sayOK), hidden(middleware.AnyCaller(), needs(tt.need))},
		} {
			ask := func(h http.Handler, path string) (middleware.Event, answer) {
				e, a := o.ask(h, request("GET", path, token, "", idHeader+": id"))
				e.Pattern, e.Duration = "", 0
				return e, a
			}
			want, enforced := ask(both[0], "/api/v1/enforced")
			got, asked := ask(both[1], "/api/v1/asked")
			if enforced.StatusCode != tt.status || asked.StatusCode != tt.status || asked.body != enforced.body {
				t.Errorf("%s, %s: got %d %s, want %d %s", name, form, asked.StatusCode, asked.body, tt.status, enforced.body)
			}
			for field := range enforced.Header {
				if !slices.Equal(asked.Header[field], enforced.Header[field]) {
					t.Errorf("%s, %s: %s is %q, want %q", name, form, field, asked.Header[field], enforced.Header[field])
				}
			}
			if got.Caller == nil || got.Stage != want.Stage || got.Outcome != want.Outcome ||
				got.ReportedCode != want.ReportedCode || form != "hidden" && got.ReportedCode != tt.reported ||
				got.Status != want.Status || got.ProblemCode != "" || got.RequestID != "id" {
				t.Errorf("%s, %s: got the Event %+v, want %+v", name, form, got, want)
			}
		}
	}
}

// TestAllowMisused: what cannot be decided is 500, and the log says why. A
// request that Options.ReportOnly let pass without a caller is allowed.
func TestAllowMisused(t *testing.T) {
	ring, log := newKeyring(), newLogged()
	token := ring.issue(t, scope.TasksRead)
	options := middleware.Options{Hooks: log.hooks()}
	g := middleware.New(ring.keys, options)
	options.ReportOnly = true
	reports := middleware.New(ring.keys, options)
	read := middleware.Require(scope.TasksRead)
	for name, tt := range map[string]struct {
		stages []func(http.Handler) http.Handler
		need   middleware.Requirement
		token  string
		status int
		line   string
	}{
		"nobody": {[]func(http.Handler) http.Handler{g.RequestID}, read, "", 500, "no Authenticate"},
		"empty":  {[]func(http.Handler) http.Handler{g.Authenticate}, middleware.Requirement{}, token, 500, "empty"},
		"unknown scope": {[]func(http.Handler) http.Handler{g.Authenticate}, middleware.Require("tasks:raed"), token, 500,
			"tasks:raed"},
		"report-only": {[]func(http.Handler) http.Handler{reports.Authenticate}, read, "", 200, ""},
		"and a key": {[]func(http.Handler) http.Handler{reports.Authenticate}, middleware.Require(scope.ChatRead), token, 403,
			""},
	} {
		h := middleware.Chain(tt.stages...)(needs(tt.need))
		if res := serve(h, request("GET", "/", tt.token, "")); res.StatusCode != tt.status || res.body == "" ||
			!strings.Contains(log.String(), tt.line) {
			t.Errorf("%s: got %d with the log %s", name, res.StatusCode, log)
		}
	}
}

// TestAllowOfWithCaller: it asks the caller in the context, whom the Event has,
// also in a test of a handler without any stage.
func TestAllowOfWithCaller(t *testing.T) {
	o, h := &observed{t: t}, needs(middleware.Require(scope.TasksRead))
	withID := middleware.New(nil, middleware.Options{Hooks: o.hooks()}).RequestID
	for p, want := range map[*keystore.Caller]int{
		by(t, "user_1", scope.TasksRead): 200, by(t, "user_2", scope.TasksWrite): 403, by(t, "user_3"): 403,
	} {
		r := request("GET", "/", "", "")
		r = r.WithContext(middleware.WithCaller(r.Context(), p))
		wantAnswer(t, p.Subject(), serve(h, r), want)
		e, _ := o.ask(withID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h(w, r.WithContext(middleware.WithCaller(r.Context(), p)))
		})), request("GET", "/", "", ""))
		if e.Status != want || e.Caller != p {
			t.Errorf("%s: got the Event %+v, want %d", p.Subject(), e, want)
		}
	}
}

// TestAllowUnderKey: the 403 is retained, unless the handler calls Free; then a
// key that may gets past it. What was committed before is left alone.
func TestAllowUnderKey(t *testing.T) {
	ring, o := newKeyring(), &observed{t: t}
	may, mayNot := ring.issue(t, scope.TasksCancel), ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: o.hooks()})
	need := middleware.Require(scope.TasksCancel)
	api.Handle("POST /api/v1/kept", middleware.AnyCaller(), needs(need))
	api.HandleFunc("POST /api/v1/free", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		if !middleware.Allow(w, r, need) {
			middleware.ExecutionFrom(r.Context()).Free()
		}
	})
	api.HandleFunc("GET /api/v1/late", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		if middleware.Allow(w, r, need) {
			t.Error("late: allowed")
		}
	})
	for _, s := range []struct {
		method, path, token string
		status              int
		stage, outcome      string
	}{
		{"POST", "kept", mayNot, 403, "scope", "insufficient_scope"}, {"POST", "kept", may, 403, "idempotency", "replayed"},
		{"POST", "free", mayNot, 403, "scope", "insufficient_scope"}, {"POST", "free", may, 200, "idempotency", "executed"},
		{"GET", "late", mayNot, 202, "handler", "handled"},
	} {
		e, got := o.ask(api, request(s.method, "/api/v1/"+s.path, s.token, "", "Idempotency-Key: "+s.path))
		if got.StatusCode != s.status || e.Stage != s.stage || e.Outcome != s.outcome {
			t.Errorf("%s: got %d and the Event %+v, want %+v", s.path, got.StatusCode, e, s)
		}
	}
}
