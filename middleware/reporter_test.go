package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// TestPanicsShowNoSecret: whichever header a key or a cookie came in, and wherever
// Recover stands, a panic with it, a part of it or the request does not bring it
// into the log, which has the place of the panic.
func TestPanicsShowNoSecret(t *testing.T) {
	ring, token := oneKey(t)
	importOld(t, ring, oldKey, "the old pepper", keystore.Production)
	service := acme()
	service.Legacy = append(service.Legacy,
		keystore.LegacyFormat{Name: "bare", Match: func(token string) bool { return len(token) == 40 }})
	bare := &keystore.Key{ID: "key_bare", Legacy: "bare", Digest: keystore.DigestOf(bareKey), Organization: "org_1",
		Environment: keystore.Production}
	if err := ring.memory.Insert(t.Context(), bare, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	log := newLogged()
	hooks := log.hooks()
	o := middleware.Options{Service: service, KeyHeader: "X-Caller", Hooks: hooks,
		Idempotency: keyedOptions{Runner: replies()}}
	g := middleware.New(ring.memory, o)
	var boom func(r *http.Request) any
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		panic(fmt.Sprintf("no session= for %+v", boom(r)))
	})
	api := apiOf(ring.memory, o, middleware.AnyCaller(), handler)
	forms := map[string]http.Handler{
		"API":                             api,
		"pieces":                          middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(handler),
		"Recover alone":                   g.Recover(handler),
		"Recover inside a foreign writer": middleware.Chain(g.RequestID, foreignWriter, g.Recover, g.Authenticate)(handler),
	}
	const session = "c2Vzc2lvbi1vZi1hZGE"
	for line, secret := range map[string]string{"X-Caller: " + token: token, "X-Caller: " + oldKey: oldKey,
		"Authorization: Bearer " + oldKey: oldKey, "X-Caller: " + bareKey: bareKey,
		"Cookie: theme=dark; session=" + session: session} {
		for how, value := range map[string]func(*http.Request) any{
			"the request":   func(r *http.Request) any { return r },
			"the cookies":   func(r *http.Request) any { return r.Cookies() },
			"the value":     func(*http.Request) any { return "bad key " + secret },
			"its bytes":     func(*http.Request) any { return []byte(secret) },
			"its beginning": func(*http.Request) any { return secret[:max(12, len(secret)/2)] },
			"its end":       func(*http.Request) any { return secret[5:] },
			"what was removed": func(r *http.Request) any {
				r.Header.Del("X-Caller")
				r.Header.Del("Authorization")
				return "bad key " + secret
			},
		} {
			if secret == bareKey && strings.HasPrefix(how, "its ") {
				continue // nothing says that it is a part of a key
			}
			for form, h := range forms {
				if form == "Recover alone" && how == "what was removed" {
					continue // no stage has seen it
				}
				boom = value
				for _, key := range []string{"X-None: 1", fmt.Sprint("Idempotency-Key: ", len(log.String()))} {
					before, lines := len(log.String()), []string{line, key}
					if secret == session {
						lines = append(lines, "X-Caller: "+token)
					}
					if res := serve(h, request("POST", "/api/v1/x", "", "{}", lines...)); res.StatusCode != 500 {
						t.Fatalf("%s, %s: got %d %s", form, line[:10], res.StatusCode, res.body)
					}
					text := log.String()[before:]
					wantNoSecret(t, form+", "+line[:10]+", "+how, text, secret)
					if !strings.Contains(text, "panic while serving") || !strings.Contains(text, "reporter_test.go") ||
						!strings.Contains(text, "no session= for") {
						t.Errorf("%s, %s, %s: got the log %s", form, line[:10], how, text)
					}
				}
			}
		}
	}
	// Keys of others, which no header of the request has.
	before := len(log.String())
	boom = func(*http.Request) any { return fmt.Errorf("cannot store %q or {%s}", oldKey2, token) }
	serve(api, request("POST", "/api/v1/x", "", "", "X-Caller: "+oldKey))
	text := log.String()[before:]
	if wantNoSecret(t, "keys of others", text, oldKey2, token); !strings.Contains(text, "cannot store") {
		t.Errorf("got the log %s", text)
	}
	// Two keys, of which neither counts, and a Problem hook that panics.
	before = len(log.String())
	hooks.ProblemBody = func(r *http.Request, _ middleware.Problem) (string, []byte) { panic(r.Header) }
	const second = "ffeeddccbbaa99887766554433221100ffeeddcc"
	serve(api, request("POST", "/api/v1/x", "", "", "X-Caller: "+bareKey, "X-Caller: "+second))
	text = log.String()[before:]
	if wantNoSecret(t, "two keys", text, bareKey, second); !strings.Contains(text, "X-Caller") {
		t.Errorf("got the log %s", text)
	}
}

// TestMethodInLogs: by its method a client can neither fill a log nor write an
// API key there.
func TestMethodInLogs(t *testing.T) {
	ring, o, log := newKeyring(keystore.CacheOptions{Service: acme()}), &observed{t: t}, newLogged()
	token := ring.issue(t)
	g := middleware.New(ring.keys, middleware.Options{Hooks: log.hooks(o.note), Service: acme()})
	handlers := map[string]http.Handler{
		"Event":  g.RequestID(http.NotFoundHandler()),
		"misuse": middleware.Chain(g.RequestID, g.Enforce(middleware.AnyCaller()))(http.NotFoundHandler()),
		"panic": middleware.Chain(g.RequestID,
			g.Recover)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })),
	}
	for method, want := range map[string]string{
		"GET": "GET", "PROPPATCH": "PROPPATCH", strings.Repeat("A", 900_000): strings.Repeat("A",
			16), token: token[:len("svc_live_")+7], oldKey: "[secret]",
	} {
		for name, h := range handlers {
			before := len(log.String())
			r := request("GET", "/", "", "")
			r.Method = method
			if e, _ := o.ask(h, r); e.Method != want {
				t.Errorf("%s: the Event has the method %.40q, want %q", name, e.Method, want)
			}
			if line := log.String()[before:]; name != "Event" && !strings.Contains(line, " method="+want+" ") {
				t.Errorf("%s: the log has not the method %q: %.200s", name, want, line)
			}
		}
	}
}

// The hooks of an API are told of a response, whatever hooks an outer Guard
// has.
func TestObserveBehindOuterHooks(t *testing.T) {
	ring, token := oneKey(t)
	for name, outer := range map[string]*middleware.Hooks{"none": nil, "a logger": quiet()} {
		o := &observed{t: t}
		api := testAPI(ring.keys, middleware.Options{Hooks: o.hooks()})
		h := middleware.New(nil, middleware.Options{Hooks: outer}).RequestID(api)
		if e, _ := o.ask(h, request("GET", "/api/v1/any", token, "")); e.Status != 200 {
			t.Errorf("outer hooks with %s: got %+v", name, e)
		}
	}
}

func TestWriteProblem(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		middleware.WriteProblem(w, r, middleware.Problem{
			Status: 409, Code: "task_done", Detail: "The task is <done>.",
			RetryAfter: 1500 * time.Millisecond,
		})
	}, middleware.Options{Hooks: quiet()})
	srv := start(t, api)
	res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
	want := problemBody{Type: "about:blank", Title: "Conflict", Status: 409, Code: "task_done",
		Detail: "The task is <done>.", RequestID: wantID(t, res.Response)}
	if got := res.problem(t); res.StatusCode != 409 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %d %+v, want %+v", res.StatusCode, got, want)
	}
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store",
		"Retry-After": "2", "Connection": ""} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestWriteProblemOutsideAllStages: the form is the same, without an id, and
// the connection of a request with a body stays open.
func TestWriteProblemOutsideAllStages(t *testing.T) {
	res := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 404, Code: "none"})
	}), request("POST", "/", "", "{}"))
	if want := `{"type":"about:blank","title":"Not Found","status":404,"code":"none"}` + "\n"; res.body != want ||
		res.StatusCode != 404 || res.Header.Get("Connection") != "" {
		t.Errorf("got %d %v %q, want %q", res.StatusCode, res.Header, res.body, want)
	}
}

// TestWriteProblemTooLate: a response that has begun is left alone, whatever
// stands between the handler and the stages.
func TestWriteProblemTooLate(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun")
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "late", RetryAfter: time.Second})
	}
	body := func(*http.Request, middleware.Problem) (string, []byte) { return "text/plain", []byte("from the hook") }
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		body   func(*http.Request, middleware.Problem) (string, []byte)
	}{
		"direct": {late, nil}, "hook": {late, body},
		"foreign": {func(w http.ResponseWriter, r *http.Request) { late(unwrapper{w}, r) }, nil},
	} {
		hooks := quiet()
		hooks.ProblemBody = row.body
		api, token := oneRoute(t, row.handle, middleware.Options{Hooks: hooks, Idempotency: keyedOptions{Runner: replies()}})
		srv := start(t, api)
		for _, method := range []string{"GET", "POST"} {
			r := newRequest(t, method, srv.URL+"/api/v1/x", token, nil)
			r.Header.Set("Idempotency-Key", name)
			a := do(t, srv.Client(), r)
			if wantAnswer(t, name+" "+method, a, 200, "begun"); a.Header.Get("Retry-After") != "" {
				t.Errorf("%s %s: got %v", name, method, a.Header)
			}
		}
	}
}

// TestProblemHook: the hook's form takes the place of ours, for the refusals of
// stages, of the mux and of handlers, and for panics; what belongs to the
// refusal is set for it.
func TestProblemHook(t *testing.T) {
	hooks := quiet()
	hooks.ProblemBody = func(r *http.Request, p middleware.Problem) (string, []byte) {
		known := middleware.CallerFrom(r.Context()) != nil // it may choose the language or form by caller
		return "text/x-hook", fmt.Append(nil, p.Code, known, " ", middleware.RequestIDFrom(r.Context()))
	}
	ring, token := oneKey(t)
	api := testAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/panic", middleware.AnyCaller(),
		func(w http.ResponseWriter, r *http.Request) { panic("boom") })
	api.HandleFunc("GET /api/v1/own", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 418, Code: "own", RetryAfter: time.Second})
	})
	tests := []struct {
		path, token string
		status      int
		code        string
		header      string
	}{
		{"/api/v1/any", "", 401, "api_key_missing", "Www-Authenticate"},
		{"/api/v1/any", "x", 401, "api_key_invalid", "Www-Authenticate"},
		{"/api/v1/account", token, 403, "insufficient_scope", "Www-Authenticate"},
		{"/api/v1/none", token, 404, "not_found", "Cache-Control"},
		{"/api/v1/account/cancel", token, 404, "not_found", "Cache-Control"},
		{"/api/v1/tasks/1/cancel", token, 405, "method_not_allowed", "Allow"},
		{"/api/v1/panic", token, 500, "internal", "Cache-Control"},
		{"/api/v1/own", token, 418, "own", "Retry-After"},
	}
	for _, tt := range tests {
		res := serve(api, request("GET", tt.path, tt.token, ""))
		want := fmt.Sprint(tt.code, tt.status != 401, " ", wantID(t, res.Response))
		if res.StatusCode != tt.status || res.body != want || res.Header.Get("Content-Type") != "text/x-hook" ||
			res.Header.Get(tt.header) == "" {
			t.Errorf("%s: got %d %q with %v; want %d %q and a %s", tt.path, res.StatusCode, res.body, res.Header, tt.status,
				want, tt.header)
		}
	}
}

// TestProblemHookThatWrites: what a hook writes into its Problem changes
// neither other refusals nor the requirement.
func TestProblemHookThatWrites(t *testing.T) {
	hooks := quiet()
	hooks.ProblemBody = func(_ *http.Request, p middleware.Problem) (string, []byte) {
		p.Missing[0] = "changed"
		return "", nil
	}
	ring, need := newKeyring(), middleware.Require(scope.TasksWrite, scope.TasksRead)
	api := apiOf(ring.keys, middleware.Options{Hooks: hooks}, need, sayOK)
	for _, token := range []string{ring.issue(t), ring.issue(t), ring.issue(t, scope.TasksRead)} {
		if res := serve(api, request("GET", "/api/v1/x", token, "")); res.problem(t).Missing[0] != "tasks:write" {
			t.Errorf("got %s", res.body)
		}
	}
}

func TestProblemHookThatLeavesItToTheDefault(t *testing.T) {
	for name, hook := range map[string]func(r *http.Request, p middleware.Problem) (string, []byte){
		"returns nothing": func(r *http.Request, p middleware.Problem) (string, []byte) { return "text/plain", nil },
		"panics":          func(r *http.Request, p middleware.Problem) (string, []byte) { panic(p) },
		"aborts":          func(r *http.Request, p middleware.Problem) (string, []byte) { panic(http.ErrAbortHandler) },
	} {
		h := quiet()
		h.ProblemBody = hook
		api, _ := oneRoute(t, sayOK, middleware.Options{Hooks: h})
		res := serve(api, request("GET", "/api/v1/x", "", ""))
		p := res.problem(t)
		if res.StatusCode != 401 || p.Code != "api_key_missing" || p.RequestID != wantID(t, res.Response) ||
			res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s", name, res.StatusCode, res.body)
		}
	}
}

// wantNoSecret checks that no eight characters in a row of a token's random
// part are in text, as they are, in hexadecimal or as numbers.
func wantNoSecret(t testing.TB, where, text string, tokens ...string) {
	t.Helper()
	for _, token := range tokens {
		random := token[len("svc_live_"):]
		for i := range len(random) - 8 {
			part := random[i : i+8]
			for _, form := range []string{part, fmt.Sprintf("%x", part), fmt.Sprintf("%X", part), fmt.Sprintf("% x", part),
				strings.Trim(fmt.Sprint([]byte(part)), "[]")} {
				if strings.Contains(text, form) {
					at := strings.Index(text, form)
					t.Errorf("%s holds %q of a key: …%s", where, part, text[max(0, at-200):at+len(form)])
					return
				}
			}
		}
	}
}

var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f"}

// TestNoSecretLeaks sends keys, good and bad, along every way that logs,
// reports or answers something.
func TestNoSecretLeaks(t *testing.T) {
	ring := newKeyring()
	live := ring.issue(t, scope.TasksWrite)
	expired, key := ring.grant(t, keystore.Key{})
	ring.expire(t, key)
	unknown := keystore.Service{}.Generate(keystore.Production).Reveal()
	mistyped := swapLast(live)
	tokens := []string{live, expired, unknown}

	dumps := newLogged()
	panics := map[string]func(r *http.Request) any{
		"text":    func(r *http.Request) any { return "boom" },
		"request": func(r *http.Request) any { return r },
		"header":  func(r *http.Request) any { return r.Header },
		"error":   func(r *http.Request) any { return fmt.Errorf("unexpected %q", r.Header["Authorization"]) },
		"value":   func(r *http.Request) any { return r.Header.Get("Authorization") },
		"bytes":   func(r *http.Request) any { return []byte(r.Header.Get("Authorization")) },
		"context": func(r *http.Request) any { return r.Context() },
		"caller":  func(r *http.Request) any { return middleware.CallerFrom(r.Context()) },
	}
	for _, handler := range []string{"text", "JSON"} {
		logs, events := newLogged(), newLogged()
		options := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
		logger := slog.New(slog.NewTextHandler(logs, options))
		if handler == "JSON" {
			logger = slog.New(slog.NewJSONHandler(logs, options))
		}
		hooks := &middleware.Hooks{Logger: logger, Observe: func(ctx context.Context, e middleware.Event) {
			for _, verb := range verbs {
				fmt.Fprintf(events, verb+" "+verb+"\n", e, ctx)
			}
		}}
		down := false
		store := lookupFunc(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if down {
				return nil, errors.New("down")
			}
			return ring.keys.Lookup(ctx, d)
		})
		api := testAPI(store, middleware.Options{Hooks: hooks,
			Idempotency: keyedOptions{Runner: replies()}, Failures: ratelimit.MustParse("1000-S"),
			RateLimit: middleware.PerOrganization("1000-S")})
		for name, value := range panics {
			api.HandleFunc("GET /api/v1/panic/"+name, middleware.AnyCaller(),
				func(w http.ResponseWriter, r *http.Request) { panic(value(r)) })
			api.HandleFunc("POST /api/v1/panic/"+name, middleware.AnyCaller(),
				func(w http.ResponseWriter, r *http.Request) { panic(value(r)) })
		}
		api.HandleFunc("GET /api/v1/twice", middleware.AnyCaller(), superfluous)
		api.HandleFunc("GET /api/v1/dump", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
			p := middleware.CallerFrom(r.Context())
			for _, verb := range verbs {
				fmt.Fprintf(dumps, verb+"\n"+verb+"\n"+verb+"\n", r.Context(), p, w)
			}
			logger.Info("dump", "context", r.Context(), "caller", p)
			marshalled, _ := json.Marshal(r.Context())
			dumps.Write(marshalled)
		})
		api.Handle("POST /api/v1/misuse", middleware.AnyCaller(),
			middleware.New(nil, middleware.Options{}).Enforce(middleware.AnyCaller())(sayOK))
		srv := start(t, api, func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(logs, "", 0) })

		paths := []string{"/api/v1/any", "/api/v1/account", "/api/v1/none", "/api/v1/twice", "/api/v1/misuse", "/api/v1/dump"}
		for name := range panics {
			paths = append(paths, "/api/v1/panic/"+name)
		}
		for _, down = range []bool{false, true} {
			for _, path := range paths {
				for i, token := range []string{live, expired, unknown, mistyped, "Bearer " + live, live + "\xe9"} {
					for _, method := range []string{"GET", "POST"} {
						r := newRequest(t, method, srv.URL+path, "", nil)
						r.Header.Set("Authorization", "Bearer "+token)
						r.Header.Set("Idempotency-Key", fmt.Sprint(path, i))
						res, err := srv.Client().Do(r)
						if err != nil {
							t.Fatalf("%s: %v", path, err)
						}
						var all strings.Builder
						res.Header.Write(&all)
						io.Copy(&all, res.Body)
						res.Body.Close()
						wantNoSecret(t, method+" "+path, all.String(), tokens...)
					}
				}
			}
		}
		srv.Close()
		if got := logs.String(); !strings.Contains(got, "panic while serving") ||
			!strings.Contains(got, "could not be checked") || !strings.Contains(got, "superfluous") ||
			!strings.Contains(got, "Enforce stands inside") {
			t.Errorf("the test does not reach what it is about: %s", got)
		}
		wantNoSecret(t, "the "+handler+" log", logs.String(), tokens...)
		wantNoSecret(t, "an event", events.String(), tokens...)
	}
	if dumps.String() == "" {
		t.Error("nothing was dumped")
	}
	wantNoSecret(t, "a dump", dumps.String(), tokens...)
}

// An error of an authenticator that quotes the credentials is in the log
// without them.
func TestAuthenticatorErrorWithCredentials(t *testing.T) {
	log := newLogged()
	introspect := func(r *http.Request) (*keystore.Caller, error) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		return nil, fmt.Errorf("Get %q: %w", "https://login.example/introspect?token="+token, context.DeadlineExceeded)
	}
	for _, keys := range []keystore.Store{nil, issuing.NewMemory()} {
		api := testAPI(keys, middleware.Options{Hooks: log.hooks(), Authenticate: introspect})
		wantRefusal(t, "introspection is down", serve(api, request("GET", "/api/v1/any", jwt, "")), 503,
			"key_store_unavailable", "")
	}
	if text := log.String(); strings.Contains(text, jwt) || strings.Count(text, "introspect?token=[secret]") != 2 ||
		!strings.Contains(text, "deadline exceeded") {
		t.Errorf("got the log %s", text)
	}
}

// A key that a client has put into its path is in no line about that request.
func TestKeyInThePath(t *testing.T) {
	ring, log := newKeyring(keystore.CacheOptions{Service: acme()}), newLogged()
	o := middleware.Options{Hooks: log.hooks(), Service: acme(), Idempotency: keyedOptions{Runner: replies()}}
	api := middleware.NewAPI(ring.keys, o)
	var late http.ResponseWriter
	for path, h := range map[string]http.HandlerFunc{
		"panic":  func(http.ResponseWriter, *http.Request) { panic("boom") },
		"misuse": func(w http.ResponseWriter, r *http.Request) { api.ServeHTTP(w, r) },
		"late":   func(w http.ResponseWriter, _ *http.Request) { late = w },
		"bypassed": func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(writerKey{}).(http.ResponseWriter).WriteHeader(201)
		},
	} {
		api.HandleFunc("POST /api/v1/"+path+"/{key}", middleware.AnyCaller(), h)
	}
	token := ring.issue(t)
	for _, path := range []string{"panic", "misuse", "late", "bypassed"} {
		for _, key := range []string{token, oldKey} {
			r, w := request("POST", "/api/v1/"+path+"/"+key, token, "{}", "Idempotency-Key: "+path+key[:5]),
				httptest.NewRecorder()
			middleware.New(nil, o).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, w)))
			})).ServeHTTP(w, r)
			if late != nil {
				late.WriteHeader(422)
				late = nil
			}
		}
		want := 2
		if path == "late" {
			want++ // the warning of an empty response
		}
		if got := strings.Count(log.String(), "path=/api/v1/"+path+"/[secret]"); got != want {
			t.Errorf("%s: got %d lines about the request, want %d: %s", path, got, want, log)
		}
	}
	wantNoSecret(t, "the log", log.String(), token, oldKey)
}

type writerKey struct{}

// TestHooksOfTheStageOutside: a stage without hooks uses those of the stage
// outside it, also after one inside it that has its own, which uses these.
func TestHooksOfTheStageOutside(t *testing.T) {
	outer, inner := newLogged(), newLogged()
	recovers := func(hooks *middleware.Hooks, next http.HandlerFunc) http.Handler {
		return middleware.New(nil, middleware.Options{Hooks: hooks}).Recover(next)
	}
	boom := func(http.ResponseWriter, *http.Request) { panic("boom") }
	id := middleware.New(nil, middleware.Options{Hooks: outer.hooks()}).RequestID
	for i, h := range []http.Handler{
		recovers(nil, boom), recovers(inner.hooks(), boom),
		recovers(nil, func(w http.ResponseWriter, r *http.Request) {
			recovers(inner.hooks(), func(http.ResponseWriter, *http.Request) {}).ServeHTTP(w, r)
			panic("boom")
		}),
	} {
		serve(id(h), request("GET", "/", "", ""))
		want := [][2]int{{1, 0}, {1, 1}, {2, 1}}[i]
		if got := [2]int{strings.Count(outer.String(), "\n"), strings.Count(inner.String(), "\n")}; got != want {
			t.Errorf("panic %d: got %d lines outside and inside, want %d", i+1, got, want)
		}
	}
}

// TestOutageLines: one line a second, which counts those left out.
func TestOutageLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLogged()
		api := testAPI(lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) {
			return nil, errors.New("down")
		}), middleware.Options{Hooks: log.hooks()})
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		for _, wait := range []time.Duration{0, 0, time.Second - 1, 1, time.Second} {
			time.Sleep(wait) // in the bubble
			serve(api, request("GET", "/api/v1/any", token, ""))
		}
		var unlogged []string
		for _, line := range strings.Split(log.String(), "unlogged=")[1:] {
			unlogged = append(unlogged, line[:1])
		}
		if got := strings.Join(unlogged, " "); got != "0 2 0" {
			t.Errorf("got lines that count %q, want \"0 2 0\"", got)
		}
	})
}

// TestProblemHookThatAsksForTheDefault: the hook may write the default to a
// recorder and change it. It is not called again for that.
func TestProblemHookThatAsksForTheDefault(t *testing.T) {
	calls := 0
	hooks := quiet()
	hooks.ProblemBody = func(r *http.Request, p middleware.Problem) (string, []byte) {
		if calls++; calls > 1 {
			return "", nil
		}
		rec := httptest.NewRecorder()
		middleware.WriteProblem(struct{ http.ResponseWriter }{rec}, r, p)
		return "application/json", bytes.ReplaceAll(rec.Body.Bytes(), []byte("credentials were"), []byte("token was"))
	}
	api := middleware.NewAPI(newKeyring().keys, middleware.Options{Hooks: hooks})
	if res := serve(api, request("GET", "/api/v1/x", "", "")); res.StatusCode != 401 || calls != 1 ||
		!strings.Contains(res.body, "No token was sent") {
		t.Errorf("got %d %s after %d calls of the hook", res.StatusCode, res.body, calls)
	}
}

// router is a router that tells the pattern by a function and in a context
// value, as chi does. It answers /none by itself.
type router struct{ h http.Handler }

type routed struct{ pattern string }

type routedKey struct{}

func patternOf(r *http.Request) string {
	if route, ok := r.Context().Value(routedKey{}).(*routed); ok {
		return route.pattern
	}
	return ""
}

func (x router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, _ := r.Context().Value(routedKey{}).(*routed)
	if route == nil { // stages outside have not asked for it
		route = new(routed)
		r = r.WithContext(context.WithValue(r.Context(), routedKey{}, route))
	}
	if strings.HasSuffix(r.URL.Path, "/none") {
		http.NotFound(w, r)
		return
	}
	route.pattern = "/tasks/{id}"
	x.h.ServeHTTP(w, r)
}

// mounted puts the value of a router into the context outside the stages.
func mounted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), routedKey{}, new(routed))))
	})
}

// TestPattern: the Event has the pattern of the route, whoever found the route.
func TestPattern(t *testing.T) {
	ring, token := oneKey(t)
	for _, tt := range []struct {
		name  string
		build func(g *middleware.Guard) http.Handler
		path  string
		hook  func(*http.Request) string
		want  string
	}{
		{"Enforce on the route", func(g *middleware.Guard) http.Handler {
			return middleware.Chain(g.RequestID, g.Authenticate)(router{g.Enforce(middleware.AnyCaller())(sayOK)})
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"found when the response ends", func(g *middleware.Guard) http.Handler {
			return mounted(middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()))(router{sayOK}))
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"asked again, behind a ServeMux outside", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/", middleware.Chain(g.RequestID, g.Authenticate,
				g.Enforce(middleware.AnyCaller()))(router{sayOK}))
			return mounted(mux)
		}, "/tasks/1", patternOf, "/tasks/{id}"},
		{"an unknown path behind a ServeMux outside", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/", middleware.Chain(g.RequestID, g.Authenticate)(router{sayOK}))
			return mounted(mux)
		}, "/tasks/none", patternOf, "/tasks/"},
		{"an unknown path", func(g *middleware.Guard) http.Handler {
			return mounted(middleware.Chain(g.RequestID, g.Authenticate)(router{sayOK}))
		}, "/none", patternOf, ""},
		{"a ServeMux without the hook", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.Enforce(middleware.AnyCaller())(sayOK))
			return middleware.Chain(g.RequestID, g.Authenticate)(mux)
		}, "/tasks/1", nil, "/tasks/{task}"},
		{"a ServeMux behind a copy of the request", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.Enforce(middleware.AnyCaller())(sayOK))
			return middleware.Chain(g.RequestID, g.Authenticate)(mounted(mux))
		}, "/tasks/1", nil, "/tasks/{task}"},
		{"a hook that knows nothing", func(g *middleware.Guard) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/tasks/{task}", g.Enforce(middleware.AnyCaller())(sayOK))
			return middleware.Chain(g.RequestID, g.Authenticate)(mux)
		}, "/tasks/1", func(*http.Request) string { return "" }, "/tasks/{task}"},
		{
			"an unknown path of an API", func(*middleware.Guard) http.Handler { return nil }, "/api/v1/none",
			func(*http.Request) string { return "/api/*" }, "/api/*",
		},
		{"an API, whose mux knows it", func(*middleware.Guard) http.Handler { return nil }, "/api/v1/tasks/1",
			func(*http.Request) string { return "wrong" }, "GET /api/v1/tasks/{task}"},
	} {
		watched := &observed{t: t}
		hooks := watched.hooks()
		hooks.Pattern = tt.hook
		o := middleware.Options{Hooks: hooks}
		h := tt.build(middleware.New(ring.keys, o))
		if h == nil {
			api := middleware.NewAPI(ring.keys, o)
			api.HandleFunc("GET /api/v1/tasks/{task}", middleware.AnyCaller(), sayOK)
			h = api
		}
		if e, _ := watched.ask(h, request("GET", tt.path, token, "")); e.Pattern != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, e.Pattern, tt.want)
		}
	}
}

// TestPatternIsAskedForTheEventAlone: once it has answered it is not asked
// again, and never where nobody observes.
func TestPatternIsAskedForTheEventAlone(t *testing.T) {
	ring, token := oneKey(t)
	for _, tt := range []struct {
		name    string
		answers string
		observe bool
		calls   int
	}{{"answers", "/x", true, 1}, {"does not", "", true, 2}, {"nobody observes", "/x", false, 0}} {
		calls := 0
		hooks := quiet()
		hooks.Pattern = func(*http.Request) string { calls++; return tt.answers }
		if tt.observe {
			hooks.Observe = func(context.Context, middleware.Event) {}
		}
		g := middleware.New(ring.keys, middleware.Options{Hooks: hooks})
		serve(middleware.Chain(g.RequestID, g.Authenticate, g.Enforce(middleware.AnyCaller()))(sayOK),
			request("GET", "/", token, ""))
		if calls != tt.calls {
			t.Errorf("%s: asked %d times, want %d", tt.name, calls, tt.calls)
		}
	}
}

// TestPanickingHooks: a hook that watches cannot spoil a response, nor leave its
// key claimed, and of one that writes a body the default takes the place. The log
// tells of it, without the key.
func TestPanickingHooks(t *testing.T) {
	ring, token := oneKey(t)
	for name, row := range map[string]struct {
		set    func(*middleware.Hooks)
		handle http.HandlerFunc
		status int
	}{
		"Pattern": {func(h *middleware.Hooks) {
			h.Observe = func(context.Context, middleware.Event) {}
			h.Pattern = func(r *http.Request) string { panic("boom " + r.Header.Get("Authorization")) }
		}, sayOK, 200},
		"Observe": {func(h *middleware.Hooks) {
			h.Observe = func(context.Context, middleware.Event) { panic("boom " + token) }
		}, sayOK, 200},
		"ProblemBody": {func(h *middleware.Hooks) {
			h.ProblemBody = func(*http.Request, middleware.Problem) (string, []byte) { panic("boom " + token) }
		}, func(http.ResponseWriter, *http.Request) { panic("a bug") }, 500},
	} {
		log := newLogged()
		hooks := log.hooks()
		row.set(hooks)
		o := middleware.Options{Hooks: hooks, Idempotency: keyedOptions{Runner: replies(idem.Options{Wait: -1})}}
		for form, h := range bothForms(ring.keys, o, middleware.AnyCaller(), row.handle) {
			before := len(log.String())
			srv := start(t, h) // a panic that got out would cut the connection
			first, again := do(t, srv.Client(), keyedRequest(t, srv.URL+"/api/v1/x", token, form)),
				do(t, srv.Client(), keyedRequest(t, srv.URL+"/api/v1/x", token, form))
			if first.StatusCode != row.status || again.StatusCode != row.status || !again.replayed() ||
				again.body != first.body {
				t.Errorf("%s, %s: got %d %s, then %d %s", name, form, first.StatusCode, first.body, again.StatusCode, again.body)
			}
			if name == "Pattern" && form == "API" {
				continue // it is not asked: the mux knows
			}
			if got := log.String()[before:]; !strings.Contains(got, "panic while serving") || !strings.Contains(got, "boom") ||
				strings.Contains(got, token) {
				t.Errorf("%s, %s: got the log %s", name, form, got)
			}
		}
	}
}

// TestInnerPatternOutside: what stands outside an outer mux, such as otelhttp,
// reads the inner pattern at the end, as with a stock mux inside. What stands
// between the two reads the outer one until then.
func TestInnerPatternOutside(t *testing.T) {
	ring, token := oneKey(t)
	var events []middleware.Event
	hooks := quiet(func(e middleware.Event) { events = append(events, e) })
	o := middleware.Options{Hooks: hooks, Idempotency: keyedOptions{Runner: replies()}}
	boom := func(http.ResponseWriter, *http.Request) { panic("boom") }
	stock, api, g := http.NewServeMux(), middleware.NewAPI(ring.keys, o), middleware.New(ring.keys, o)
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /api/v1/a/{id}": sayOK, "POST /api/v1/a/{id}": sayOK, "PUT /api/v1/a/{id}": boom, "GET /api/v1/sub/": sayOK,
	} {
		stock.HandleFunc(pattern, h)
		api.HandleFunc(pattern, middleware.AnyCaller(), h)
	}
	for name, inner := range map[string]http.Handler{
		"stock": middleware.Chain(g.Recover, g.Authenticate)(stock), "API": api,
		"pieces": middleware.Chain(g.RequestID, g.Recover, g.Authenticate, g.Enforce(middleware.AnyCaller()),
			g.Idempotent)(stock),
	} {
		for _, tt := range []struct{ method, path, token, key, want string }{
			{"GET", "/api/v1/a/1", token, "", "GET /api/v1/a/{id}"},
			{"HEAD", "/api/v1/a/1", token, "", "GET /api/v1/a/{id}"},
			{"POST", "/api/v1/a/1", token, "k", "POST /api/v1/a/{id}"},
			{"PUT", "/api/v1/a/1", token, "", "PUT /api/v1/a/{id}"},
			{"GET", "/api/v1/sub", token, "", "GET /api/v1/sub/"}, // redirected
			{"GET", "/api/v1/none", token, "", "/api/v1/"},
			{"GET", "/api/v1/a/1", "", "", "/api/v1/"},
		} {
			var outside *http.Request
			between, mux := "", http.NewServeMux()
			mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, r *http.Request) {
				defer func() { between = r.Pattern }()
				inner.ServeHTTP(w, r.WithContext(r.Context()))
			})
			events = nil
			otel := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outside = r
				mux.ServeHTTP(w, r)
			})
			line := "X-None: 1"
			if tt.key != "" {
				line = "Idempotency-Key: " + tt.key
			}
			serve(otel, request(tt.method, tt.path, tt.token, "", line+name))
			if between != "/api/v1/" {
				t.Errorf("%s, %s %s: behind a copy got %q", name, tt.method, tt.path, between)
			}
			mux = http.NewServeMux()
			mux.Handle("/api/v1/", inner)
			serve(otel, request(tt.method, tt.path, tt.token, "", line+name+"2"))
			if outside.Pattern != tt.want {
				t.Errorf("%s, %s %s: got %q outside, want %q", name, tt.method, tt.path, outside.Pattern, tt.want)
			}
			if name == "stock" {
				continue // no Event
			}
			want := tt.want
			if name == "API" && tt.path == "/api/v1/none" {
				want = ""
			}
			if e := events[len(events)-1]; len(events) != 2 || e.Pattern != want {
				t.Errorf("%s, %s %s: got the Events %+v, want the pattern %q", name, tt.method, tt.path, events, want)
			}
		}
	}
}

// TestPanicStack: the stack has no arguments, which may be bytes of a secret,
// and no client can have it left out.
func TestPanicStack(t *testing.T) {
	log := newLogged()
	g := middleware.New(nil, middleware.Options{Hooks: log.hooks()})
	h := g.Recover(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed([16]byte([]byte(r.Header.Get("Authorization")[7:])))
	}))
	for _, cookie := range []string{"a=b", "a=reporter_test.go; b=goroutine", "a=" + strings.Repeat("x", 1<<20)} {
		before := len(log.String())
		serve(h, request("GET", "/", "0123456789abcdef", "", "Cookie: "+cookie))
		got := log.String()[before:]
		if !strings.Contains(got, "middleware_test.passed(...)") || !strings.Contains(got, "reporter_test.go:") ||
			strings.Contains(got, "0x31, 0x32") || strings.Contains(got, "boom of 48") {
			t.Errorf("Cookie of %d bytes: got %s", len(cookie), got)
		}
		if long := len(cookie) > 1<<20; strings.Contains(got, "string: [left out") != long ||
			strings.Contains(got, "boom") == long {
			t.Errorf("Cookie of %d bytes: got %s", len(cookie), got)
		}
	}
}

// TestPanicLongNames: what a header with a long name carries is a secret,
// without a look at the name: a megabyte of it would take a tenth of a second.
func TestPanicLongNames(t *testing.T) {
	log := newLogged()
	h := middleware.New(nil, middleware.Options{Hooks: log.hooks()}).Recover(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { panic("boom of 0123456789 and 9876543210") }))
	r := request("GET", "/", "", "")
	r.Header["X-"+strings.Repeat("A", 900<<10)] = []string{"0123456789"}
	r.Header["X-Plain"] = []string{"9876543210"}
	serve(h, r)
	if got := log.String(); !strings.Contains(got, "boom of [secret] and 9876543210") {
		t.Errorf("got %.500s, want the value of the long name left out", got)
	}
}

//go:noinline
func passed(b [16]byte) { panic("boom of " + fmt.Sprint(b[:8])) }

// TestPrintsNoSecret: whatever fmt does with a value that this package hands
// out, by itself or as a field, shows nothing that the client sent.
func TestPrintsNoSecret(t *testing.T) {
	ring, token := oneKey(t)
	print := func(what string, value any) {
		for _, verb := range verbs {
			for _, v := range []any{value, struct{ Field any }{value}, struct{ field any }{value}, &struct{ field any }{value}} {
				wantNoSecret(t, what+" by "+verb, fmt.Sprintf(verb, v), token)
			}
		}
	}
	hooks := newLogged().hooks()
	hooks.Observe = func(_ context.Context, e middleware.Event) { print("Event", e); print("*Event", &e) }
	options := middleware.Options{Hooks: hooks, KeyHeader: "X-Api-Key", RateLimit: middleware.PerOrganization("99-S"),
		Idempotency: keyedOptions{Runner: replies()}}
	api, guard := testAPI(ring.keys, options), middleware.New(ring.keys, options)
	handler := func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		for what, value := range map[string]any{"the writer": w, "the context": r.Context(), "a context of it": ctx,
			"Caller": middleware.CallerFrom(ctx), "Execution": middleware.ExecutionFrom(ctx), "API": api, "Guard": guard,
			"Options": guard.Options(), "a controller": http.NewResponseController(w),
			"WithoutCancel": context.WithoutCancel(ctx)} {
			print(what, value)
		}
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "taken", Detail: "taken"})
	}
	api.HandleFunc("GET /api/v1/{any...}", middleware.AnyCaller(), handler)
	api.HandleFunc("POST /api/v1/{any...}", middleware.AnyCaller(), handler)
	stack := middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit,
		guard.Enforce(middleware.AnyCaller()), guard.Idempotent)(http.HandlerFunc(handler))
	for _, h := range []http.Handler{api, stack} {
		for _, method := range []string{"GET", "POST"} {
			for _, header := range []string{"Authorization: Bearer " + token, "X-Api-Key: " + token} {
				serve(h, request(method, "/api/v1/"+token+"?a="+token, "", "body", header, "Idempotency-Key: "+method+header[:5],
					"User-Agent: "+token, "X-Forwarded-For: "+token))
			}
		}
	}
}
