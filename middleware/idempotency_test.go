package middleware_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestKeyHeader has each kind of Idempotency-Key. The first request was sent
// with the key abc.
func TestKeyHeader(t *testing.T) {
	rows := []struct {
		name   string
		values []string
		status int
		replay bool
	}{
		{"bare", []string{"abc"}, 201, true},
		{"quoted", []string{`"abc"`}, 201, true},
		{"spaces around", []string{" \tabc "}, 201, true},
		{"quoted, spaces around", []string{` "abc" `}, 201, true},
		{"escaped", []string{`"a\"b\\c"`}, 201, false},
		{"case", []string{"ABC"}, 201, false},
		{"inner space", []string{"a b c"}, 201, false},
		{"a comma", []string{"abc,abc"}, 201, false},
		{"a quotation mark inside", []string{`a"bc`}, 201, false},
		{"longest", []string{strings.Repeat("a", 255)}, 201, false},
		{"longest quoted", []string{`"` + strings.Repeat("b", 255) + `"`}, 201, false},
		{"longest escaped", []string{`"` + strings.Repeat(`\"`, 255) + `"`}, 201, false},
		{"uuid", []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, 201, false},

		{"empty", []string{""}, 400, false},
		{"blank", []string{" \t "}, 400, false},
		{"empty quoted", []string{`""`}, 400, false},
		{"too long", []string{strings.Repeat("a", 256)}, 400, false},
		{"too long quoted", []string{`"` + strings.Repeat("a", 256) + `"`}, 400, false},
		{"too long escaped", []string{`"` + strings.Repeat(`\"`, 256) + `"`}, 400, false},
		{"a megabyte", []string{strings.Repeat("a", 1<<20)}, 400, false},
		{"two lines", []string{"abc", "abc"}, 400, false},
		{"two lines, one empty", []string{"abc", ""}, 400, false},
		{"control character", []string{"a\x01c"}, 400, false},
		{"line break", []string{"a\r\nSet-Cookie: a=b"}, 400, false},
		{"DEL", []string{"a\x7fc"}, 400, false},
		{"NUL", []string{"abc\x00"}, 400, false},
		{"not ASCII", []string{"clé"}, 400, false},
		{"not UTF-8", []string{"a\xff"}, 400, false},
		{"unterminated", []string{`"abc`}, 400, false},
		{"only a quotation mark", []string{`"`}, 400, false},
		{"ends in an escape", []string{`"abc\`}, 400, false},
		{"escaped end", []string{`"abc\"`}, 400, false},
		{"unknown escape", []string{`"a\nc"`}, 400, false},
		{"parameters", []string{`"abc";p=1`}, 400, false},
		{"list of strings", []string{`"abc", "abc"`}, 400, false},
		{"quoted, not ASCII", []string{`"clé"`}, 400, false},
	}
	ring := newKeyring()
	token := ring.issue(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var runs atomic.Int64
			log := newLogged()
			h := keyed(ring, middleware.Options{Hooks: log.hooks()}, numbered(&runs, nil))
			serve(h, request("POST", "/", token, "{}", "Idempotency-Key: abc"))
			r := request("POST", "/", token, "{}")
			r.Header["Idempotency-Key"] = row.values
			a := serve(h, r)
			if a.StatusCode != row.status || (a.Header.Get("Idempotent-Replayed") == "true") != row.replay {
				t.Errorf("%.40q: %d, replayed %q, want %d, %t", row.values, a.StatusCode, a.Header.Get("Idempotent-Replayed"), row.status, row.replay)
			}
			if a.StatusCode == 400 {
				p := a.problem(t)
				if p.Code != "idempotency_key_invalid" || !strings.HasPrefix(p.Detail, "The Idempotency-Key header ") || !strings.HasSuffix(p.Detail, ".") || len(a.body) > 1000 {
					t.Errorf("%.40q: %.400s", row.values, a.body)
				}
				if runs.Load() != 1 {
					t.Error("ran")
				}
			}
			if text := log.String(); text != "" {
				t.Errorf("log: %.200s", text)
			}
		})
	}
}

// FuzzKeyHeader: whatever the header is, the answer is the create, its replay
// or a 400, the same each time, and a key that was taken runs once.
func FuzzKeyHeader(f *testing.F) {
	for _, s := range []string{"abc", `"abc"`, `"a\"b"`, `"a`, "", "\x00", "a\tb", strings.Repeat("a", 256), `"` + strings.Repeat(`\\`, 256) + `"`, "clé"} {
		f.Add(s, false)
	}
	f.Add("a", true)
	ring := newKeyring()
	token := ring.issue(f)
	f.Fuzz(func(t *testing.T, value string, twice bool) {
		var runs atomic.Int64
		h := keyed(ring, middleware.Options{}, numbered(&runs, nil))
		ask := func() answer {
			r := request("POST", "/", token, "{}")
			r.Header["Idempotency-Key"] = []string{value}
			if twice {
				r.Header["Idempotency-Key"] = []string{value, value}
			}
			return serve(h, r)
		}
		first, again := ask(), ask()
		switch {
		case first.StatusCode == 201 && !twice:
			if runs.Load() != 1 || again.Header.Get("Idempotent-Replayed") != "true" || again.body != first.body {
				t.Errorf("%q: %d runs, then %d %s", value, runs.Load(), again.StatusCode, again.body)
			}
		case first.StatusCode == 400:
			if runs.Load() != 0 || again.StatusCode != 400 || first.problem(t).Code != "idempotency_key_invalid" {
				t.Errorf("%q: %d runs, %s", value, runs.Load(), first.body)
			}
		default:
			t.Errorf("%q: %d %s", value, first.StatusCode, first.body)
		}
	})
}

// TestKeyBelongsTo: what makes the same Idempotency-Key another key (a run of
// its own), and what makes the request under it another request (422).
func TestKeyBelongsTo(t *testing.T) {
	ring := newKeyring()
	grant := func(organization string, e keystore.Environment) string {
		token, _ := ring.grant(t, keystore.Grant{Organization: organization, Environment: e})
		return token
	}
	token := grant("org_1", keystore.Production)
	const (
		replay = iota
		run
		reused
	)
	rows := []struct {
		name string
		r    *http.Request
		want int
	}{
		{"the same", request("POST", "/a?b=c", token, "{}", "Content-Type: application/json"), replay},
		{"another key of the organization", request("POST", "/a?b=c", grant("org_1", keystore.Production), "{}", "Content-Type: application/json"), replay},
		{"other headers", request("POST", "/a?b=c", token, "{}", "Content-Type: application/json", "User-Agent: other", "Accept: */*"), replay},
		{"the host in capitals, with the default port", request("POST", "http://EXAMPLE.com:80/a?b=c", token, "{}", "Content-Type: application/json"), replay},
		{"another name of the host", request("POST", "http://www.example.com/a?b=c", token, "{}", "Content-Type: application/json"), replay},
		{"another host", request("POST", "http://other/a?b=c", token, "{}", "Content-Type: application/json"), reused},
		{"another port", request("POST", "http://example.com:8080/a?b=c", token, "{}", "Content-Type: application/json"), reused},
		{"another range", request("POST", "/a?b=c", token, "{}", "Content-Type: application/json", "Range: bytes=0-1"), reused},
		{"another organization", request("POST", "/a?b=c", grant("org_2", keystore.Production), "{}", "Content-Type: application/json"), run},
		{"sandbox", request("POST", "/a?b=c", grant("org_1", keystore.Sandbox), "{}", "Content-Type: application/json"), run},
		{"an organization that reads alike", request("POST", "/a?b=c", grant("org_1production", keystore.Production), "{}", "Content-Type: application/json"), run},
		{"another project", request("POST", "/a?b=c", token, "{}", "Content-Type: application/json", "Project: p"), run},
		{"another method", request("PATCH", "/a?b=c", token, "{}", "Content-Type: application/json"), reused},
		{"another path", request("POST", "/b?b=c", token, "{}", "Content-Type: application/json"), reused},
		{"the path escaped", request("POST", "/%61?b=c", token, "{}", "Content-Type: application/json"), reused},
		{"another query", request("POST", "/a?b=d", token, "{}", "Content-Type: application/json"), reused},
		{"no query", request("POST", "/a", token, "{}", "Content-Type: application/json"), reused},
		{"dry run", request("POST", "/a?b=c&dry_run=1", token, "{}", "Content-Type: application/json"), reused},
		{"another content type", request("POST", "/a?b=c", token, "{}", "Content-Type: application/json; charset=utf-8"), reused},
		{"no content type", request("POST", "/a?b=c", token, "{}"), reused},
		{"another body", request("POST", "/a?b=c", token, "{ }", "Content-Type: application/json"), reused},
		{"no body", request("POST", "/a?b=c", token, "", "Content-Type: application/json"), reused},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var runs atomic.Int64
			h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{
				Methods:   []string{"POST", "PATCH"},
				Partition: func(r *http.Request) string { return r.Header.Get("Project") },
				Host:      func(host string) string { return strings.TrimPrefix(host, "www.") },
			}}, numbered(&runs, nil))
			serve(h, request("POST", "/a?b=c", token, "{}", "Content-Type: application/json", "Idempotency-Key: a"))
			row.r.Header.Set("Idempotency-Key", "a")
			a := serve(h, row.r)
			got := run
			switch {
			case a.StatusCode == 201 && a.Header.Get("Idempotent-Replayed") == "true" && runs.Load() == 1:
				got = replay
			case a.StatusCode == 422 && a.problem(t).Code == "idempotency_key_reused" && runs.Load() == 1:
				got = reused
			case a.StatusCode != 201 || runs.Load() != 2:
				t.Fatalf("%d %s with %d runs", a.StatusCode, a.body, runs.Load())
			}
			if got != row.want {
				t.Errorf("got %d, want %d (replay, run, reused)", got, row.want)
			}
		})
	}
}

// TestMethods: on methods that are not asked for the header is ignored, and its
// value not even looked at.
func TestMethods(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, row := range []struct {
		methods []string
		method  string
		keyed   bool
	}{
		{nil, "POST", true},
		{nil, "GET", false},
		{nil, "HEAD", false},
		{nil, "PUT", false},
		{nil, "DELETE", false},
		{[]string{"PUT", "PATCH"}, "POST", false},
		{[]string{"PUT", "PATCH"}, "PATCH", true},
	} {
		var runs atomic.Int64
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Methods: row.methods, Required: true}}, numbered(&runs, nil))
		for _, lines := range [][]string{{"Idempotency-Key: a"}, {"Idempotency-Key: a"}} {
			if a := serve(h, request(row.method, "/", token, "", lines...)); a.StatusCode != 201 {
				t.Errorf("%s of %v: %d %s", row.method, row.methods, a.StatusCode, a.body)
			}
		}
		if got := runs.Load() == 1; got != row.keyed {
			t.Errorf("%s of %v: ran %d times, counts: want %t", row.method, row.methods, runs.Load(), row.keyed)
		}
		for _, lines := range [][]string{{"Idempotency-Key: "}, nil} {
			if a := serve(h, request(row.method, "/", token, "", lines...)); (a.StatusCode == 400) != row.keyed {
				t.Errorf("%s of %v with %q: %d", row.method, row.methods, lines, a.StatusCode)
			}
		}
	}
}

// TestWithoutKey: without the header two equal creates are two, unless the
// header is required.
func TestWithoutKey(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	h := keyed(ring, middleware.Options{}, numbered(&runs, nil))
	serve(h, request("POST", "/", token, "{}"))
	if a := serve(h, request("POST", "/", token, "{}")); a.StatusCode != 201 || runs.Load() != 2 {
		t.Errorf("%d with %d runs, want two creates", a.StatusCode, runs.Load())
	}
	h = keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Required: true}}, numbered(&runs, nil))
	if a := serve(h, request("POST", "/", token, "{}")); a.StatusCode != 400 || a.problem(t).Code != "idempotency_key_required" || runs.Load() != 2 {
		t.Errorf("required: %d %s with %d runs", a.StatusCode, a.body, runs.Load())
	}
}

// TestIdempotencyMisuse: outside a scope decision the stage refuses everything,
// and an operator hears of it.
func TestIdempotencyMisuse(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksWrite)
	g := middleware.New(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	auth, need, idempotency := g.Authenticate, g.Require(scope.TasksWrite), g.Idempotent
	type stages = []func(http.Handler) http.Handler
	rows := []struct {
		name   string
		stages stages
		ok     bool
	}{
		{"nothing before it", stages{idempotency}, false},
		{"authentication alone", stages{auth, idempotency}, false},
		{"scope inside", stages{auth, idempotency, need}, false},
		{"authentication inside", stages{idempotency, auth, need}, false},
		{"scope before it", stages{auth, need, idempotency}, true},
		{"AnyKey before it", stages{auth, g.AnyKey, idempotency}, true},
	}
	for _, row := range rows {
		for _, method := range []string{"POST", "GET"} {
			for _, lines := range [][]string{nil, {"Idempotency-Key: " + row.name}} {
				log := newLogged()
				ran := false
				h := middleware.Chain(append(stages{middleware.New(nil, middleware.Options{Hooks: log.hooks()}).RequestID}, row.stages...)...)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ran = true
					w.WriteHeader(http.StatusOK)
				}))
				a := serve(h, request(method, "/", token, "", lines...))
				if row.ok && (a.StatusCode != 200 || log.String() != "") || !row.ok && (a.StatusCode != 500 || a.problem(t).Code != "internal" || ran || !strings.Contains(log.String(), "Require")) {
					t.Errorf("%s, %s with %q: %d %s, log %q", row.name, method, lines, a.StatusCode, a.body, log)
				}
			}
		}
	}
}

// TestReplayBehindScopes: a stored reply is seen by keys alone that may see it.
func TestReplayBehindScopes(t *testing.T) {
	w := newWorld(t, nil)
	first := serve(w.api, w.post("{}"))
	for _, row := range []struct {
		name   string
		grant  keystore.Grant
		revoke bool
		status int
	}{
		{"same scopes", keystore.Grant{Scopes: []scope.Name{scope.TasksWrite}}, false, 201},
		{"no scopes", keystore.Grant{}, false, 403},
		{"another scope", keystore.Grant{Scopes: []scope.Name{scope.TasksRead}}, false, 403},
		{"revoked", keystore.Grant{Scopes: []scope.Name{scope.TasksWrite}}, true, 401},
	} {
		row.grant.Organization, row.grant.Environment = "org_1", keystore.Production
		token, key := w.ring.grant(t, row.grant)
		if row.revoke {
			if _, err := w.ring.issuer.Revoke(t.Context(), "org_1", key.ID); err != nil {
				t.Fatal(err)
			}
		}
		a := serve(w.api, request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: key-1"))
		if a.StatusCode != row.status || (a.body == first.body) != (row.status == 201) || row.status != 201 && a.Header.Get("Location")+a.Header.Get("Svc-Original-Request-Id") != "" {
			t.Errorf("%s: %d %s %v", row.name, a.StatusCode, a.body, a.Header)
		}
	}
	if w.runs.Load() != 1 {
		t.Errorf("ran %d times", w.runs.Load())
	}
}

// TestStagesAreNotDoubled: the same Idempotency twice is one, one inside
// another is a mistake that no request gets past, and the API leaves a request
// to a route's own.
func TestStagesAreNotDoubled(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	held := func(m *idem.Memory) int { return m.Stats().Settled }

	var runs atomic.Int64
	once := idem.NewMemory(idem.MemoryOptions{})
	g := middleware.New(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(once)}})
	h := middleware.Chain(g.Authenticate, g.AnyKey, g.Idempotent, g.Idempotent)(numbered(&runs, nil))
	first, again := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")), serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	if first.StatusCode != 201 || again.Header.Get("Idempotent-Replayed") != "true" || runs.Load() != 1 || held(once) != 1 {
		t.Errorf("the same stage twice: %d, %v, %d runs, %d held", first.StatusCode, again.Header, runs.Load(), held(once))
	}

	runs.Store(0)
	h = keyed(ring, middleware.Options{}, g.Idempotent(numbered(&runs, nil)))
	for _, lines := range [][]string{nil, {"Idempotency-Key: a"}} {
		if a := serve(h, request("POST", "/", token, "{}", lines...)); a.StatusCode != 500 || runs.Load() != 0 {
			t.Errorf("two stages with %q: %d, %d runs", lines, a.StatusCode, runs.Load())
		}
	}

	shared, own := idem.NewMemory(idem.MemoryOptions{}), idem.NewMemory(idem.MemoryOptions{})
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(shared)}, RateLimit: middleware.RateLimitOptions{Store: ratelimit.NewMemory()}})
	route := middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: runnerOf(own), Required: true}}
	api.HandleWith("POST /api/v1/own", middleware.AnyKey(), route, numbered(&runs, nil))
	route.Limit = &ratelimit.Policy{Name: "route", Limit: ratelimit.MustParse("9-H")}
	api.HandleWith("POST /api/v1/limited", middleware.AnyKey(), route, numbered(&runs, nil))
	api.Handle("POST /api/v1/shared", middleware.AnyKey(), numbered(&runs, nil))
	api.Handle("PUT /api/v1/put", middleware.AnyKey(), numbered(&runs, nil))
	for _, r := range api.Routes() {
		if want := r.Method == "POST"; r.Idempotent != want {
			t.Errorf("%s %s: Idempotent %t, want %t", r.Method, r.Path, r.Idempotent, want)
		}
	}
	for _, row := range []struct {
		path        string
		own, shared int
	}{{"/api/v1/own", 1, 0}, {"/api/v1/limited", 2, 0}, {"/api/v1/shared", 2, 1}} {
		runs.Store(0)
		for range 2 {
			if a := serve(api, request("POST", row.path, token, "{}", "Idempotency-Key: "+row.path)); a.StatusCode != 201 || runs.Load() != 1 {
				t.Errorf("%s: %d %s with %d runs", row.path, a.StatusCode, a.body, runs.Load())
			}
		}
		if held(own) != row.own || held(shared) != row.shared {
			t.Errorf("%s: the route's store holds %d, the API's %d, want %d and %d", row.path, held(own), held(shared), row.own, row.shared)
		}
		if a := serve(api, request("POST", row.path, token, "{}")); (a.StatusCode == 400) != (row.path != "/api/v1/shared") {
			t.Errorf("%s without a key: %d", row.path, a.StatusCode)
		}
	}
}

// TestRouteIdempotency: a route's options change the API's, field by field, and
// only NotIdempotent takes the route out.
func TestRouteIdempotency(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{
		Runner: replies(), Methods: []string{"POST", "PUT"}, MaxBody: 3, Required: true,
		Partition: func(r *http.Request) string { return r.Header.Get("X-Part") },
	}})
	for _, row := range []struct {
		method, path string
		o            middleware.RouteOptions
		body         string
		want         []int // of a request, its repeat, another partition, and no key
		runs         int64
	}{
		{"POST", "/api/v1/body", middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{MaxBody: 8 << 20}}, "1234", []int{201, 201, 201, 400}, 2},
		{"PUT", "/api/v1/timeout", middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Timeout: time.Hour}}, "123", []int{201, 201, 201, 400}, 2},
		{"POST", "/api/v1/plain", middleware.RouteOptions{}, "1234", []int{413, 413, 413, 400}, 0},
		{"POST", "/api/v1/own", middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Runner: replies()}}, "1234", []int{413, 413, 413, 400}, 0},
		{"POST", "/api/v1/off", middleware.RouteOptions{NotIdempotent: true}, "1234", []int{201, 201, 201, 201}, 4},
	} {
		api.HandleWith(row.method+" "+row.path, middleware.AnyKey(), row.o, numbered(&runs, nil))
		runs.Store(0)
		var got []int
		for _, lines := range [][]string{{"Idempotency-Key: " + row.path}, {"Idempotency-Key: " + row.path}, {"Idempotency-Key: " + row.path, "X-Part: 2"}, nil} {
			got = append(got, serve(api, request(row.method, row.path, token, row.body, lines...)).StatusCode)
		}
		if !slices.Equal(got, row.want) || runs.Load() != row.runs {
			t.Errorf("%s: got %v with %d runs, want %v with %d", row.path, got, runs.Load(), row.want, row.runs)
		}
		route := api.Routes()[len(api.Routes())-1]
		if route.Idempotent == row.o.NotIdempotent || route.KeyRequired == row.o.NotIdempotent {
			t.Errorf("%s: got %+v", row.path, route)
		}
	}
}

// TestRouteIdempotencyMistakes: what a route sets has an effect, or the route is
// not registered.
func TestRouteIdempotencyMistakes(t *testing.T) {
	for want, row := range map[string]struct {
		runner *idem.Runner
		route  middleware.RouteOptions
	}{
		"has both": {replies(), middleware.RouteOptions{NotIdempotent: true, Idempotency: &middleware.IdempotencyOptions{Required: true}}},
		"is empty": {replies(), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{}}},
		"RouteOptions.Idempotency: a field is set and Runner is nil": {nil, middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Required: true}}},
		`["PUT"] and does not have the route's POST`:                 {replies(), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Methods: []string{"PUT"}}}},
		"Methods is empty":                        {replies(), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{Methods: []string{}}}},
		"MaxBodies is smaller than twice MaxBody": {replies(), middleware.RouteOptions{Idempotency: &middleware.IdempotencyOptions{MaxBody: 257 << 20}}},
	} {
		api := middleware.NewAPI(keystore.NewMemory(), middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: row.runner}})
		wantPanic(t, want, func() {
			api.HandleWith("POST /api/v1/x", middleware.AnyKey(), row.route, http.HandlerFunc(sayOK))
		})
	}
}

// TestBodiesOfRoutes: a route takes its bodies from the API's budget, unless it
// has one of its own.
func TestBodiesOfRoutes(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var api *middleware.API
	post := func(path string) int {
		return serve(api, request("POST", path, token, strings.Repeat("x", 7000), "Idempotency-Key: "+path)).StatusCode
	}
	for _, row := range []struct {
		outer, inner middleware.IdempotencyOptions
		want         int
	}{
		{middleware.IdempotencyOptions{MaxResponse: 9}, middleware.IdempotencyOptions{MaxResponse: 8}, 503},
		{middleware.IdempotencyOptions{Runner: replies()}, middleware.IdempotencyOptions{Timeout: time.Hour}, 503},
		{middleware.IdempotencyOptions{MaxBodies: 14_000}, middleware.IdempotencyOptions{Timeout: time.Hour}, 201},
		{middleware.IdempotencyOptions{Timeout: time.Hour}, middleware.IdempotencyOptions{MaxBodies: 14_000}, 201},
	} {
		var inside int
		api = middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(), MaxBody: 7000, MaxBodies: 14_000}})
		api.HandleWith("POST /api/v1/outer", middleware.AnyKey(), middleware.RouteOptions{Idempotency: &row.outer}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside = post("/api/v1/inner") // while the body of this one is held
			w.WriteHeader(201)
		}))
		api.HandleWith("POST /api/v1/inner", middleware.AnyKey(), middleware.RouteOptions{Idempotency: &row.inner}, numbered(new(atomic.Int64), nil))
		if got := post("/api/v1/outer"); got != 201 || inside != row.want {
			t.Errorf("%+v, %+v: got %d and %d, want 201 and %d", row.outer, row.inner, got, inside, row.want)
		}
	}
}

// TestRateLimitInside: with the limit inside, a 429 frees the key as well.
func TestRateLimitInside(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	store := &downRates{Store: ratelimit.NewMemory()}
	limit := middleware.New(nil, middleware.Options{RateLimit: middleware.PerOrganization(store, ratelimit.Limit{Count: 1, Period: time.Hour})}).RateLimit
	h := keyed(ring, middleware.Options{}, limit(numbered(&runs, nil)))
	var statuses []int
	for _, key := range []string{"a", "b", "b", "a"} {
		statuses = append(statuses, serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+key)).StatusCode)
	}
	if want := []int{201, 429, 429, 201}; !slices.Equal(statuses, want) || runs.Load() != 1 {
		t.Errorf("statuses %v with %d runs, want %v", statuses, runs.Load(), want)
	}
}

// TestAttempt: a handler that may run again sees that it does.
func TestAttempt(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, again := range []bool{false, true} {
		var attempts []int
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Reexecute: again})}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if attempts = append(attempts, middleware.Executions(r.Context())); len(attempts) == 1 {
				panic(http.ErrAbortHandler)
			}
		}))
		func() {
			defer func() { recover() }()
			serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		}()
		a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		if want := []int{1, 2}; again && (a.StatusCode != 200 || !slices.Equal(attempts, want)) {
			t.Errorf("Reexecute: %d with attempts %v, want 200 with %v", a.StatusCode, attempts, want)
		}
		if want := []int{1}; !again && (a.StatusCode != 409 || !slices.Equal(attempts, want)) {
			t.Errorf("default: %d with attempts %v, want 409 with %v", a.StatusCode, attempts, want)
		}
	}
	if n := middleware.Executions(t.Context()); n != 1 {
		t.Errorf("Attempt outside a request is %d, want 1", n)
	}
}

// TestIdempotencyPanics: mistakes at construction.
func TestIdempotencyPanics(t *testing.T) {
	stage := func(o middleware.IdempotencyOptions) {
		middleware.New(nil, middleware.Options{Idempotency: o}).Idempotent(http.NotFoundHandler())
	}
	wantPanic(t, "Runner is nil", func() { stage(middleware.IdempotencyOptions{}) })
	for _, method := range []string{"GET", "HEAD"} {
		wantPanic(t, "leave "+method+" out", func() {
			stage(middleware.IdempotencyOptions{Runner: replies(), Methods: []string{"POST", method}})
		})
	}
	for _, o := range []middleware.IdempotencyOptions{{MaxBody: -1}, {MaxBodies: -1}, {MaxResponse: -1}, {Timeout: -1}} {
		wantPanic(t, "negative", func() { stage(o) })
	}
	wantPanic(t, "a field is set and Runner is nil", func() { stage(middleware.IdempotencyOptions{Required: true}) })
	wantPanic(t, "smaller than twice MaxBody", func() { stage(middleware.IdempotencyOptions{Runner: replies(), MaxBody: 2, MaxBodies: 3}) })
	wantPanic(t, "no status of a failure", func() { stage(middleware.IdempotencyOptions{FreeOn: []int{201}}) })
}

// TestRequireInside: a scope decision inside Idempotent does not stand in the
// way of a replay, so it is refused, at the first request.
func TestRequireInside(t *testing.T) {
	ring := newKeyring()
	with, without := ring.issue(t, scope.TasksWrite), ring.issue(t)
	for name, require := range map[string]func(*middleware.Guard) func(http.Handler) http.Handler{
		"Require":    func(g *middleware.Guard) func(http.Handler) http.Handler { return g.Require(scope.TasksWrite) },
		"RequireAny": func(g *middleware.Guard) func(http.Handler) http.Handler { return g.RequireAny(scope.TasksWrite) },
		"AnyKey":     func(g *middleware.Guard) func(http.Handler) http.Handler { return g.AnyKey },
		"of another Guard": func(*middleware.Guard) func(http.Handler) http.Handler {
			return middleware.New(nil, middleware.Options{}).Require(scope.TasksWrite)
		},
	} {
		store := idem.NewMemory(idem.MemoryOptions{})
		log := newLogged()
		g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}})
		ran := false
		h := middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, g.Idempotent, require(g))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
		lines := 0
		for _, method := range []string{"POST", "GET"} {
			for _, token := range []string{without, with, with, without} {
				for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: a"} {
					lines++
					if a := serve(h, request(method, "/", token, "", line)); a.StatusCode != 500 || a.problem(t).Code != "internal" {
						t.Errorf("%s, %s with %q: %d %s, want 500", name, method, line, a.StatusCode, a.body)
					}
				}
			}
		}
		if got := strings.Count(log.String(), "stands inside Idempotent"); got != lines || ran {
			t.Errorf("%s: %d lines in the log for %d requests, ran: %t", name, got, lines, ran)
		}
		if s := store.Stats(); s.Claims != 0 || s.Settled != 0 {
			t.Errorf("%s: the key is not free: %+v", name, s)
		}
	}

	// Authenticate in between does not help: a replay would skip it as well.
	// The key stays taken, because a handler may have called the stage.
	runs := 0
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	h := middleware.Chain(g.RequestID, g.Authenticate, g.AnyKey, g.Idempotent, g.Authenticate, g.Require(scope.TasksWrite))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
	if a := serve(h, request("POST", "/", with, "", "Idempotency-Key: a")); a.StatusCode != 500 || runs != 0 {
		t.Errorf("with Authenticate in between: %d %s", a.StatusCode, a.body)
	}
}

// TestRetryAcrossADeploy: what a deploy may change of a route does not make a
// retry another request.
func TestRetryAcrossADeploy(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksWrite, scope.TasksRead, scope.TasksCancel)
	runner, runs := replies(), 0
	for i, deploy := range []struct {
		pattern string
		need    middleware.Requirement
	}{
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead)},
		{"POST /api/v1/tasks/{task}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksRead, scope.TasksWrite)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead, scope.TasksCancel)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.RequireAny(scope.TasksCancel)},
		{"POST /api/v1/tasks/{rest...}", middleware.AnyKey()},
	} {
		api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}})
		api.HandleFunc(deploy.pattern, deploy.need, func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.WriteHeader(http.StatusAccepted)
		})
		a := serve(api, request("POST", "/api/v1/tasks/7/cancel", token, "{}", "Idempotency-Key: a"))
		if a.StatusCode != 202 || runs != 1 || (a.Header.Get("Idempotent-Replayed") == "true") != (i > 0) {
			t.Errorf("%s for %v: %d %s with %d runs, want the replay", deploy.pattern, deploy.need, a.StatusCode, a.body, runs)
		}
	}
}

// TestRangeIsCompared: another Range gets no 206 of the first one.
func TestRangeIsCompared(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	h := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader("0123456789"))
	}))
	for _, row := range []struct {
		key, lines string
		status     int
		body       string
	}{
		{"a", "Range: bytes=0-1", 206, "01"},
		{"a", "Range: bytes=0-1", 206, "01"},
		{"a", "Range: bytes=2-3", 422, ""},
		{"a", "X-Nothing: 1", 422, ""},
		{"b", "X-Nothing: 1", 200, "0123456789"},
		{"b", "Range: bytes=2-3", 422, ""},
	} {
		a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: "+row.key, row.lines))
		if a.StatusCode != row.status || row.body != "" && a.body != row.body {
			t.Errorf("key %s with %s: %d %s, want %d %s", row.key, row.lines, a.StatusCode, a.body, row.status, row.body)
		}
	}
}

// One path can be two routes. A reply does not get from one to the other.
func TestRepliesStayWithTheirRoute(t *testing.T) {
	ring := newKeyring()
	tasks, chat, both := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.ChatWrite), ring.issue(t, scope.TasksWrite, scope.ChatWrite)
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	hosts := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	hosts.Handle("POST a.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of tasks"))
	hosts.Handle("POST b.example/api/v1/x", middleware.Require(scope.ChatWrite), says("of chat"))
	hosts.Handle("POST c.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of c"))

	g := middleware.New(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
	prefixes := http.NewServeMux()
	for name, need := range map[string]scope.Name{"tasks": scope.TasksWrite, "chat": scope.ChatWrite} {
		pieces := middleware.Chain(g.Authenticate, g.Require(need), g.Idempotent)
		prefixes.Handle("/"+name+"/", http.StripPrefix("/"+name, pieces(says("of "+name))))
	}
	// A router that sets no Pattern.
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mount := "/" + strings.Split(r.URL.Path, "/")[1]
		http.StripPrefix(mount, middleware.Chain(g.Authenticate, g.AnyKey, g.Idempotent)(says("of "+mount[1:]))).ServeHTTP(w, r)
	})
	for _, row := range []struct {
		name         string
		h            http.Handler
		first, again string
		token        string
	}{
		{"another prefix, without patterns", plain, "/tasks/new", "/chat/new", tasks},
		{"another host and scope", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", chat},
		{"another host, both scopes", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", both},
		{"another host, the same scope", hosts, "http://a.example/api/v1/x", "http://c.example/api/v1/x", tasks},
		{"another prefix", prefixes, "/tasks/new", "/chat/new", chat},
	} {
		line := "Idempotency-Key: " + row.name
		if got := serve(row.h, request("POST", row.first, tasks, "{}", line)); got.body != "of tasks" {
			t.Errorf("%s: the first request got %d %s", row.name, got.StatusCode, got.body)
		}
		if got := serve(row.h, request("POST", row.again, row.token, "{}", line)); got.StatusCode != 422 || got.problem(t).Code != "idempotency_key_reused" {
			t.Errorf("%s: got %d %s, want 422 idempotency_key_reused", row.name, got.StatusCode, got.body)
		}
	}
}
