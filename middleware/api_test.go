package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestRouting: the pattern that matched decides, never the text of the URL.
// Without a key, every target is a 401 before anything else is said about it.
func TestRouting(t *testing.T) {
	ring := newKeyring()
	all, none := ring.issue(t, scope.AccountRead, scope.TasksRead), ring.issue(t)
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	say := func(what string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, what, r.PathValue("id")) }
	}
	api.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead), say("account"))
	api.Handle("GET /api/v1/tasks/{id}", middleware.Require(scope.TasksRead), say("task "))
	api.Handle("GET /api/v1/tasks/{id}/", middleware.Require(scope.TasksRead), say("below "))
	api.Handle("GET /api/v1/open", middleware.AnyCaller(), say("open"))
	srv := start(t, api)
	tests := []struct {
		target    string // method and request target as on the wire
		all, none int    // statuses of keys with all and with no scopes
		body      string
	}{
		{"GET /api/v1/account", 200, 403, "account"},
		{"HEAD /api/v1/account", 200, 403, ""},
		{"GET http://other.example/api/v1/account", 200, 403, "account"},
		{"GET /api/v1/account?x=/api/v1/open", 200, 403, "account"},
		{"GET //api/v1/account", 307, 307, ""},
		{"GET /api/v1//account", 307, 307, ""},
		{"GET /api/v1/x/../account", 307, 307, ""},
		{"GET /api/v1/open/../account", 307, 307, ""},
		{"GET /api/v1/account/", 404, 404, ""},
		{"GET /api/v1/ACCOUNT", 404, 404, ""},
		{"GET /api/v1/%61ccount", 200, 403, "account"},
		{"GET /api/v1%2Faccount", 404, 404, ""},
		{"GET /api/v1/tasks/1", 200, 403, "task 1"},
		{"GET /api/v1/tasks/1%2F2", 200, 403, "task 1/2"},
		{"GET /api/v1/tasks/..%2Faccount", 200, 403, "task ../account"},
		{"GET /api/v1/tasks/1/", 200, 403, "below 1"},
		{"GET /api/v1/tasks/1/deep", 200, 403, "below 1"},
		{"POST /api/v1/account", 405, 405, ""},
		{"OPTIONS /api/v1/account", 405, 405, ""},
		{"CONNECT /api/v1/account", 405, 405, ""},
		{"BREW /api/v1/account", 405, 405, ""},
		{"get /api/v1/account", 405, 405, ""},
		{"GET /", 404, 404, ""},
		{"GET /api/v1", 404, 404, ""},
		{"GET /favicon.ico", 404, 404, ""},
		{"GET /api/v1/open", 200, 200, "open"},
	}
	for _, tt := range tests {
		method, _, _ := strings.Cut(tt.target, " ")
		for _, who := range []struct {
			name, line string
			want       int
		}{
			{"nobody", "", 401},
			{"a wrong key", "Authorization: Bearer " + swapLast(all) + "\r\n", 401},
			{"a key with all scopes", "Authorization: Bearer " + all + "\r\n", tt.all},
			{"a key with none", "Authorization: Bearer " + none + "\r\n", tt.none},
		} {
			c := dial(t, srv)
			c.send(tt.target + " HTTP/1.1\r\nHost: a\r\n" + who.line + "\r\n")
			res := c.next(method)
			if wantID(t, res.Response); res.StatusCode != who.want || who.want == 200 && res.body != tt.body {
				t.Errorf("%s by %s: got %d %q, want %d %q", tt.target, who.name, res.StatusCode, res.body, who.want, tt.body)
			}
			if method == "HEAD" {
				continue
			}
			switch who.want {
			case 404:
				wantRefusal(t, tt.target, res, 404, "not_found", "")
			case 405:
				wantRefusal(t, tt.target, res, 405, "method_not_allowed", "")
				if got := res.Header.Get("Allow"); got != "GET, HEAD" {
					t.Errorf("%s: got Allow %q", tt.target, got)
				}
			}
		}
	}
}

// TestAnswersOfHandlersAreTheirs: only the mux's own 404 and 405 are replaced.
func TestAnswersOfHandlersAreTheirs(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"404 page not found\n": http.NotFound,
		"no such task":         steps("404", "no such task"), "not that": steps("405", "not that"),
		"inner": func(w http.ResponseWriter, r *http.Request) {
			http.NewServeMux().ServeHTTP(httptest.NewRecorder(), r)
			io.WriteString(w, "inner")
		},
	} {
		api, token := oneRoute(t, h, middleware.Options{Hooks: quiet()})
		if res := serve(api, request("GET", "/api/v1/x", token, "")); res.body != name {
			t.Errorf("got %d %q, want %q", res.StatusCode, res.body, name)
		}
	}
	// A mux of the handler's own answers for itself.
	inner := http.NewServeMux()
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: quiet()})
	api.Handle("GET /api/v1/sub/", middleware.AnyCaller(), http.StripPrefix("/api/v1/sub", inner))
	if res := serve(api, request("GET", "/api/v1/sub/none", ring.issue(t), "")); res.StatusCode != 404 ||
		res.body != "404 page not found\n" {
		t.Errorf("got %d %q", res.StatusCode, res.body)
	}
}

func TestRegistrationMistakes(t *testing.T) {
	ring := newKeyring()
	ok, any := sayOK, middleware.AnyCaller()
	tests := []struct {
		pattern string
		need    middleware.Requirement
		h       http.Handler
		want    string
	}{
		{"/api/v1/x", any, ok, `API.Handle("/api/v1/x"): the pattern names no method; write it as "GET /api/v1/…"`},
		{"", any, ok, "names no method"},
		{"GET", any, ok, "names no method"},
		{"GET ", any, ok, "not under /api/v1"},
		{" /api/v1/x", any, ok, "names no method"},
		{"example.com/api/v1/x", any, ok, "names no method"},
		{"GET /x", any, ok, "not under /api/v1"},
		{"GET /", any, ok, "not under /api/v1"},
		{"GET /api/v1x", any, ok, "not under /api/v1"},
		{"GET /api/v2/x", any, ok, "not under /api/v1"},
		{"GET /api/{version}/x", any, ok, "not under /api/v1"},
		{"GET example.com/x", any, ok, "not under /api/v1"},
		{"GET api/v1/x", any, ok, "not under /api/v1"},
		{"GET /api/v1/../x", any, ok, "unclean path"},
		{"GET /api/v1/{id", any, ok, "bad wildcard"},
		{"GET /api/v1/taken", any, ok, "conflicts with pattern"},
		{"GET /api/v1/x", any, nil, "the handler is nil"},
		{"GET /api/v1/x", any, http.HandlerFunc(nil), "the handler is nil"},
		{"GET /api/v1/x", any, (*http.ServeMux)(nil), "the handler is nil"},
		{"GET /api/v1/x", middleware.Requirement{}, ok, "the requirement is empty"},
		{"GET /api/v1/x", middleware.Require("task:read"), ok, `did you mean "tasks:read"`},
	}
	for _, tt := range tests {
		api := middleware.NewAPI(ring.keys, middleware.Options{})
		api.Handle("GET /api/v1/taken", any, ok)
		wantPanic(t, tt.want, func() { api.Handle(tt.pattern, tt.need, tt.h) })
		if got := len(api.Routes()); got != 1 {
			t.Errorf("%q: got %d routes, want the one from before", tt.pattern, got)
		}
	}
	wantPanic(t, "the handler is nil",
		func() { middleware.NewAPI(ring.keys, middleware.Options{}).HandleFunc("GET /api/v1/x", any, nil) })
}

// TestRegisteredTwice: the panic names both callers of Handle.
func TestRegisteredTwice(t *testing.T) {
	api := middleware.NewAPI(newKeyring().keys, middleware.Options{})
	api.Handle("GET /api/v1/a", middleware.AnyCaller(), sayOK)
	for pattern, other := range map[string]string{"GET /api/v1/a": "GET /api/v1/a",
		"GET /api/v1/{b}/c": "GET /api/v1/b/{c}"} {
		if other != pattern {
			api.HandleFunc(other, middleware.AnyCaller(), sayOK)
		}
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				places := regexp.MustCompile(`registered at [^)]*api_test\.go:(\d+)`).FindAllStringSubmatch(text, -1)
				if len(places) != 2 || places[0][1] == places[1][1] || strings.Contains(text, "/api.go") {
					t.Errorf("got %s, want the places in this test", text)
				}
			}()
			api.HandleFunc(pattern, middleware.AnyCaller(), sayOK)
		}()
	}
}

// TestNames: the service's own abbreviation, the base and the scopes come from
// one place each.
func TestNames(t *testing.T) {
	registry := scope.New(scope.Definition{Name: "cars:drive", Meaning: "Drive."})
	memory := issuing.NewMemory()
	service := keystore.Service{Prefix: "acme", Scopes: registry}
	token := service.Generate(keystore.Sandbox).Reveal()
	key := &keystore.Key{ID: "key_1", Organization: "o", Environment: keystore.Sandbox, Digest: keystore.DigestOf(token),
		Scopes: []scope.Name{"cars:drive"}}
	if err := memory.Insert(t.Context(), key, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	for base, path := range map[string]string{"/": "/cars", "/v7/": "/v7/cars", "/v7": "/v7/cars"} {
		api := middleware.NewAPI(memory, middleware.Options{
			Base: base, Service: service, Hooks: quiet(), RequestIDHeader: "Acme-Request-Id",
		})
		api.HandleFunc("GET "+path, middleware.Require("cars:drive"), sayOK)
		res := serve(api, request("GET", path, token, ""))
		if res.StatusCode != 200 || res.Header.Get("Acme-Request-Id") == "" || res.Header.Get(idHeader) != "" {
			t.Errorf("%s: got %d %v", base, res.StatusCode, res.Header)
		}
		other := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
		if res := serve(api, request("GET", path, other, "")); res.StatusCode != 401 ||
			!strings.Contains(res.problem(t).Detail, "prefix") {
			t.Errorf("%s: got %d %s", base, res.StatusCode, res.body)
		}
	}
}

func TestRoutes(t *testing.T) {
	api := middleware.NewAPI(issuing.NewMemory(), with(keyedOptions{Runner: replies()}))
	own := middleware.RouteOptions{Idempotency: keyedOptions{Runner: replies(), Methods: []string{"PUT"}, Required: true}}
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), sayOK)
	api.HandleFunc("GET \t api.example/api/v1/tasks/{id}", middleware.RequireAny(scope.TasksRead, scope.TasksWrite), sayOK)
	api.Handle("PUT /api/v1/tasks/{id}", middleware.AnyCaller(), sayOK, own)
	var got []string
	for _, r := range api.Routes() {
		got = append(got, fmt.Sprintf("%s %s needs %s, any %v, %v, %v", r.Method, r.Path, r.Scopes, r.AnyOf,
			!r.Options.Idempotency.Off, r.Options.Idempotency.Required))
	}
	want := []string{
		"POST /api/v1/tasks needs [tasks:write], any false, true, false",
		"GET api.example/api/v1/tasks/{id} needs [tasks:read tasks:write], any true, false, false",
		"PUT /api/v1/tasks/{id} needs [], any false, true, true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	changed := api.Routes()[0]
	changed.Scopes[0] = "changed"
	if got := api.Routes()[0].Scopes[0]; got != scope.TasksWrite {
		t.Errorf("a caller has changed the routes: %q", got)
	}
}
