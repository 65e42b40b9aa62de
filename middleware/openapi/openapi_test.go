package openapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/openapi"
	"github.com/sallyport-go/sallyport/scope"
)

var update = flag.Bool("update", false, "rewrite the golden file with what the test got")

func replies() *idem.Runner { return idem.NewRunner(&idem.Memory{}, idem.Options{}) }

// routes has one route of each kind.
var routes = []struct {
	pattern string
	need    middleware.Requirement
}{
	{"GET /api/v1/account", middleware.Require(scope.AccountRead)},
	{"GET /api/v1/me", middleware.AnyCaller()},
	{"POST /api/v1/tasks", middleware.Require(scope.TasksWrite)},
	{"POST /api/v1/tasks/{id}/runs/{run}/cancel", middleware.Require(scope.TasksCancel, scope.TasksWrite)},
	{"GET /api/v1/tasks/{id}", middleware.RequireAny(scope.TasksRead, scope.TasksWrite)},
	{"GET /api/v1/files/{path...}", middleware.Require(scope.KnowledgeRead)},
	{"GET /api/v1/exact/{$}", middleware.AnyCaller()},
	{"GET /api/v1/under/", middleware.AnyCaller()},
	{"CONNECT /api/v1/account", middleware.AnyCaller()},
	{"GET hooks.example.com/api/v1/account", middleware.Require(scope.WebhooksWrite)},
	// What OpenAPI takes for the same path.
	{"PUT /api/v1/tasks/{task}", middleware.Require(scope.TasksWrite)},
	{"GET /api/v1/files/{name}", middleware.Require(scope.DeliverablesRead)},
	{"GET /api/v1/under/{$}", middleware.Require(scope.ChatRead)},
}

// newAPI registers the routes, in reverse if it is told so.
func newAPI(o middleware.Options, reverse ...bool) *middleware.API {
	o.Idempotency.Runner = replies()
	api := middleware.NewAPI(issuing.NewMemory(), o)
	order := slices.Clone(routes)
	if len(reverse) > 0 {
		slices.Reverse(order)
	}
	for _, route := range order {
		var deprecated middleware.RouteOptions
		if route.pattern == "GET /api/v1/me" {
			deprecated.Deprecated = time.Unix(1e9, 0)
		}
		api.HandleFunc(route.pattern, route.need, func(http.ResponseWriter, *http.Request) {}, deprecated)
	}
	return api
}

func TestDocument(t *testing.T) {
	info := openapi.Info{Title: "Tasks & files", Version: "2026-11-01", Description: "What an agent does.",
		Servers: []string{"https://api.example.com"}}
	api := newAPI(middleware.Options{
		Service: keystore.Service{Prefix: "acme"}, RequestIDHeader: "acme-request-id",
		Idempotency: middleware.IdempotencyOptions{Required: true},
	})
	got := openapi.Document(api, info)
	const golden = "testdata/openapi.golden"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant what %s has (go test -update rewrites it)", got, golden)
	}
}

// The page for clients has the codes of a response that a document describes,
// and no others of its status.
func TestTheClientsKnowTheDocument(t *testing.T) {
	page, err := os.ReadFile("../../.github/CLIENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, openapi.Document(newAPI(middleware.Options{}), openapi.Info{}))
	found := 0
	for status, response := range d.Paths["/api/v1/tasks"]["post"].Responses {
		text := d.Components.Responses[path.Base(response.Ref)].Description
		_, text, there := strings.Cut(text, " Codes: ")
		if !there {
			continue // a success, or any other refusal
		}
		found++
		var codes []string
		rows := regexp.MustCompile(`(?m)^\| ` + status + " \\| (`[a-z_]+`) ")
		for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
			codes = append(codes, row[1])
		}
		slices.Sort(codes)
		if got := strings.Join(codes, ", ") + "."; got != text {
			t.Errorf("the page has for %s the codes %s, the document %s", status, got, text)
		}
	}
	if found < 7 {
		t.Errorf("found %d responses only", found)
	}
}

func TestIsDeterministic(t *testing.T) {
	info := openapi.Info{Host: "hooks.example.com"}
	want := openapi.Document(newAPI(middleware.Options{}), info)
	for range 5 {
		if got := openapi.Document(newAPI(middleware.Options{}, true), info); !bytes.Equal(got, want) {
			t.Fatalf("got\n%s\nand in reverse\n%s", want, got)
		}
	}
}

// document is the part of a document that the tests ask for.
type document struct {
	Paths map[string]map[string]struct {
		Security  []map[string][]string
		Responses map[string]struct {
			Ref string `json:"$ref"`
		}
		Parameters []map[string]any
	}
	Components struct {
		Responses map[string]struct {
			Description string
			Content     map[string]any
		}
		Schemas map[string]struct{ Properties map[string]any }
	}
}

func parse(t *testing.T, text []byte) (d document) {
	t.Helper()
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Of routes that OpenAPI cannot tell apart there is the more precise one, also by
// the host.
func TestOfOnePath(t *testing.T) {
	api := newAPI(middleware.Options{})
	for _, tt := range []struct{ host, path, method, want, parameter string }{
		{"", "/api/v1/tasks/{id}", "put", "tasks:write", "id"},
		{"", "/api/v1/tasks/{task}", "put", "", ""},
		{"", "/api/v1/files/{name}", "get", "deliverables:read", "name"},
		{"", "/api/v1/files/{path}", "get", "", ""},
		{"", "/api/v1/under/", "get", "chat:read", ""},
		{"", "/api/v1/account", "connect", "", ""},
		{"", "/api/v1/account", "get", "account:read", ""},
		{"hooks.example.com", "/api/v1/account", "get", "webhooks:write", ""},
		{"elsewhere.example.com", "/api/v1/account", "get", "account:read", ""},
	} {
		operation, ok := parse(t, openapi.Document(api, openapi.Info{Host: tt.host})).Paths[tt.path][tt.method]
		scopes, parameter := "", ""
		if ok {
			scopes = strings.Join(operation.Security[0]["apiKey"], " ")
		}
		if len(operation.Parameters) > 0 {
			parameter, _ = operation.Parameters[0]["name"].(string)
		}
		if scopes != tt.want || parameter != tt.parameter {
			t.Errorf("%+v: got the scopes %q and the parameter %q", tt, scopes, parameter)
		}
	}
}

// The bodies of refusals are not described where somebody else writes them.
func TestWithAProblemHook(t *testing.T) {
	hooks := &middleware.Hooks{ProblemBody: func(*http.Request, middleware.Problem) (string, []byte) { return "", nil }}
	text := openapi.Document(newAPI(middleware.Options{Hooks: hooks}), openapi.Info{})
	d := parse(t, text)
	for name, r := range d.Components.Responses {
		if r.Content != nil {
			t.Errorf("the response %s has content", name)
		}
	}
	if len(d.Components.Schemas) != 0 || bytes.Contains(text, []byte("#/components/schemas")) {
		t.Error("the document has schemas")
	}
}

// Every member that a problem can have is in the schema.
func TestKnowsEveryProblem(t *testing.T) {
	text := openapi.Document(newAPI(middleware.Options{}), openapi.Info{})
	res := httptest.NewRecorder()
	middleware.WriteProblem(res, httptest.NewRequest("GET", "/", nil), middleware.Problem{Status: 409, Code: "x",
		Detail: "x", Policy: "x", Missing: []scope.Name{"x"}, ResetsAt: time.Unix(1, 0), OriginalStatus: 1,
		OriginalLocation: "x"})
	var members map[string]any
	if err := json.Unmarshal(res.Body.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	properties := parse(t, text).Components.Schemas["Problem"].Properties
	members["request_id"] = "x"
	if len(members) != len(properties) {
		t.Errorf("a problem has %d members, and the schema %d", len(members), len(properties))
	}
	for name := range members {
		if properties[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
}

// A route that any caller may use refuses with 403 if it has units.
func TestOfUnits(t *testing.T) {
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{
		Quota: middleware.QuotaOptions{Organization: &idem.Quota{Name: "monthly", Units: 1}}})
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	api.Handle("GET /api/v1/units", middleware.AnyCaller(), nothing, middleware.RouteOptions{Units: 1})
	api.Handle("GET /api/v1/free", middleware.AnyCaller(), nothing)
	d := parse(t, openapi.Document(api, openapi.Info{}))
	for path, want := range map[string]string{"/api/v1/units": "#/components/responses/Forbidden", "/api/v1/free": ""} {
		if got := d.Paths[path]["get"].Responses["403"].Ref; got != want {
			t.Errorf("%s: the response 403 is %q, want %q", path, got, want)
		}
	}
}

func TestOfAKeyThatIsRequired(t *testing.T) {
	idempotency := middleware.IdempotencyOptions{Runner: replies()}
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{Idempotency: idempotency})
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	required := middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{Required: true}}
	api.Handle("POST /api/v1/a", middleware.AnyCaller(), nothing)
	api.Handle("POST /api/v1/b", middleware.AnyCaller(), nothing, required)
	api.Handle("GET /api/v1/c", middleware.AnyCaller(), nothing)
	api.Handle("POST /api/v1/d", middleware.AnyCaller(), nothing,
		middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{Off: true}})
	d := parse(t, openapi.Document(api, openapi.Info{}))
	for _, tt := range []struct{ path, method, want string }{
		{"/api/v1/a", "post", "#/components/parameters/IdempotencyKey"},
		{"/api/v1/b", "post", "#/components/parameters/RequiredIdempotencyKey"},
		{"/api/v1/c", "get", ""},
		{"/api/v1/d", "post", ""},
	} {
		got := ""
		for _, p := range d.Paths[tt.path][tt.method].Parameters {
			got, _ = p["$ref"].(string)
		}
		if got != tt.want {
			t.Errorf("%s %s: got the parameter %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
}

// TestInfo: each field is in the document.
func TestInfo(t *testing.T) {
	api := newAPI(middleware.Options{})
	optiontest.Every(t, func(set func(*openapi.Info)) string {
		var info openapi.Info
		set(&info)
		return string(openapi.Document(api, info))
	}, map[string]func(*openapi.Info){
		"Title":       func(i *openapi.Info) { i.Title = "Tasks" },
		"Version":     func(i *openapi.Info) { i.Version = "7" },
		"Description": func(i *openapi.Info) { i.Description = "What an agent does." },
		"Servers":     func(i *openapi.Info) { i.Servers = []string{"https://api.example.com"} },
		"Host":        func(i *openapi.Info) { i.Host = "hooks.example.com" },
	})
}
