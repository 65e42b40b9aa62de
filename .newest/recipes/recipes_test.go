package recipes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

type build func(keystore.Store, middleware.Options, *Tasks) http.Handler

// server is a recipe that listens, with the keys that a test needs.
type server struct {
	t      *testing.T
	url    string
	client *http.Client
	tasks  Tasks
	log    bytes.Buffer // written while a request is served, read between requests
	events chan middleware.Event

	full, narrow, limited string // keys: all scopes, another scope, one request an hour
}

func start(t *testing.T, recipe build) *server { return startHTTP(t, recipe, false) }

func startHTTP(t *testing.T, recipe build, http2 bool) *server {
	s := &server{t: t, events: make(chan middleware.Event, 1)}
	keys := issuing.NewMemory()
	issuer := issuing.New(keys, issuing.Options{})
	issue := func(environment keystore.Environment, scopes ...scope.Name) string {
		secret, _, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1", Name: "test",
			Environment: environment, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Reveal()
	}
	s.full = issue(keystore.Production, scope.TasksRead, scope.TasksWrite)
	s.narrow = issue(keystore.Production, scope.AccountRead)
	s.limited = issue(keystore.Sandbox, scope.TasksRead)
	hooks := &middleware.Hooks{Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
	hooks.Observe = func(_ context.Context, e middleware.Event) {
		if !e.Nested {
			s.events <- e
		}
	}
	given := hooks.Observe
	h := recipe(keys, middleware.Options{
		RateLimit: middleware.RateLimitOptions{
			Store:        &ratelimit.Memory{},
			Organization: &ratelimit.Policy{Name: "plenty", Limit: ratelimit.MustParse("1000-S")},
			Sandbox:      &ratelimit.Policy{Name: "once", Limit: ratelimit.MustParse("1-H")},
		},
		Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(&idem.Memory{},
			idem.Options{})},
		Hooks: hooks,
	}, &s.tasks)
	if hooks.ProblemBody != nil || reflect.ValueOf(hooks.Observe).Pointer() != reflect.ValueOf(given).Pointer() ||
		hooks.Pattern != nil {
		t.Error("the recipe writes into its caller's Hooks, which another API may share")
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	s.url, s.client = srv.URL, &http.Client{Transport: transport}
	return s
}

// answer is what a client got, and the Event of it.
type answer struct {
	status int
	header http.Header
	body   string
	event  middleware.Event
}

// send sends "METHOD /path" with header lines in pairs.
func (s *server) send(route, key, body string, header ...string) answer {
	s.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text), <-s.events}
}

// member returns a member of the JSON object that the body is.
func (a answer) member(name string) string {
	var object map[string]any
	_ = json.Unmarshal([]byte(a.body), &object)
	text, _ := object[name].(string)
	return text
}

const tasksPath = "/api/v1/tasks"

// wire is what is sent to a recipe, and the codes of its refusals.
type wire struct {
	create, get, none string
	codes             map[int]string
}

var rest = &wire{"POST " + tasksPath, "GET /api/v1/tasks/7", "GET /api/v1/none", map[int]string{
	401: "api_key_missing", 403: "insufficient_scope", 404: "not_found", 429: "rate_limited", 500: "internal",
}}

var rpc = &wire{"POST " + createProcedure, "POST " + getProcedure, "POST /tasks.v1.Tasks/None", map[int]string{
	401: "unauthenticated", 403: "permission_denied", 404: "not_found", 429: "resource_exhausted", 500: "internal",
}}

// recipes is the table of all recipes.
var recipes = []struct {
	file  string
	build build
	*wire
	createPattern, getPattern string // what the Event says
	created, refused          int    // what a create gets, and one that the router's own error path refuses
}{
	{"chi.go", Chi, rest, "/api/v1/tasks", "/api/v1/tasks/{id}", 201, 422},
	{"gin.go", Gin, rest, "/api/v1/tasks", "/api/v1/tasks/:id", 201, 422},
	{"ginwrap.go", GinWrap, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id}", 201, 422},
	{"echo.go", Echo, rest, "/api/v1/tasks", "/api/v1/tasks/:id", 201, 422},
	{"echo4.go", Echo4, rest, "/api/v1/tasks", "/api/v1/tasks/:id", 201, 422},
	{"huma.go", Huma, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id}", 201, 422},
	{"oapicodegen.go", OapiCodegen, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id}", 201, 422},
	{"connect.go", Connect, rpc, "POST " + createProcedure, "POST " + getProcedure, 200, 400},
	{"gateway.go", Gateway, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id=*}", 200, 400},
	{"otelhttp.go", func(k keystore.Store, o middleware.Options, t *Tasks) http.Handler {
		return OtelHTTP(k, o, t, noop.NewTracerProvider())
	}, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id}", 201, 422},
	{"gzhttp.go", Gzip, rest, "POST /api/v1/tasks", "GET /api/v1/tasks/{id}", 201, 422},
}

func TestRecipes(t *testing.T) {
	for i := range 2 * len(recipes) {
		r, http2 := recipes[i/2], i%2 == 1
		t.Run(fmt.Sprintf("%s http2=%t", r.file, http2), func(t *testing.T) {
			s := startHTTP(t, r.build, http2)
			first := map[string]answer{} // by Idempotency-Key
			for _, tt := range []struct {
				name, route, token, title, key string
				status                         int
				pattern                        string // "?" if it does not matter
				stage, outcome                 string
			}{
				{"no API key", r.get, "", "", "", 401, "", "authenticate", "api_key_missing"},
				{"unknown path", r.none, s.full, "", "", 404, "?", "?", "?"},
				{"scope missing", r.create, s.narrow, "Call", "", 403, r.createPattern, "scope", "insufficient_scope"},
				{"read", r.get, s.full, "", "", 200, r.getPattern, "handler", "handled"},
				{"create", r.create, s.full, "Call", "a", r.created, r.createPattern, "idempotency", "executed"},
				{"create again", r.create, s.full, "Call", "a", r.created, r.createPattern, "idempotency", "replayed"},
				{"refused by the router", r.create, s.full, "", "b", r.refused, r.createPattern, "idempotency", "executed"},
				{"refused again", r.create, s.full, "", "b", r.refused, r.createPattern, "idempotency", "replayed"},
				{"panic", r.create, s.full, "panic", "", 500, r.createPattern, "recover", "internal"},
				{"panic, keyed", r.create, s.full, "panic", "c", 500, r.createPattern, "recover", "internal"},
				{"panic again", r.create, s.full, "panic", "c", 500, r.createPattern, "idempotency", "replayed"},
				{"within the limit", r.get, s.limited, "", "", 200, r.getPattern, "handler", "handled"},
				{"over the limit", r.get, s.limited, "", "", 429, "?", "rate_limit", "rate_limited"},
			} {
				var header []string
				if tt.key != "" {
					header = []string{"Idempotency-Key", tt.key}
				}
				body := ""
				if strings.HasPrefix(tt.route, "POST") {
					body = `{"title":"` + tt.title + `"}`
				}
				a := s.send(tt.route, tt.token, body, header...)

				if a.status != tt.status || a.event.Status != tt.status {
					t.Errorf("%s: got status %d, in the Event %d, want %d: %s", tt.name, a.status, a.event.Status, tt.status, a.body)
				}
				if ids := a.header["Svc-Request-Id"]; len(ids) != 1 || ids[0] == "" || ids[0] != a.event.RequestID {
					t.Errorf("%s: got the request ids %q, in the Event %q", tt.name, ids, a.event.RequestID)
				}
				got := []string{a.event.Pattern, string(a.event.Stage), a.event.Outcome}
				for i, want := range []string{tt.pattern, tt.stage, tt.outcome} {
					if want != "?" && got[i] != want {
						t.Errorf("%s: the Event has %q, want %q", tt.name, got[i], want)
					}
				}
				if code := r.codes[tt.status]; code != "" && a.member("code") != code {
					t.Errorf("%s: got the body %s, want the code %q", tt.name, a.body, code)
				}
				if tt.status < 300 && a.member("organization") != "org_1" {
					t.Errorf("%s: got %s, which is not for org_1", tt.name, a.body)
				}
				if tt.status == 429 && a.header.Get("Retry-After") != "3600" {
					t.Errorf("%s: got Retry-After %q", tt.name, a.header.Get("Retry-After"))
				}
				replayed := a.header.Get("Idempotent-Replayed") == "true"
				if want := tt.outcome == "replayed"; replayed != want {
					t.Errorf("%s: replayed is %t, want %t", tt.name, replayed, want)
				}
				if original := first[tt.key]; replayed && (a.body != original.body ||
					a.header.Get("Content-Type") != original.header.Get("Content-Type")) {
					t.Errorf("%s: got %s, want the first response, %s", tt.name, a.body, original.body)
				}
				if !replayed {
					first[tt.key] = a
				}
			}
			if got := s.tasks.runs.Load(); got != 4 {
				t.Errorf("the service ran %d times, want 4: one create, one refused, two panics", got)
			}
			log := s.log.String()
			if got := strings.Count(log, "\n"); got != 2 || strings.Count(log, "panic while serving") != 2 {
				t.Errorf("got %d lines in the log, want one for each panic:\n%s", got, log)
			}
		})
	}
}
