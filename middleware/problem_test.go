package middleware_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func TestWriteProblem(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "3")
		middleware.WriteProblem(w, r, middleware.Problem{
			Status: 409, Code: "task_done", Detail: "The task is <done>.", RequestID: "not this one", RetryAfter: 1500 * time.Millisecond,
		})
	}, middleware.Options{Hooks: quiet()})
	srv := start(t, api)
	res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
	want := problemBody{Type: "about:blank", Title: "Conflict", Status: 409, Code: "task_done", Detail: "The task is <done>.", RequestID: wantID(t, res.Response)}
	if got := res.problem(t); res.StatusCode != 409 || got.Type != want.Type || got.Title != want.Title || got.Status != want.Status ||
		got.Code != want.Code || got.Detail != want.Detail || got.RequestID != want.RequestID {
		t.Errorf("got %d %+v, want %+v", res.StatusCode, got, want)
	}
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "2", "Connection": ""} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestWriteProblemOutsideAllStages: the form is the same, without an id.
func TestWriteProblemOutsideAllStages(t *testing.T) {
	res := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 404, Code: "none"})
	}), request("GET", "/", "", ""))
	if want := `{"type":"about:blank","title":"Not Found","status":404,"code":"none"}` + "\n"; res.body != want || res.StatusCode != 404 {
		t.Errorf("got %d %q, want %q", res.StatusCode, res.body, want)
	}
}

// TestWriteProblemTooLate: a response that has begun is left alone, whatever
// stands between the handler and the stages.
func TestWriteProblemTooLate(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun")
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "late"})
	}
	for name, h := range map[string]http.HandlerFunc{
		"direct":  late,
		"foreign": func(w http.ResponseWriter, r *http.Request) { late(unwrapper{w}, r) },
		"hook": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Hook", "1")
			late(w, r)
		},
	} {
		hooks := quiet()
		if name == "hook" {
			hooks.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) {
				return "text/plain", []byte("from the hook")
			}
		}
		api, token := oneRoute(t, h, middleware.Options{Hooks: hooks, Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), h)
		srv := start(t, api)
		for _, r := range []*http.Request{get(t, srv, "/api/v1/x", token), newRequest(t, "POST", srv.URL+"/api/v1/x", token, nil)} {
			r.Header.Set("Idempotency-Key", name)
			if res := do(t, srv.Client(), r); res.StatusCode != 200 || res.body != "begun" || res.Header.Get("Retry-After") != "" {
				t.Errorf("%s %s: got %d %q", name, r.Method, res.StatusCode, res.body)
			}
		}
	}
}

// TestRetryAfterIsWholeSeconds: never 0, a fraction, a sign or a date, because
// clients raise on the one and retry at once on the other.
func TestRetryAfterIsWholeSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		-time.Second: "", 0: "", 1: "1", 300 * time.Millisecond: "1", time.Second: "1", time.Second + 1: "2",
		1500 * time.Millisecond: "2", time.Minute: "60", time.Hour - 1: "3600", 1<<63 - 1: "9223372037",
	} {
		res := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 429, RetryAfter: wait})
		}), request("GET", "/", "", ""))
		if got := res.Header.Get("Retry-After"); got != want {
			t.Errorf("%v: got %q, want %q", wait, got, want)
		}
	}
}

func FuzzProblemIsJSON(f *testing.F) {
	for _, s := range []string{"", "plain", `"quoted" \ <b>&`, "\x00\n\t\x7f", "é\u2028\ufffd", "\xff\xc0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := middleware.New(nil, middleware.Options{}).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			middleware.WriteProblem(w, r, middleware.Problem{
				Status: 403, Code: text, Detail: text, Policy: text, Missing: []scope.Name{scope.Name(text), "b"}, OriginalStatus: 201, OriginalLocation: text,
			})
		}))
		p := serve(h, request("GET", "/", "", "")).problem(t)
		marshalled, _ := json.Marshal(text)
		var want string
		json.Unmarshal(marshalled, &want)
		if p.Code != want || p.Detail != want || p.Policy != want || p.OriginalLocation != want || !slices.Equal(p.Missing, []string{want, "b"}) {
			t.Errorf("got %+v, want %q in it", p, want)
		}
	})
}

// TestProblemHook: the hook's form takes the place of ours, for the refusals of
// stages, of the mux and of handlers, and for panics; what belongs to the
// refusal is set for it.
func TestProblemHook(t *testing.T) {
	hooks := quiet()
	hooks.Problem = func(r *http.Request, p middleware.Problem) (string, []byte) {
		return "text/x-hook", []byte(p.Code + " " + p.RequestID)
	}
	ring := newKeyring()
	token := ring.issue(t)
	api := testAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/panic", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) { panic("boom") })
	api.HandleFunc("GET /api/v1/own", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
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
		if want := tt.code + " " + wantID(t, res.Response); res.StatusCode != tt.status || res.body != want || res.Header.Get("Content-Type") != "text/x-hook" || res.Header.Get(tt.header) == "" {
			t.Errorf("%s: got %d %q with %v; want %d %q and a %s", tt.path, res.StatusCode, res.body, res.Header, tt.status, want, tt.header)
		}
	}
}

// TestProblemHookThatWrites: what a hook writes into its Problem changes
// neither other refusals nor the requirement.
func TestProblemHookThatWrites(t *testing.T) {
	hooks := quiet()
	hooks.Problem = func(_ *http.Request, p middleware.Problem) (string, []byte) {
		p.Missing[0] = "changed"
		return "", nil
	}
	ring, need := newKeyring(), middleware.Require(scope.TasksWrite, scope.TasksRead)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: hooks})
	api.HandleFunc("GET /api/v1/x", need, sayOK)
	for _, token := range []string{ring.issue(t), ring.issue(t), ring.issue(t, scope.TasksRead)} {
		if res := serve(api, request("GET", "/api/v1/x", token, "")); res.problem(t).Missing[0] != "tasks:write" {
			t.Errorf("got %s", res.body)
		}
	}
	if got := need.String(); got != "tasks:write tasks:read" {
		t.Errorf("the requirement is now %q", got)
	}
}

func TestProblemHookThatLeavesItToTheDefault(t *testing.T) {
	for name, hook := range map[string]func(r *http.Request, p middleware.Problem) (string, []byte){
		"returns nothing": func(r *http.Request, p middleware.Problem) (string, []byte) { return "text/plain", nil },
		"panics":          func(r *http.Request, p middleware.Problem) (string, []byte) { panic(p) },
		"aborts":          func(r *http.Request, p middleware.Problem) (string, []byte) { panic(http.ErrAbortHandler) },
	} {
		h := quiet()
		h.Problem = hook
		api, _ := oneRoute(t, sayOK, middleware.Options{Hooks: h})
		res := serve(api, request("GET", "/api/v1/x", "", ""))
		p := res.problem(t)
		if res.StatusCode != 401 || p.Code != "api_key_missing" || p.RequestID != wantID(t, res.Response) || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s", name, res.StatusCode, res.body)
		}
	}
}

// TestAlteredProblem: an authenticator may pass on the refusal of another one
// with fields of its own, and all of them reach the client.
func TestAlteredProblem(t *testing.T) {
	keys := middleware.KeyAuthenticator(newKeyring().keys, middleware.Options{})
	for name, alter := range map[string]func(p *middleware.Problem){
		"nothing": func(p *middleware.Problem) {},
		"status":  func(p *middleware.Problem) { p.Status = 404 },
		"code":    func(p *middleware.Problem) { p.Code = "gone" },
		"detail":  func(p *middleware.Problem) { p.Detail = "Nobody is here." },
	} {
		var want middleware.Problem
		guard := middleware.New(nil, middleware.Options{Hooks: quiet(), Authenticator: middleware.AuthenticatorFunc(func(r *http.Request) (middleware.Principal, error) {
			caller, err := keys.Authenticate(r)
			want = *err.(*middleware.Problem)
			alter(&want)
			return caller, &want
		})})
		res := serve(guard.Authenticate(http.HandlerFunc(sayOK)), request("GET", "/", keystore.Service{}.Generate(keystore.Production).Reveal(), ""))
		got := res.problem(t)
		if got.Status != want.Status || got.Title != http.StatusText(want.Status) || got.Code != want.Code || got.Detail != want.Detail {
			t.Errorf("%s: got %s, want %+v", name, res.body, want)
		}
	}
}

func TestCodes(t *testing.T) {
	codes := middleware.Codes()
	for code, status := range map[string]int{
		"api_key_invalid": 401, "api_key_missing": 401, "insufficient_scope": 403, "internal": 500, "not_found": 404, "rate_limited": 429,
	} {
		if codes[code] != status {
			t.Errorf("%q: got status %d, want %d", code, codes[code], status)
		}
	}
	codes["not_found"] = 200
	if got := middleware.Codes()["not_found"]; got != 404 {
		t.Errorf("a caller has changed the codes: not_found is %d", got)
	}
}
