package middleware_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// eventService is the same routes twice: as an API, and as stages around a
// ServeMux.
func eventService(keys keystore.Store, hooks *middleware.Hooks) map[string]http.Handler {
	policy := func(name, limit string) *ratelimit.Policy {
		return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse(limit)}
	}
	o := func() middleware.Options {
		return middleware.Options{
			Hooks: hooks,
			RateLimit: rateOptions{Store: &ratelimit.Memory{}, Organization: policy("plenty", "1000-H"),
				Sandbox: policy("once", "1-H")},
			Idempotency: keyedOptions{Runner: replies()},
		}
	}
	routes := []struct {
		pattern string
		need    scope.Name
		h       http.HandlerFunc
	}{
		{"GET /api/v1/tasks", scope.TasksRead, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(50 * time.Millisecond) // in the bubble
			sayOK(w, r)
		}},
		{"GET /api/v1/tasks/{id}/", scope.TasksRead, steps()},
		{"POST /api/v1/tasks", scope.TasksWrite, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(201)
			sayOK(w, r)
		}},
		{"GET /api/v1/account", scope.AccountRead, sayOK},
		{"GET /api/v1/panic", scope.TasksRead, steps("panic")},
		{"GET /api/v1/half", scope.TasksRead, steps("ok", "panic")},
		{"GET /api/v1/abort", scope.TasksRead, steps("abort")},
		{"POST /api/v1/panic", scope.TasksWrite, steps("panic")},
		{"POST /api/v1/stream", scope.TasksWrite, steps("Content-Type: text/event-stream", "ok", "flush", "panic")},
		{"POST /api/v1/abort", scope.TasksWrite, steps("abort")},
	}
	api, inner := middleware.NewAPI(keys, o()), middleware.NewAPI(keys, o())
	g, mux := middleware.New(keys, o()), http.NewServeMux()
	for _, r := range routes {
		api.Handle(r.pattern, middleware.Require(r.need), r.h)
		inner.Handle(r.pattern, middleware.Require(r.need), r.h)
		mux.Handle(r.pattern, middleware.Chain(g.Enforce(middleware.Require(r.need)), g.Idempotent)(r.h))
	}
	pieces := middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.RateLimit)(mux)
	return map[string]http.Handler{"API": api, "RequestID and API": g.RequestID(inner), "pieces": pieces}
}

// TestEvent: one Event for each response, with what is known at its end.
func TestEvent(t *testing.T) {
	const list, create, pause = "GET /api/v1/tasks", "POST /api/v1/tasks", 50 * time.Millisecond
	mux := []string{"handler", "handled"} // which answers by itself
	tests := []struct {
		name, request, token, key string // key is an Idempotency-Key
		status                    int
		stage, outcome, pattern   string
		took                      time.Duration
		executed, aborted         bool
		pieces                    []string // stage, outcome and pattern where they differ
	}{
		{"handled", list, "live", "", 200, "handler", "handled", list, pause, false, false, nil},
		{"empty", "GET /api/v1/tasks/1/", "live", "", 200, "handler", "handled", "GET /api/v1/tasks/{id}/", 0, false,
			false, nil},
		{"HEAD", "HEAD /api/v1/account", "account", "", 200, "handler", "handled", "GET /api/v1/account", 0, false,
			false, nil},
		{"no key", list, "", "", 401, "authenticate", "api_key_missing", "", 0, false, false, nil},
		{"wrong key", list, "wrong", "", 401, "authenticate", "api_key_invalid", "", 0, false, false, nil},
		{"no scope", "GET /api/v1/account", "live", "", 403, "scope", "insufficient_scope", "=", 0, false, false, nil},
		{"unknown path", "GET /api/v1/none", "live", "", 404, "route", "not_found", "", 0, false, false, append(mux, "")},
		{"wrong method", "PUT /api/v1/tasks", "live", "", 405, "route", "method_not_allowed", "", 0, false, false,
			append(mux, "")},
		{"redirected", "GET //api/v1/tasks", "live", "", 307, "route", "redirected", list, 0, false, false,
			append(mux, list)},
		{"not keyed", create, "live", "", 201, "handler", "handled", "=", time.Second, false, false, nil},
		{"executed", create, "live", "1", 201, "idempotency", "executed", "=", time.Second, true, false, nil},
		{"replayed", create, "live", "1", 201, "idempotency", "replayed", "=", 0, false, false, nil},
		{"key reused", "POST /api/v1/panic", "live", "1", 422, "idempotency", "idempotency_key_reused", "=", 0, false,
			false, nil},
		{"panicked", "GET /api/v1/panic", "live", "", 500, "recover", "internal", "=", 0, false, false, nil},
		{"panicked half way", "GET /api/v1/half", "live", "", 200, "recover", "internal", "=", 0, false, true, nil},
		{"panicked while streaming, keyed", "POST /api/v1/stream", "live", "4", 200, "recover", "internal", "=", 0, true,
			true, nil},
		{"panicked, keyed", "POST /api/v1/panic", "live", "2", 500, "recover", "internal", "=", 0, true, false, nil},
		{"aborted", "GET /api/v1/abort", "live", "", 0, "handler", "handled", "=", 0, false, true, nil},
		{"aborted, keyed", "POST /api/v1/abort", "live", "3", 0, "handler", "handled", "=", 0, true, true, nil},
		{"after an abort", "POST /api/v1/abort", "live", "3", 409, "idempotency", "idempotency_outcome_unknown", "=", 0,
			false, false, nil},
		{"within the limit", list, "test", "", 200, "handler", "handled", list, pause, false, false, nil},
		{"over the limit", list, "test", "", 429, "rate_limit", "rate_limited", list, 0, false, false,
			[]string{"rate_limit", "rate_limited", ""}},
	}
	synctest.Test(t, func(t *testing.T) {
		ring, o := newKeyring(), &observed{t: t}
		issued, tokens := map[string]*keystore.Key{"": {}, "wrong": {}}, map[string]string{"wrong": "x"}
		for name, g := range map[string]keystore.Key{
			"live":    {Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}},
			"account": {Scopes: []scope.Name{scope.AccountRead}},
			"test":    {Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead}},
		} {
			tokens[name], issued[name] = ring.grant(t, g)
		}
		for form, h := range eventService(ring.keys, o.hooks()) {
			for _, tt := range tests {
				var lines []string
				if tt.key != "" {
					lines = []string{"Idempotency-Key: " + tt.key}
				}
				method, path, _ := strings.Cut(tt.request, " ")
				got, res := o.ask(h, request(method, path, tokens[tt.token], "", lines...))

				want := middleware.Event{Status: tt.status, Stage: tt.stage, Outcome: tt.outcome,
					Pattern: strings.Replace(tt.pattern, "=", tt.request, 1), Duration: tt.took,
					Executed: tt.executed, Aborted: tt.aborted, Bytes: int64(len(res.body))}
				if form == "pieces" && tt.pieces != nil {
					want.Stage, want.Outcome, want.Pattern = tt.pieces[0], tt.pieces[1], tt.pieces[2]
				}
				if got.RequestID != res.Header.Get(idHeader) && !got.Aborted || got.RequestID == "" {
					t.Errorf("%s, %s: got the id %q, the response has %q", form, tt.name, got.RequestID, res.Header.Get(idHeader))
				}
				key := issued[tt.token]
				switch {
				case tt.token == "test":
					want.Policy, want.Burst = "once", 1
				case key.ID != "":
					want.Policy, want.Burst, want.Remaining = "plenty", 1000, got.Remaining
				}
				if p := got.Caller; p.KeyID() != key.ID || p.Organization() != key.Organization ||
					p.Environment() != key.Environment {
					t.Errorf("%s, %s: got the caller %v, want %q", form, tt.name, p.LogValue(), key.ID)
				}
				if got.Burst == 1000 && (got.Remaining < 900 || got.Remaining > 999) {
					t.Errorf("%s, %s: got %d remaining of 1000", form, tt.name, got.Remaining)
				}
				want.RequestID, want.Method, want.Caller = got.RequestID, method, got.Caller
				fields, _ := json.Marshal(got)
				if wanted, _ := json.Marshal(want); string(fields) != string(wanted) {
					t.Errorf("%s, %s:\n got %+v\nwant %+v", form, tt.name, got, want)
				}
				if !got.Aborted && got.Status != res.StatusCode {
					t.Errorf("%s, %s: got status %d, sent %d", form, tt.name, got.Status, res.StatusCode)
				}
			}
		}
	})
}

// TestEventOfAWait: a repeat says how long it waited for the first request.
func TestEventOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, o := newKeyring(), &observed{t: t}
		token := ring.issue(t, scope.TasksWrite)
		release := make(chan struct{})
		api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
		api.HandleFunc("POST /api/v1/tasks", middleware.AnyCaller(),
			func(w http.ResponseWriter, r *http.Request) { <-release })
		create := func() *http.Request {
			return request("POST", "/api/v1/tasks", token, "{}", "Idempotency-Key: 1")
		}
		go serve(api, create())
		synctest.Wait()
		time.AfterFunc(3*time.Second, func() { close(release) })
		g := middleware.New(nil, middleware.Options{Hooks: o.hooks()})
		e, _ := o.ask(g.RequestID(api), create())
		if e.Waited != 3*time.Second || e.Outcome != "replayed" || e.Duration != 3*time.Second {
			t.Errorf("got %+v, want a replay after a wait of 3s", e)
		}
	})
}

// TestEventBytesOfACopy: the body counts whole however it is sent, also past the
// writer from a file to the connection.
func TestEventBytesOfACopy(t *testing.T) {
	const size = 100_000
	file := filepath.Join(t.TempDir(), "file.bin")
	if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *os.File {
		f, err := os.Open(file)
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	tests := []struct {
		name  string
		h     http.HandlerFunc
		lines []string
		want  int64
	}{
		{"ServeFile", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, nil, size},
		{"a range of ServeFile", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) },
			[]string{"Range: bytes=10-1999"}, 1990},
		{"a copied file", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, open()) }, nil, size},
		{"a copied file of a known length", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			io.Copy(w, open())
		}, nil, size},
		{"a copied part", func(w http.ResponseWriter, r *http.Request) { io.CopyN(w, open(), 600) }, nil, 600},
		{"two copies", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first")
			io.CopyN(w, open(), 70_000)
			io.CopyN(w, open(), 5)
		}, nil, 70_010},
		{"a copy that fails", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, io.MultiReader(io.LimitReader(open(), 2000), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}, nil, 2000},
		{"a copy of nothing", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, strings.NewReader("")) }, nil, 0},
	}
	overBoth(t, func(t *testing.T, protocol string) {
		for _, tt := range tests {
			events := make(chan middleware.Event, 1)
			api, token := oneRoute(t, tt.h, middleware.Options{Hooks: quiet(func(e middleware.Event) { events <- e })})
			srv, client := listen(t, protocol, api)
			res := do(t, client, request("GET", srv.URL+"/api/v1/x", token, "", tt.lines...))
			if e := <-events; e.Bytes != tt.want || int64(len(res.body)) != tt.want {
				t.Errorf("%s: the event has %d bytes, the client got %d, want %d", tt.name, e.Bytes, len(res.body), tt.want)
			}
		}
	})
}

// TestEventOfAHijackedConnection: the Event comes when the handler returns.
func TestEventOfAHijackedConnection(t *testing.T) {
	for _, status := range []int{0, http.StatusSwitchingProtocols} {
		events := make(chan middleware.Event, 1)
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			if status != 0 {
				w.WriteHeader(status)
			}
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
				return
			}
			conn.Close()
		}, middleware.Options{Hooks: quiet(func(e middleware.Event) { events <- e })})
		c := dial(t, start(t, api))
		c.send(upgrade("x", token))
		e := <-events
		if e.Aborted || e.Status != status || e.Pattern != "GET /api/v1/x" || e.Outcome != "handled" ||
			e.Caller.KeyID() == "" {
			t.Errorf("got %+v, want a hijacked response with status %d", e, status)
		}
	}
}

// TestEventOfARequestWithin: the request that a handler makes has an Event of
// its own, and changes nothing in the outer one.
func TestEventOfARequestWithin(t *testing.T) {
	ring, o := newKeyring(), &observed{t: t}
	token := ring.issue(t)
	var h http.Handler
	handler := func(w http.ResponseWriter, r *http.Request) {
		inner := request("GET", "/api/v1/none", token, "").WithContext(r.Context())
		h.ServeHTTP(httptest.NewRecorder(), inner)
		if len(o.events) != 1 {
			t.Errorf("the outer response has not ended, and the Events are %+v", o.events)
		}
		w.WriteHeader(202)
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: o.hooks()})
	api.HandleFunc("GET /api/v1/outer", middleware.AnyCaller(), handler)
	g, mux := middleware.New(ring.keys, middleware.Options{Hooks: o.hooks()}), http.NewServeMux()
	mux.Handle("GET /api/v1/outer", g.Enforce(middleware.AnyCaller())(http.HandlerFunc(handler)))
	for form, chain := range map[string]http.Handler{"API": api,
		"pieces": middleware.Chain(g.RequestID, g.Authenticate)(mux)} {
		h, o.events = chain, nil
		res := serve(h, request("GET", "/api/v1/outer", token, ""))
		if len(o.events) != 2 {
			t.Fatalf("%s: got %d Events, want 2", form, len(o.events))
		}
		inner, outer := o.events[0], o.events[1]
		if outer.Nested || outer.Status != 202 || outer.Outcome != "handled" || outer.Pattern != "GET /api/v1/outer" ||
			outer.RequestID != wantID(t, res.Response) {
			t.Errorf("%s: outer: got %+v", form, outer)
		}
		if !inner.Nested || inner.Status != 404 || inner.RequestID != outer.RequestID {
			t.Errorf("%s: inner: got %+v", form, inner)
		}
	}
}

// TestEventOfAMisuse: where Authenticate stands inside Idempotent, the caller of
// the Event is who the stages outside know.
func TestEventOfAMisuse(t *testing.T) {
	ring, o := newKeyring(), &observed{t: t}
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: o.hooks(), Idempotency: keyedOptions{Runner: replies()}})
	chain := middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent, g.Authenticate)
	e, res := o.ask(chain(sayOK), request("POST", "/", token, "{}"))
	if e.Status != 500 || e.Stage != middleware.StageAuthenticate || e.Caller.Organization() != "org_1" {
		t.Errorf("got %d, %s and the caller %q, want 500, %s and org_1",
			e.Status, e.Stage, e.Caller.Organization(), middleware.StageAuthenticate)
	}
	if res.Header.Get("Connection") != "" {
		t.Error("the connection of a caller with a key was closed")
	}
}

// TestEventOfARefusedKey: whoever watches learns which key it was; the client
// is nobody.
func TestEventOfARefusedKey(t *testing.T) {
	ring := newKeyring()
	revoked, key := ring.grant(t, keystore.Key{})
	issuer := issuing.New(ring.keys, issuing.Options{})
	if _, err := issuer.Revoke(t.Context(), "org_1", key.ID); err != nil {
		t.Fatal(err)
	}
	elsewhere, bound := ring.grant(t, keystore.Key{Networks: trust("10.9.0.0/16")})
	sandbox, _ := ring.grant(t, keystore.Key{Environment: keystore.Sandbox})
	o := &observed{t: t}
	api := testAPI(ring.keys, middleware.Options{Hooks: o.hooks(), Environment: keystore.Production})
	for name, tt := range map[string]struct{ token, key string }{
		"revoked":                {revoked, key.ID},
		"from another network":   {elsewhere, bound.ID},
		"of another environment": {sandbox, ""}, // its token says so, and no store was asked
		"unknown":                {keystore.Service{}.Generate(keystore.Production).Reveal(), ""},
		"live":                   {ring.issue(t), ""},
	} {
		e, _ := o.ask(api, request("GET", "/api/v1/any", tt.token, ""))
		if e.RefusedKey != tt.key || name != "live" && e.Caller != nil {
			t.Errorf("a key that is %s: got %+v, want RefusedKey %q", name, e, tt.key)
		}
	}
}

// TestEventOfTheClient: the Event tells who asked for what, without keys, for
// every refusal too.
func TestEventOfTheClient(t *testing.T) {
	ring, o := newKeyring(keystore.CacheOptions{Service: acme()}), &observed{t: t}
	token := ring.issue(t)
	options := middleware.Options{Hooks: o.hooks(), TrustedProxies: trust("192.0.2.1/32"), Service: acme()}
	log := newLogged()
	api, g := testAPI(ring.keys, options), middleware.New(ring.keys, options)
	for form, h := range map[string]http.Handler{"API": api,
		"pieces": middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()))(http.NotFoundHandler())} {
		for path, want := range map[string]string{
			"/api/v1/none":                         "/api/v1/none",
			"/api/v1/none/" + token:                "/api/v1/none/[secret]",
			"/api/v1/none/" + token[:20]:           "/api/v1/none/[secret]",
			"/api/v1/none/" + oldKey + "?a=b":      "/api/v1/none/[secret]",
			"/api/v1/" + strings.Repeat("x", 9000): "/api/v1/" + strings.Repeat("x", 8192-8) + " [and 816 bytes]",
		} {
			for _, key := range []string{token, ""} {
				r := request("GET", path, key, "", "X-Forwarded-For: 10.0.0.1", "X-Forwarded-For: 203.0.113.9",
					"User-Agent: curl/8 "+token)
				e, _ := o.ask(h, r)
				r.URL.Path, r.RemoteAddr, r.Header["X-Forwarded-For"][1] = "/", "", "" // the Event is kept
				clear(r.Header)
				if e.Path() != want || e.Agent() != "curl/8 [secret]" || e.ClientIP().String() != "203.0.113.9" {
					t.Errorf("%s, %.60s: got %q from %v, %q", form, path, e.Path(), e.ClientIP(), e.Agent())
				}
				middleware.AccessLog(log.hooks().Logger)(t.Context(), e)
				if line := log.String(); !strings.Contains(line, want) ||
					!strings.HasSuffix(line, ` client=203.0.113.9 agent="curl/8 [secret]"`+"\n") {
					t.Errorf("%s: got the line %s", path, log)
				}
				if printed := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(printed, token[9:17]) {
					t.Errorf("%s: the Event prints the key: %s", path, printed)
				}
			}
		}
	}
}

// TestEventOfAHandlersProblem: its code is known, whatever the stage says.
func TestEventOfAHandlersProblem(t *testing.T) {
	ring, o := newKeyring(), &observed{t: t}
	token := ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: o.hooks(), Idempotency: keyedOptions{Runner: replies()}})
	api.HandleFunc("POST /api/v1/taken", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "name_taken"})
	})
	api.HandleFunc("POST /api/v1/late", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		sayOK(w, r)
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "too_late"})
	})
	for _, tt := range []struct{ path, key, outcome, code string }{
		{"taken", "", "handled", "name_taken"}, {"taken", "1", "executed", "name_taken"}, {"taken", "1", "replayed", ""},
		{"late", "", "handled", ""}, {"none", "", "not_found", ""},
	} {
		line := "X-None: 1"
		if tt.key != "" {
			line = "Idempotency-Key: " + tt.key
		}
		if e, _ := o.ask(api, request("POST", "/api/v1/"+tt.path, token, "{}", line)); e.Outcome != tt.outcome ||
			e.ProblemCode != tt.code {
			t.Errorf("%+v: got the Event %+v", tt, e)
		}
	}
}

// TestAccessLog: one line for each response, with what is there to be told.
func TestAccessLog(t *testing.T) {
	user := by(t, "user_1")
	for _, tt := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{RequestID: "r1", Method: "GET", Pattern: "GET /x", Status: 200, Bytes: 2,
			Duration: time.Millisecond, Caller: user, Stage: "handler", Outcome: "handled"},
			`level=INFO msg=request request_id=r1 method=GET pattern="GET /x" path="" status=200 bytes=2 duration=1ms ` +
				`caller.subject=user_1 caller.organization=org_1 caller.environment=production ` +
				`stage=handler outcome=handled client="" agent=""`},
		{middleware.Event{Status: 499, Stage: "scope"},
			`level=INFO msg=request request_id="" method="" pattern="" path="" status=499 bytes=0 duration=0s ` +
				`stage=scope outcome="" client="" agent=""`},
		{middleware.Event{Status: 500}, `level=ERROR`},
		{middleware.Event{Status: 200, Aborted: true}, `level=ERROR * aborted=true`},
		{middleware.Event{Policy: "organization", Burst: 9, Remaining: 3}, `* policy=organization burst=9 remaining=3`},
		{middleware.Event{RefusedKey: "key_1"}, `* refused_key=key_1`},
		{middleware.Event{ProblemCode: "name_taken"}, `* problem=name_taken`},
		{middleware.Event{Units: 5}, `* units=5`},
		{middleware.Event{Waited: time.Second}, `* waited=1s`},
		{middleware.Event{Deprecated: true}, `* deprecated=true`},
		{middleware.Event{ReportedCode: "rate_limited"}, `* reported=rate_limited`},
	} {
		log := newLogged()
		middleware.AccessLog(log.hooks().Logger)(t.Context(), tt.event)
		line := log.String()
		start, end, cut := strings.Cut(tt.want, "* ")
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, start) || cut &&
			!strings.HasSuffix(line, " "+end+"\n") || !cut && strings.Contains(line, "aborted") {
			t.Errorf("%+v: got %s, want %s", tt.event, line, tt.want)
		}
	}
}

// TestAccessLogOfNobody: without a logger it writes where slog does by then.
func TestAccessLogOfNobody(t *testing.T) {
	access, log := middleware.AccessLog(nil), newLogged()
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(log.hooks().Logger)
	if access(context.Background(), middleware.Event{Status: 204}); !strings.Contains(log.String(), "status=204") {
		t.Errorf("got %q", log)
	}
}

// TestEventOfGoexit: a handler that ends its goroutine has aborted.
func TestEventOfGoexit(t *testing.T) {
	type trace struct{}
	ended := make(chan middleware.Event, 1)
	hooks := quiet()
	hooks.Observe = func(ctx context.Context, e middleware.Event) {
		if ctx.Value(trace{}) == nil {
			t.Error("Observe has not the context of the request")
		}
		ended <- e
	}
	api, token := oneRoute(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		runtime.Goexit()
	}, middleware.Options{Hooks: hooks})
	r := request("GET", "/api/v1/x", token, "")
	go serve(api, r.WithContext(context.WithValue(r.Context(), trace{}, "4bf92f35")))
	if e := <-ended; !e.Aborted {
		t.Errorf("got %+v, want it aborted", e)
	}
}

// TestKeptEventIsSmall: an Event that is kept does not hold what a client sent at
// length, and says the same of it.
func TestKeptEventIsSmall(t *testing.T) {
	const length = 1 << 20
	var kept []middleware.Event
	api := testAPI(newKeyring().keys, middleware.Options{TrustedProxies: trust("10.0.0.0/8"),
		Hooks: &middleware.Hooks{Observe: func(_ context.Context, e middleware.Event) { kept = append(kept, e) }}})
	for range 16 {
		r := request("GET", "/"+strings.Repeat("p", length), "", "")
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("User-Agent", strings.Repeat("a", length))
		r.Header.Set("X-Forwarded-For", "192.0.2.1"+strings.Repeat(", 10.0.0.2", length/10))
		serve(api, r)
	}
	before := heap()
	for _, e := range kept {
		if cut := strings.Repeat("a", 8<<10) + " [and " + strconv.Itoa(length-8<<10) + " bytes]"; e.Agent() != cut ||
			len(e.Path()) != len(cut) || e.ClientIP() != netip.MustParseAddr("192.0.2.1") {
			t.Fatalf("got the agent %.20s…, a path of %d bytes, the client %v", e.Agent(), len(e.Path()), e.ClientIP())
		}
	}
	kept = nil
	if held := before - heap(); held > length {
		t.Errorf("16 events held %d bytes", held)
	}
}

// TestEventOfAConnect: a ServeMux redirects CONNECT, and the pattern is the path
// then, which the client chooses.
func TestEventOfAConnect(t *testing.T) {
	o, mux := &observed{t: t}, http.NewServeMux()
	mux.HandleFunc("/tasks/{id}/", sayOK)
	h := middleware.New(newKeyring().keys, middleware.Options{Hooks: o.hooks()}).RequestID(mux)
	res := serve(h, request("CONNECT", "/tasks/%ff", "", ""))
	if res.StatusCode != 307 || len(o.events) != 1 || o.events[0].Pattern != "" {
		t.Errorf("got status %d and the Events %+v, want 307 and one without a pattern", res.StatusCode, o.events)
	}
}
