package openapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/openapi"
	"github.com/sallyport-go/sallyport/scope"
)

// described registers what ownDocument says.
func described() *middleware.API {
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{
		Idempotency: middleware.IdempotencyOptions{Runner: replies()},
	})
	nothing := func(http.ResponseWriter, *http.Request) {}
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), nothing)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), nothing)
	api.HandleFunc("POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksCancel, scope.TasksWrite), nothing)
	api.HandleFunc("GET /api/v1/tasks/{id}", middleware.RequireAny(scope.TasksRead, scope.TasksWrite), nothing)
	api.HandleFunc("GET /api/v1/me", middleware.AnyCaller(), nothing)
	api.HandleFunc("GET files.example.com/api/v1/files/{path...}", middleware.Require(scope.KnowledgeRead), nothing)
	api.HandleFunc("GET files.example.com/api/v1/account", middleware.Require(scope.KnowledgeRead),
		nothing) // shares a path
	return api
}

// ownDocument says what described registers, in words of its own: paths under
// a server, other parameter names, a default.
const ownDocument = `{
  "openapi": "3.1.1",
  "info": {"title": "Tasks", "version": "7"},
  "servers": [{"url": "https://{region}.example.com/api/{version}/", "variables": {"region": {"default": "eu"},
"version": {"default": "v1"}}}, {"url": "https://other.example.com"}],
  "security": [{"key": ["account:read"]}],
  "paths": {
    "x-note": "an extension",
    "/account": {"summary": "The account", "get": {}, "head": {}},
    "/tasks": {"post": {"security": [{"key": ["tasks:write"]}]}},
    "/tasks/{task}/cancel": {"parameters": [], "post": {"security": [{"key": ["tasks:write", "tasks:cancel"]}]}},
    "/tasks/{task}": {"get": {"security": [{"oauth": ["tasks:write"]}, {"key": ["tasks:read"]}]}},
    "/me": {"get": {"security": [{"key": []}]}},
    "/files/{rest}": {"get": {"security": [{"key": ["knowledge:read"]}]}},
    "/health": {"get": {"security": []}}
  },
  "components": {"securitySchemes": {
    "key": {"type": "http", "scheme": "Bearer"}, "oauth": {"type": "oauth2"}, "basic": {"type": "http",
"scheme": "basic"}
  }}
}`

func TestNoDrift(t *testing.T) {
	api := described()
	if err := openapi.Drift(api, []byte(ownDocument)); err != nil {
		t.Error(err)
	}
	exported := openapi.Document(api, openapi.Info{Host: "files.example.com"})
	if err := openapi.Drift(api, exported); err == nil || strings.Count(err.Error(), "\n") != 1 ||
		!strings.Contains(err.Error(), "GET /api/v1/account asks for knowledge:read") {
		t.Errorf("got %v, want the one path that the hosts share", err)
	}
}

func TestDrift(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"route left out", `"/tasks": {"post": {"security": [{"key": ["tasks:write"]}]}},`, ``,
			"POST /api/v1/tasks is registered and not in the document"},
		{"route of a host left out", `"/files/{rest}": {"get": {"security": [{"key": ["knowledge:read"]}]}},`, ``,
			"GET /api/v1/files/{} is registered and not"},
		{"route too many", `"/tasks": {`, `"/tasks": {"put": {},`, "PUT /api/v1/tasks is in the document and not registered"},
		{"another method", `"/me": {"get"`, `"/me": {"post"`, "POST /api/v1/me is in the document and not registered"},
		{"HEAD where there is no GET", `"/tasks": {`, `"/tasks": {"head": {},`,
			"HEAD /api/v1/tasks is in the document and not registered"},
		{"HEAD with another scope", `"head": {}`, `"head": {"security": [{"key": []}]}`,
			"HEAD /api/v1/account asks for any key in the document, and for account:read as registered"},
		{"another path", `"/account"`, `"/accounts"`, "GET /api/v1/account is registered and not in the document"},
		{"another base", `"default": "v1"`, `"default": "v2"`, "GET /api/v2/account is in the document and not registered"},
		{"no base", `"servers"`, `"x-servers"`, "GET /account is in the document and not registered"},
		{"another scope", `["tasks:write"]}]}},`, `["tasks:read"]}]}},`,
			"POST /api/v1/tasks asks for tasks:read in the document, and for tasks:write as registered"},
		{"a scope less", `["tasks:write", "tasks:cancel"]`, `["tasks:cancel"]`,
			"asks for tasks:cancel in the document, and for tasks:cancel tasks:write as registered"},
		{"another default", `[{"key": ["account:read"]}]`, `[{"key": ["tasks:read"]}]`,
			"GET /api/v1/account asks for tasks:read"},
		{"no default", `"security": [{"key": ["account:read"]}],`, ``,
			"GET /api/v1/account asks for nothing in the document"},
		{"an alternative less", `{"oauth": ["tasks:write"]}, `, ``,
			"asks for tasks:read in the document, and for tasks:read or tasks:write as registered"},
		{"an alternative for everybody", `{"oauth": ["tasks:write"]}, `, `{"oauth": ["tasks:write"]}, {}, `,
			"asks for no key or tasks:read or tasks:write in the document"},
		{"together instead of either", `{"oauth": ["tasks:write"]}, {"key": ["tasks:read"]}`,
			`{"oauth": ["tasks:write"], "key": ["tasks:read"]}`,
			"asks for tasks:read tasks:write in the document, and for tasks:read or tasks:write"},
		{"public", `"/me": {"get": {"security": [{"key": []}]}}`, `"/me": {"get": {"security": []}}`,
			"GET /api/v1/me asks for no key in the document, and for any key as registered"},
		{"scopes where any key will do", `[{"key": []}]`, `[{"key": ["tasks:read"]}]`,
			"GET /api/v1/me asks for tasks:read in the document, and for any key as registered"},
		{"another scheme", `"/tasks": {"post": {"security": [{"key"`, `"/tasks": {"post": {"security": [{"basic"`,
			"basic, which is no bearer scheme"},
		{"nobody says that it is public", `"/health": {"get": {"security": []}}`, `"/health": {"get": {}}`,
			"GET /api/v1/health is in the document and not registered"},
		{"a reference", `"/account": {`, `"/account": {"$ref": "#/x",`, "$ref, which is not followed"},
		{"not JSON", `{`, `openapi: 3.1.0`, "not JSON"},
		{"an old version", `"3.1.1"`, `"2.0"`, `of OpenAPI "2.0"`},
		{"no URL", `https://{region}`, `https://%zz{region}`, "the first server"},
	} {
		changed := strings.Replace(ownDocument, tt.old, tt.new, 1)
		if changed == ownDocument {
			t.Fatalf("%s: nothing changed", tt.name)
		}
		if err := openapi.Drift(described(), []byte(changed)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// All differences are told at once, in the same order each time.
func TestDriftIsWhole(t *testing.T) {
	empty := `{"openapi":"3.1.0","info":{"title":"","version":""},"paths":{}}`
	want := fmt.Sprint(openapi.Drift(described(), []byte(empty)))
	if strings.Count(want, "is registered and not in the document") != 6 {
		t.Errorf("got %s", want)
	}
	for range 10 {
		if got := fmt.Sprint(openapi.Drift(described(), []byte(empty))); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}
