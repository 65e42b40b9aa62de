package middleware_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// openAPIRoutes has one route of each kind.
var openAPIRoutes = []struct {
	pattern string
	need    middleware.Requirement
}{
	{"GET /api/v1/account", middleware.Require(scope.AccountRead)},
	{"GET /api/v1/me", middleware.AnyKey()},
	{"POST /api/v1/tasks", middleware.Require(scope.TasksWrite)},
	{"POST /api/v1/tasks/{id}/runs/{run}/cancel", middleware.Require(scope.TasksCancel, scope.TasksWrite)},
	{"GET /api/v1/tasks/{id}", middleware.RequireAny(scope.TasksRead, scope.TasksWrite)},
	{"GET /api/v1/files/{path...}", middleware.Require(scope.KnowledgeRead)},
	{"GET /api/v1/exact/{$}", middleware.AnyKey()},
	{"GET /api/v1/under/", middleware.AnyKey()},
	{"CONNECT /api/v1/account", middleware.AnyKey()},
	{"GET hooks.example.com/api/v1/account", middleware.Require(scope.WebhooksWrite)},
	// What OpenAPI takes for the same path.
	{"PUT /api/v1/tasks/{task}", middleware.Require(scope.TasksWrite)},
	{"GET /api/v1/files/{name}", middleware.Require(scope.DeliverablesRead)},
	{"GET /api/v1/under/{$}", middleware.Require(scope.ChatRead)},
}

func openAPI(o middleware.Options, order []int) *middleware.API {
	o.Replies = replies()
	api := middleware.NewAPI(keystore.NewMemory(), o)
	for _, i := range order {
		route := openAPIRoutes[i]
		api.HandleFunc(route.pattern, route.need, func(http.ResponseWriter, *http.Request) {})
	}
	return api
}

func inOrder() []int {
	order := make([]int, len(openAPIRoutes))
	for i := range order {
		order[i] = i
	}
	return order
}

func TestOpenAPI(t *testing.T) {
	g := openGolden(t, "openapi")
	info := middleware.OpenAPIInfo{Title: "Tasks & files", Version: "2026-11-01", Description: "What an agent does.", Servers: []string{"https://api.example.com"}}
	api := openAPI(middleware.Options{
		Format: keystore.Format{Prefix: "acme"}, RequestID: middleware.RequestIDOptions{Header: "acme-request-id"},
		Hooks: &middleware.Hooks{ErrorObject: true}, Idempotency: middleware.IdempotencyOptions{Required: true},
	}, inOrder())
	g.check(t, "document", string(api.OpenAPI(info)))
	g.only(t, []string{"document"})
}

func TestOpenAPIIsDeterministic(t *testing.T) {
	order := inOrder()
	want := openAPI(middleware.Options{}, order).OpenAPI(middleware.OpenAPIInfo{Host: "hooks.example.com"})
	for range 5 {
		slices.Reverse(order)
		if got := openAPI(middleware.Options{}, order).OpenAPI(middleware.OpenAPIInfo{Host: "hooks.example.com"}); !bytes.Equal(got, want) {
			t.Fatalf("got\n%s\nand then\n%s", want, got)
		}
	}
}

// openAPIDocument is the part of a document that the tests ask for.
type openAPIDocument struct {
	Paths map[string]map[string]struct {
		Security   []map[string][]string
		Responses  map[string]map[string]string
		Parameters []map[string]any
	}
	Components struct {
		Responses map[string]struct{ Content map[string]any }
		Schemas   map[string]struct{ Properties map[string]any }
	}
}

func parseOpenAPI(t *testing.T, text []byte) (d openAPIDocument) {
	t.Helper()
	if err := json.Unmarshal(text, &d); err == nil {
		return d
	}
	// The responses of an operation are references, and one is not.
	var loose map[string]any
	if err := json.Unmarshal(text, &loose); err != nil {
		t.Fatal(err)
	}
	for _, item := range loose["paths"].(map[string]any) {
		for _, operation := range item.(map[string]any) {
			delete(operation.(map[string]any)["responses"].(map[string]any), "2XX")
		}
	}
	again, err := json.Marshal(loose)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Of routes that OpenAPI cannot tell apart there is the more precise one.
func TestOpenAPIOfOnePath(t *testing.T) {
	d := parseOpenAPI(t, openAPI(middleware.Options{}, inOrder()).OpenAPI(middleware.OpenAPIInfo{}))
	for _, tt := range []struct{ path, method, want, parameter string }{
		{"/api/v1/tasks/{id}", "put", "tasks:write", "id"},
		{"/api/v1/tasks/{task}", "put", "", ""},
		{"/api/v1/files/{name}", "get", "deliverables:read", "name"},
		{"/api/v1/files/{path}", "get", "", ""},
		{"/api/v1/under/", "get", "chat:read", ""},
		{"/api/v1/account", "connect", "", ""},
	} {
		operation, ok := d.Paths[tt.path][tt.method]
		scopes, parameter := "", ""
		if ok {
			scopes = strings.Join(operation.Security[0]["apiKey"], " ")
		}
		if len(operation.Parameters) > 0 {
			parameter, _ = operation.Parameters[0]["name"].(string)
		}
		if scopes != tt.want || parameter != tt.parameter {
			t.Errorf("%s %s: got the scopes %q and the parameter %q, want %q and %q", tt.method, tt.path, scopes, parameter, tt.want, tt.parameter)
		}
	}
}

func TestOpenAPIHost(t *testing.T) {
	api := openAPI(middleware.Options{}, inOrder())
	for _, tt := range []struct{ host, want string }{
		{"", "account:read"},
		{"hooks.example.com", "webhooks:write"},
		{"elsewhere.example.com", "account:read"},
	} {
		d := parseOpenAPI(t, api.OpenAPI(middleware.OpenAPIInfo{Host: tt.host}))
		if got := d.Paths["/api/v1/account"]["get"].Security[0]["apiKey"]; len(got) != 1 || got[0] != tt.want {
			t.Errorf("host %q: got the scopes %q, want %s", tt.host, got, tt.want)
		}
	}
}

// The bodies of refusals are not described where somebody else writes them.
func TestOpenAPIWithAProblemHook(t *testing.T) {
	hooks := &middleware.Hooks{Problem: func(http.ResponseWriter, *http.Request, middleware.Problem) {}}
	text := openAPI(middleware.Options{Hooks: hooks}, inOrder()).OpenAPI(middleware.OpenAPIInfo{})
	d := parseOpenAPI(t, text)
	for name, r := range d.Components.Responses {
		if r.Content != nil {
			t.Errorf("the response %s has content", name)
		}
	}
	if len(d.Components.Schemas) != 0 || bytes.Contains(text, []byte("#/components/schemas")) {
		t.Error("the document has schemas")
	}
}

// Every code is told, and every member that a problem can have is in the schema.
func TestOpenAPIKnowsEveryProblem(t *testing.T) {
	hooks := &middleware.Hooks{ErrorObject: true}
	text := string(openAPI(middleware.Options{Hooks: hooks}, inOrder()).OpenAPI(middleware.OpenAPIInfo{}))
	for _, code := range []string{"api_key_invalid", "insufficient_scope", "idempotency_key_invalid", "idempotency_in_progress", "body_too_large", "idempotency_key_reused", "rate_limited", "key_store_unavailable"} {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("the document does not have the code %s", code)
		}
	}
	res := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		middleware.WriteProblem(w, r, middleware.Problem{Status: 409, Code: "x", Detail: "x", Policy: "x", Missing: []scope.Name{"x"}, OriginalStatus: 1, OriginalLocation: "x"})
	}), request("GET", "/", "", ""))
	var members map[string]any
	if err := json.Unmarshal([]byte(res.body), &members); err != nil {
		t.Fatal(err)
	}
	properties := parseOpenAPI(t, []byte(text)).Components.Schemas["Problem"].Properties
	members["request_id"], members["error"] = "x", "x"
	if len(members) != len(properties) {
		t.Errorf("a problem has %d members, and the schema %d", len(members), len(properties))
	}
	for name := range members {
		if properties[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
}

func TestOpenAPIOfAKeyThatIsRequired(t *testing.T) {
	api := middleware.NewAPI(keystore.NewMemory(), middleware.Options{Replies: replies()})
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	required := middleware.Idempotency(replies(), middleware.IdempotencyOptions{Required: true})
	api.Handle("POST /api/v1/a", middleware.AnyKey(), nothing)
	api.Handle("POST /api/v1/b", middleware.AnyKey(), required(nothing))
	api.Handle("GET /api/v1/c", middleware.AnyKey(), nothing)
	d := parseOpenAPI(t, api.OpenAPI(middleware.OpenAPIInfo{}))
	for _, tt := range []struct{ path, method, want string }{
		{"/api/v1/a", "post", "#/components/parameters/IdempotencyKey"},
		{"/api/v1/b", "post", "#/components/parameters/RequiredIdempotencyKey"},
		{"/api/v1/c", "get", ""},
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
