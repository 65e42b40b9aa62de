package middleware_test

import (
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

// TestKeyHeader has each kind of Idempotency-Key. The first request was sent with
// the key abc.
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
			h := keyed(ring, replies(), middleware.IdempotencyOptions{Hooks: log.hooks()}, numbered(&runs, nil))
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

// FuzzKeyHeader: whatever the header is, the answer is the create, its replay or
// a 400, the same each time, and a key that was taken runs once.
func FuzzKeyHeader(f *testing.F) {
	for _, s := range []string{"abc", `"abc"`, `"a\"b"`, `"a`, "", "\x00", "a\tb", strings.Repeat("a", 256), `"` + strings.Repeat(`\\`, 256) + `"`, "clé"} {
		f.Add(s, false)
	}
	f.Add("a", true)
	ring := newKeyring()
	token := ring.issue(f)
	f.Fuzz(func(t *testing.T, value string, twice bool) {
		var runs atomic.Int64
		h := keyed(ring, replies(), middleware.IdempotencyOptions{}, numbered(&runs, nil))
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

// TestKeyBelongsTo: what makes the same Idempotency-Key another key (a run of its
// own), and what makes the request under it another request (422).
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
		{"another host", request("POST", "http://other/a?b=c", token, "{}", "Content-Type: application/json"), replay},
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
			h := keyed(ring, replies(), middleware.IdempotencyOptions{
				Methods:   []string{"POST", "PATCH"},
				Partition: func(r *http.Request) string { return r.Header.Get("Project") },
			}, numbered(&runs, nil))
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
		h := keyed(ring, replies(), middleware.IdempotencyOptions{Methods: row.methods, Required: true}, numbered(&runs, nil))
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

// TestWithoutKey: without the header two equal creates are two, unless the header
// is required.
func TestWithoutKey(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	h := keyed(ring, replies(), middleware.IdempotencyOptions{}, numbered(&runs, nil))
	serve(h, request("POST", "/", token, "{}"))
	if a := serve(h, request("POST", "/", token, "{}")); a.StatusCode != 201 || runs.Load() != 2 {
		t.Errorf("%d with %d runs, want two creates", a.StatusCode, runs.Load())
	}
	h = keyed(ring, replies(), middleware.IdempotencyOptions{Required: true}, numbered(&runs, nil))
	if a := serve(h, request("POST", "/", token, "{}")); a.StatusCode != 400 || a.problem(t).Code != "idempotency_key_required" || runs.Load() != 2 {
		t.Errorf("required: %d %s with %d runs", a.StatusCode, a.body, runs.Load())
	}
}

// TestIdempotencyMisuse: outside a scope decision the stage refuses everything,
// and an operator hears of it.
func TestIdempotencyMisuse(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t, scope.TasksWrite)
	auth := middleware.Authenticate(ring.keys, middleware.AuthOptions{})
	need := middleware.RequireScope(middleware.Require(scope.TasksWrite), middleware.ScopeOptions{})
	idempotency := middleware.Idempotency(replies(), middleware.IdempotencyOptions{})
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
		{"AnyKey before it", stages{auth, middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{}), idempotency}, true},
	}
	for _, row := range rows {
		for _, method := range []string{"POST", "GET"} {
			for _, lines := range [][]string{nil, {"Idempotency-Key: " + row.name}} {
				log := newLogged()
				ran := false
				h := middleware.Chain(append(stages{middleware.RequestID(middleware.RequestIDOptions{Hooks: log.hooks()})}, row.stages...)...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
				a := serve(h, request(method, "/", token, "", lines...))
				if row.ok && (a.StatusCode != 200 || log.String() != "") || !row.ok && (a.StatusCode != 500 || a.problem(t).Code != "internal" || ran || !strings.Contains(log.String(), "RequireScope")) {
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

// TestStagesAreNotDoubled: the same Idempotency twice is one, one inside another is
// a mistake that no request gets past, and the API leaves a request to a route's
// own.
func TestStagesAreNotDoubled(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	held := func(m *idem.Memory) int { return m.Stats().Whole }

	var runs atomic.Int64
	once := replies().(*idem.Memory)
	stage := middleware.Idempotency(once, middleware.IdempotencyOptions{})
	h := middleware.Chain(middleware.Authenticate(ring.keys, middleware.AuthOptions{}), middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{}), stage, stage)(numbered(&runs, nil))
	first, again := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")), serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
	if first.StatusCode != 201 || again.Header.Get("Idempotent-Replayed") != "true" || runs.Load() != 1 || held(once) != 1 {
		t.Errorf("the same stage twice: %d, %v, %d runs, %d held", first.StatusCode, again.Header, runs.Load(), held(once))
	}

	runs.Store(0)
	h = keyed(ring, replies(), middleware.IdempotencyOptions{}, middleware.Idempotency(replies(), middleware.IdempotencyOptions{})(numbered(&runs, nil)))
	for _, lines := range [][]string{nil, {"Idempotency-Key: a"}} {
		if a := serve(h, request("POST", "/", token, "{}", lines...)); a.StatusCode != 500 || runs.Load() != 0 {
			t.Errorf("two stages with %q: %d, %d runs", lines, a.StatusCode, runs.Load())
		}
	}

	shared, own := replies().(*idem.Memory), replies().(*idem.Memory)
	api := middleware.NewAPI(ring.keys, middleware.Options{
		Replies: shared,
		Limits:  middleware.Limits{Store: ratelimit.NewMemory()},
	})
	route := middleware.Idempotency(own, middleware.IdempotencyOptions{Required: true})(numbered(&runs, nil))
	api.Handle("POST /api/v1/own", middleware.AnyKey(), route)
	api.Handle("POST /api/v1/limited", middleware.AnyKey(), middleware.RouteLimit{Policy: &ratelimit.Policy{Name: "route", Limit: ratelimit.MustParse("9-H")}}.Handler(route))
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

// TestRateLimitInside: with the limit inside, a 429 frees the key as well.
func TestRateLimitInside(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs atomic.Int64
	store := &downRates{Store: ratelimit.NewMemory()}
	limit := middleware.RateLimit(middleware.PerOrganization(store, ratelimit.Limit{Count: 1, Period: time.Hour}))
	h := keyed(ring, replies(), middleware.IdempotencyOptions{}, limit(numbered(&runs, nil)))
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
		h := keyed(ring, replies(), middleware.IdempotencyOptions{Reexecute: again}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if attempts = append(attempts, middleware.Attempt(r.Context())); len(attempts) == 1 {
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
	if n := middleware.Attempt(t.Context()); n != 1 {
		t.Errorf("Attempt outside a request is %d, want 1", n)
	}
}

// TestIdempotencyPanics: mistakes at construction.
func TestIdempotencyPanics(t *testing.T) {
	wantPanic(t, "store is nil", func() { middleware.Idempotency(nil, middleware.IdempotencyOptions{}) })
	for _, method := range []string{"GET", "HEAD"} {
		wantPanic(t, "GET and HEAD", func() {
			middleware.Idempotency(replies(), middleware.IdempotencyOptions{Methods: []string{"POST", method}})
		})
	}
	for _, o := range []middleware.IdempotencyOptions{{MaxBody: -1}, {MaxResponse: -1}, {Timeout: -1}} {
		wantPanic(t, "negative", func() { middleware.Idempotency(replies(), o) })
	}
	wantPanic(t, "Joiner", func() { middleware.Idempotency(replies(), middleware.IdempotencyOptions{Join: true}) })
}
