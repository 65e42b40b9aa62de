package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// TestMethods: on methods that are not asked for the header is ignored, and its
// value not even looked at. Without the header two equal creates are two, unless
// it is required.
func TestMethods(t *testing.T) {
	for _, row := range []struct {
		methods  []string
		method   string
		required bool
		keyed    bool
	}{
		{nil, "POST", true, true},
		{nil, "POST", false, true},
		{nil, "GET", true, false},
		{nil, "HEAD", true, false},
		{nil, "PUT", true, false},
		{[]string{"PUT", "PATCH"}, "POST", true, false},
		{[]string{"PUT", "PATCH"}, "PATCH", true, true},
	} {
		var runs atomic.Int64
		s := newSite(t, keyedOptions{Methods: row.methods, Required: row.required}, numbered(&runs, nil))
		ask := func(lines ...string) int { return serve(s, request(row.method, "/", s.token, "", lines...)).StatusCode }
		if first, again := ask("Idempotency-Key: a"), ask("Idempotency-Key: a"); first != 201 || again != 201 {
			t.Errorf("%+v: %d, then %d", row, first, again)
		}
		if got := runs.Load() == 1; got != row.keyed {
			t.Errorf("%+v: ran %d times", row, runs.Load())
		}
		if got := ask("Idempotency-Key: "); (got == 400) != row.keyed {
			t.Errorf("%+v with an empty key: %d", row, got)
		}
		runs.Store(0)
		a := serve(s, request(row.method, "/", s.token, ""))
		if refuses := row.keyed && row.required; (runs.Load() == 0) != refuses || refuses && (a.StatusCode != 400 ||
			a.problem(t).Code != "idempotency_key_required") {
			t.Errorf("%+v without a key: %d %s", row, a.StatusCode, a.body)
		}
	}
}

// TestIdempotentInsideARoute: the requirement of an API's route is the scope
// decision that an Idempotent inside it needs.
func TestIdempotentInsideARoute(t *testing.T) {
	ring, token := oneKey(t)
	var runs atomic.Int64
	g := middleware.New(ring.keys, with(keyedOptions{Runner: replies()}))
	api := middleware.NewAPI(ring.keys, with(keyedOptions{Off: true}))
	api.Handle("POST /api/v1/tasks", middleware.AnyCaller(), g.Idempotent(numbered(&runs, nil)))
	create := func() answer {
		return serve(api, request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: a"))
	}
	first, again := create(), create()
	if first.StatusCode != 201 || !again.replayed() || runs.Load() != 1 {
		t.Errorf("got %d, then %v, %d runs; want 201 and its replay", first.StatusCode, again.Header, runs.Load())
	}
}

// TestRunnerOfARoute: the API leaves a request to a route's own Runner.
func TestRunnerOfARoute(t *testing.T) {
	ring, token := oneKey(t)
	var runs atomic.Int64
	shared, own := &idem.Memory{}, &idem.Memory{}
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: keyedOptions{Runner: runnerOf(shared)},
		RateLimit: rateOptions{Store: &ratelimit.Memory{}}})
	route := middleware.RouteOptions{Idempotency: keyedOptions{Runner: runnerOf(own)}}
	api.Handle("POST /api/v1/own", middleware.AnyCaller(), numbered(&runs, nil), route)
	route.Policy = policy("route", "9-H", 0)
	api.Handle("POST /api/v1/limited", middleware.AnyCaller(), numbered(&runs, nil), route)
	api.Handle("POST /api/v1/shared", middleware.AnyCaller(), numbered(&runs, nil))
	for i, row := range []struct {
		path        string
		own, shared int // keys in the stores by then
	}{{"own", 1, 0}, {"limited", 2, 0}, {"shared", 2, 1}} {
		for range 2 {
			a := serve(api, request("POST", "/api/v1/"+row.path, token, "{}", "Idempotency-Key: "+row.path))
			wantAnswer(t, row.path, a, 201)
		}
		if a, b := own.Stats().Keys, shared.Stats().Keys; a != row.own || b != row.shared || runs.Load() != int64(i+1) {
			t.Errorf("%s: the route's store holds %d, the API's %d after %d runs, want %+v", row.path, a, b, runs.Load(), row)
		}
	}
}

// TestRouteIdempotency: a route's options change the API's, field by field, and
// only Off takes the route out.
func TestRouteIdempotency(t *testing.T) {
	ring, token := oneKey(t)
	var runs atomic.Int64
	api := middleware.NewAPI(ring.keys, with(keyedOptions{
		Runner: replies(), Methods: []string{"POST", "PUT"}, MaxBody: 3, Required: true,
		Partition: func(r *http.Request) string { return r.Header.Get("X-Part") },
	}))
	for _, row := range []struct {
		method, path string
		o            middleware.RouteOptions
		body         string
		want         []int // of a request, its repeat, another partition, and no key
		runs         int64
	}{
		{"POST", "/api/v1/body", middleware.RouteOptions{Idempotency: keyedOptions{MaxBody: 8 << 20}}, "1234",
			[]int{201, 201, 201, 400}, 2},
		{"PUT", "/api/v1/timeout", middleware.RouteOptions{Idempotency: keyedOptions{Timeout: time.Hour}}, "123",
			[]int{201, 201, 201, 400}, 2},
		{"POST", "/api/v1/plain", middleware.RouteOptions{}, "1234", []int{413, 413, 413, 400}, 0},
		{"POST", "/api/v1/own", middleware.RouteOptions{Idempotency: keyedOptions{Runner: replies()}}, "1234",
			[]int{413, 413, 413, 400}, 0},
		{"POST", "/api/v1/off", middleware.RouteOptions{Idempotency: keyedOptions{Off: true}}, "1234",
			[]int{201, 201, 201, 201}, 4},
	} {
		api.Handle(row.method+" "+row.path, middleware.AnyCaller(), numbered(&runs, nil), row.o)
		runs.Store(0)
		var got []int
		for _, lines := range [][]string{{"Idempotency-Key: " + row.path}, {"Idempotency-Key: " + row.path},
			{"Idempotency-Key: " + row.path, "X-Part: 2"}, nil} {
			got = append(got, serve(api, request(row.method, row.path, token, row.body, lines...)).StatusCode)
		}
		if !slices.Equal(got, row.want) || runs.Load() != row.runs {
			t.Errorf("%s: got %v with %d runs, want %v with %d", row.path, got, runs.Load(), row.want, row.runs)
		}
		route := api.Routes()[len(api.Routes())-1]
		if got := route.Options.Idempotency; got.Off != row.o.Idempotency.Off || got.Required == got.Off {
			t.Errorf("%s: got %+v", row.path, route)
		}
	}
}

// TestRepliesByDefault: without a Runner replies are kept in this process, and
// one line says so as soon as a handler needs them. Off is the word for none.
func TestRepliesByDefault(t *testing.T) {
	ring, token := oneKey(t)
	const line = "replies are kept in the memory of this process"
	api := func(route ...middleware.RouteOptions) func(middleware.Options, http.Handler) http.Handler {
		return func(o middleware.Options, create http.Handler) http.Handler {
			api := middleware.NewAPI(ring.keys, o)
			api.Handle("GET /api/v1/tasks", middleware.AnyCaller(), sayOK)
			api.Handle("POST /api/v1/tasks", middleware.AnyCaller(), create, route...)
			api.Handle("POST /api/v1/others", middleware.AnyCaller(), create, route...)
			if route == nil && (api.Guard().Options().Idempotency.Runner == nil) != o.Idempotency.Off {
				t.Errorf("Off is %t, and the Runner is %v", o.Idempotency.Off, api.Guard().Options().Idempotency.Runner)
			}
			return api
		}
	}
	pieces := func(o middleware.Options, create http.Handler) http.Handler {
		g := middleware.New(ring.keys, o)
		g.Idempotent(create) // for another route
		return middleware.Chain(g.RequestID, anyCaller(g), g.Idempotent)(create)
	}
	without := func(o middleware.Options, create http.Handler) http.Handler {
		g := middleware.New(ring.keys, o)
		return middleware.Chain(g.RequestID, anyCaller(g))(create)
	}
	for name, tt := range map[string]struct {
		build       func(middleware.Options, http.Handler) http.Handler
		options     keyedOptions
		runs, lines int
	}{
		"an API":                   {api(), keyedOptions{}, 1, 1},
		"pieces":                   {pieces, keyedOptions{}, 1, 1},
		"an API, off":              {api(), keyedOptions{Off: true}, 2, 0},
		"a Runner":                 {api(), keyedOptions{Runner: replies()}, 1, 0},
		"pieces without the stage": {without, keyedOptions{}, 2, 0},
		"routes that need no default": {api(middleware.RouteOptions{Idempotency: keyedOptions{Off: true}}),
			keyedOptions{}, 2, 0},
		"routes with a Runner of their own": {api(middleware.RouteOptions{Idempotency: keyedOptions{Runner: replies()}}),
			keyedOptions{Off: true}, 1, 0},
		"routes with other options": {api(middleware.RouteOptions{Idempotency: keyedOptions{Required: true}}),
			keyedOptions{}, 1, 1},
	} {
		var runs atomic.Int64
		log := newLogged()
		h := tt.build(middleware.Options{Hooks: log.hooks(), Idempotency: tt.options}, numbered(&runs, nil))
		if got := log.String(); strings.Count(got, line) != tt.lines || strings.Count(got, "level=INFO") != tt.lines {
			t.Errorf("%s: got the log %q, want %d lines", name, got, tt.lines)
		}
		for range 2 {
			a := serve(h, request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: a"))
			wantAnswer(t, name, a, 201)
		}
		if int(runs.Load()) != tt.runs {
			t.Errorf("%s: ran %d times, want %d", name, runs.Load(), tt.runs)
		}
		ignored := 0
		if name == "pieces without the stage" {
			ignored = 1
		}
		if got := strings.Count(log.String(), "an Idempotency-Key was ignored"); got != ignored {
			t.Errorf("%s: the log says %d times that the key was ignored, want %d", name, got, ignored)
		}
	}
	off := middleware.New(ring.keys, with(keyedOptions{Off: true}))
	wantPanic(t, "Options.Idempotency is Off", func() { off.Idempotent(sayOK) })
	if err := off.WaitSettled(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRouteIdempotencyMistakes: what a route sets has an effect, or the route is
// not registered.
func TestRouteIdempotencyMistakes(t *testing.T) {
	for want, row := range map[string]struct {
		runner *idem.Runner
		route  middleware.RouteOptions
	}{
		"is Off, and another field is set": {replies(),
			middleware.RouteOptions{Idempotency: keyedOptions{Off: true, Required: true}}},
		"has no Runner, and that of the API is Off": {nil,
			middleware.RouteOptions{Idempotency: keyedOptions{Required: true}}},
		`["PUT"] and does not have the route's POST`: {replies(),
			middleware.RouteOptions{Idempotency: keyedOptions{Methods: []string{"PUT"}}}},
		"Methods is empty":              {replies(), middleware.RouteOptions{Idempotency: keyedOptions{Methods: []string{}}}},
		"is smaller than twice MaxBody": {replies(), middleware.RouteOptions{Idempotency: keyedOptions{MaxBody: 257 << 20}}},
	} {
		api := middleware.NewAPI(issuing.NewMemory(), with(keyedOptions{Runner: row.runner, Off: row.runner == nil}))
		wantPanic(t, want, func() {
			api.Handle("POST /api/v1/x", middleware.AnyCaller(), sayOK, row.route)
		})
	}
}

// TestBodiesOfRoutes: a route takes its bodies from the API's budget, unless it
// has one of its own.
func TestBodiesOfRoutes(t *testing.T) {
	ring, token := oneKey(t)
	var api *middleware.API
	post := func(path string) int {
		return serve(api, request("POST", path, token, strings.Repeat("x", 7000), "Idempotency-Key: "+path)).StatusCode
	}
	for _, row := range []struct {
		outer, inner keyedOptions
		want         int
	}{
		{keyedOptions{MaxResponse: 9}, keyedOptions{MaxResponse: 8}, 503},
		{keyedOptions{Runner: replies()}, keyedOptions{Timeout: time.Hour}, 503},
		{keyedOptions{MaxBodies: 14_000}, keyedOptions{Timeout: time.Hour}, 201},
		{keyedOptions{Timeout: time.Hour}, keyedOptions{MaxBodies: 14_000}, 201},
	} {
		var inside int
		api = middleware.NewAPI(ring.keys, with(keyedOptions{Runner: replies(), MaxBody: 7000, MaxBodies: 14_000}))
		api.Handle("POST /api/v1/outer", middleware.AnyCaller(),
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside = post("/api/v1/inner")
				w.WriteHeader(201)
			}), middleware.RouteOptions{Idempotency: row.outer})

		api.Handle("POST /api/v1/inner", middleware.AnyCaller(), numbered(new(atomic.Int64), nil),
			middleware.RouteOptions{Idempotency: row.inner})
		if got := post("/api/v1/outer"); got != 201 || inside != row.want {
			t.Errorf("%+v, %+v: got %d and %d, want 201 and %d", row.outer, row.inner, got, inside, row.want)
		}
	}
}

// TestExecutions: a handler that may run again sees that it does.
func TestExecutions(t *testing.T) {
	for _, again := range []bool{false, true} {
		var seen []int
		s := newSite(t, keyedOptions{Runner: replies(idem.Options{Reexecute: again})},
			func(w http.ResponseWriter, r *http.Request) {
				if seen = append(seen, middleware.ExecutionFrom(r.Context()).Attempt()); len(seen) == 1 {
					panic(http.ErrAbortHandler)
				}
				middleware.ExecutionFrom(r.Context()).Free()
			})
		aborts(s, httptest.NewRecorder(), post(s.token, "a"))
		status, want := s.post("a").StatusCode, []int{1}
		s.post("a")
		if again {
			want = []int{1, 2, 3}
		}
		if !slices.Equal(seen, want) || (status == 200) != again {
			t.Errorf("Reexecute %t: got %d and the executions %v, want %v", again, status, seen, want)
		}
	}
	if n := middleware.ExecutionFrom(t.Context()).Attempt(); n != 1 {
		t.Errorf("outside a request got %d, want 1", n)
	}
}

// TestRequestOfAHandlerBehindTheSameGuard: what a keyed handler sends through
// its own stages has a claim of its own. What is said of that, the key of the
// outer request does not hear.
func TestRequestOfAHandlerBehindTheSameGuard(t *testing.T) {
	ring, token := oneKey(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
	mux := http.NewServeMux()
	h := middleware.Chain(g.RequestID, g.Recover, anyCaller(g))(mux)
	outer, inner := 0, 0
	mux.Handle("POST /batch/{steps}", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer++
		// The caller is known already: the router alone gets the inner request.
		sub := request("POST", "/"+r.PathValue("steps"), "", "{}", "Idempotency-Key: inner")
		w.WriteHeader(serve(mux, sub.WithContext(r.Context())).StatusCode)
	})))
	mux.Handle("POST /{steps}", g.Idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner++
		steps(r.PathValue("steps"), "201")(w, r)
	})))
	for i, row := range []struct {
		path, key    string
		outer, inner int // how often they have run by then
	}{
		{"/batch/free", "outer", 1, 1}, {"/batch/free", "outer", 1, 1},
		{"/batch/none", "1", 2, 2}, {"/batch/none", "2", 3, 2}, {"/none", "inner", 3, 2},
	} {
		serve(h, request("POST", row.path, token, "{}", "Idempotency-Key: "+row.key))
		if outer != row.outer || inner != row.inner {
			t.Errorf("request %d: the outer create ran %d times, the inner one %d times, want %+v", i+1, outer, inner, row)
		}
	}
}

// TestRefusalInsideFreesTheKey: a limiter inside Idempotent frees the key of a
// request that it refuses, unless a handler may have worked before.
func TestRefusalInsideFreesTheKey(t *testing.T) {
	type forward = func(w http.ResponseWriter, r *http.Request) *http.Request
	changed := func(change func(r *http.Request)) forward {
		return func(_ http.ResponseWriter, r *http.Request) *http.Request {
			r = r.WithContext(context.WithValue(r.Context(), outsideKey{}, 1))
			change(r)
			return r
		}
	}
	for name, row := range map[string]struct {
		forward forward
		frees   bool
	}{
		"nothing between": {func(_ http.ResponseWriter, r *http.Request) *http.Request { return r }, true},
		"a copy":          {changed(func(*http.Request) {}), true},
		"StripPrefix": {func(w http.ResponseWriter, r *http.Request) (stripped *http.Request) {
			keep := func(_ http.ResponseWriter, r *http.Request) { stripped = r }
			http.StripPrefix("/api", http.HandlerFunc(keep)).ServeHTTP(w, r)
			return stripped
		}, true},
		"another path":   {changed(func(r *http.Request) { r.URL = &url.URL{Path: "/limited"} }), false},
		"another query":  {changed(func(r *http.Request) { r.URL = &url.URL{Path: r.URL.Path, RawQuery: "a=b"} }), false},
		"another method": {changed(func(r *http.Request) { r.Method = "PUT" }), false},
		"a request of the handler": {func(_ http.ResponseWriter, r *http.Request) *http.Request {
			own, _ := http.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), nil)
			return own
		}, false},
		"an interim response": {func(w http.ResponseWriter, r *http.Request) *http.Request {
			w.WriteHeader(http.StatusEarlyHints)
			return r
		}, false},
		"the body was read": {changed(func(r *http.Request) { _, _ = io.ReadAll(r.Body) }), false},
		"the body was read and rewound": {changed(func(r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if body, ok := r.Body.(io.Seeker); ok {
				_, _ = body.Seek(0, io.SeekStart)
			}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			ring, token := oneKey(t)
			g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(),
				RateLimit: perOrganization(&ratelimit.Memory{}, ratelimit.Limit{Count: 1, Period: 24 * time.Hour})})
			worked, limited := 0, g.RateLimit(sayOK)
			h := keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				worked++
				limited.ServeHTTP(w, row.forward(w, r))
			})
			for _, key := range []string{"spends", "a", "a"} {
				serve(h, request("POST", "/api/tasks", token, "{}", "Idempotency-Key: "+key))
			}
			if want := map[bool]int{false: 2, true: 3}[row.frees]; worked != want {
				t.Errorf("the handler ran %d times, want %d", worked, want)
			}
		})
	}
}
