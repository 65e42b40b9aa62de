// Package openapitest has the tests that need an OpenAPI library, apart from
// the module, whose importers do not.
package openapitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/openapi"
	"github.com/sallyport-go/sallyport/scope"
)

func newAPI(o middleware.Options) *middleware.API {
	o.Idempotency.Runner = idem.NewRunner(&idem.Memory{}, idem.Options{})
	api := middleware.NewAPI(issuing.NewMemory(), o)
	for _, route := range []struct {
		pattern string
		need    middleware.Requirement
	}{
		{"GET /api/v1/account", middleware.Require(scope.AccountRead)},
		{"GET hooks.example.com/api/v1/account", middleware.Require(scope.WebhooksWrite)},
		{"GET /api/v1/me", middleware.AnyCaller()},
		{"POST /api/v1/tasks", middleware.Require(scope.TasksWrite)},
		{"POST /api/v1/tasks/{id}/runs/{run}/cancel", middleware.Require(scope.TasksCancel, scope.TasksWrite)},
		{"GET /api/v1/tasks/{id}", middleware.RequireAny(scope.TasksRead, scope.TasksWrite)},
		{"DELETE /api/v1/tasks/{task}", middleware.Require(scope.TasksWrite)},
		{"GET /api/v1/files/{path...}", middleware.Require(scope.KnowledgeRead)},
		{"GET /api/v1/files/{name}", middleware.Require(scope.KnowledgeRead)},
		{"GET /api/v1/under/", middleware.AnyCaller()},
		{"GET /api/v1/under/{$}", middleware.AnyCaller()},
		{"CONNECT /api/v1/account", middleware.AnyCaller()},
	} {
		api.HandleFunc(route.pattern, route.need, func(http.ResponseWriter, *http.Request) {})
	}
	return api
}

// validate holds a document to OpenAPI 3.1.
func validate(t *testing.T, document []byte) (*openapi3.T, error) {
	t.Helper()
	d, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	if !d.IsOpenAPI31OrLater() {
		t.Fatalf("the library takes the document for %s", d.OpenAPI)
	}
	return d, d.Validate(t.Context(), openapi3.IsOpenAPI31OrLater())
}

func TestDocumentIsValid(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    middleware.Options
		info openapi.Info
	}{
		{"default", middleware.Options{}, openapi.Info{}},
		{"all of it", middleware.Options{
			Service: keystore.Service{Prefix: "acme"}, RequestIDHeader: "Acme-Request-Id",
			Idempotency: middleware.IdempotencyOptions{Required: true},
		}, openapi.Info{
			Title: "Tasks", Version: "7", Description: "…",
			Servers: []string{"https://api.example.com", "/"}, Host: "hooks.example.com",
		}},
		{"a hook", middleware.Options{Hooks: &middleware.Hooks{
			ProblemBody: func(*http.Request, middleware.Problem) (string, []byte) { return "", nil },
		}}, openapi.Info{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := validate(t, openapi.Document(newAPI(tt.o), tt.info))
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Paths.Len(); got != 7 {
				t.Errorf("got %d paths, want 7", got)
			}
			create := d.Paths.Find("/api/v1/tasks").Post
			for _, status := range []string{"401", "403", "409", "422", "429", "503"} {
				r := create.Responses.Value(status)
				if r == nil || r.Value == nil || len(r.Value.Headers) == 0 {
					t.Errorf("the create has no %s with headers", status)
				}
			}
			if scopes := (*create.Security)[0]["apiKey"]; len(scopes) != 1 || scopes[0] != "tasks:write" {
				t.Errorf("the create needs %q", scopes)
			}
		})
	}
}

// What the API answers is what the schema of the document says.
func TestAnswersFitTheSchema(t *testing.T) {
	api := newAPI(middleware.Options{})
	d, err := validate(t, openapi.Document(api, openapi.Info{}))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/account", nil))
	described := d.Paths.Find("/api/v1/account").Get.Responses.Value("401").Value
	schema := described.Content.Get("application/problem+json").Schema.Value
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if err := d.ValidateSchemaJSON(schema, body, openapi3.EnableJSONSchema2020()); err != nil {
		t.Errorf("%s: %v", w.Body, err)
	}
	for name := range described.Headers {
		if len(w.Header().Values(name)) != 1 {
			t.Errorf("the 401 has %s %q", name, w.Header().Values(name))
		}
	}
	for _, member := range schema.Required {
		without := maps.Clone(body)
		delete(without, member)
		if err := d.ValidateSchemaJSON(schema, without, openapi3.EnableJSONSchema2020()); err == nil {
			t.Errorf("a body without %s fits the schema too", member)
		}
	}
}

// The validation that the documents pass is one that says no.
func TestBrokenDocumentIsNotValid(t *testing.T) {
	document := string(openapi.Document(newAPI(middleware.Options{}), openapi.Info{}))
	for _, tt := range []struct{ name, old, new string }{
		{"a reference to nothing", "#/components/responses/Forbidden", "#/components/responses/Nothing"},
		{"a parameter that is not in the path", `"name": "run"`, `"name": "walk"`},
		{"a scheme without a type", `"type": "http"`, `"x-type": "http"`},
		{"a type that is none", `"type": "integer"`, `"type": "number of seconds"`},
		{"no title", `"title": "API"`, `"x-title": "API"`},
	} {
		broken := strings.Replace(document, tt.old, tt.new, 1)
		if broken == document {
			t.Fatalf("%s: nothing changed", tt.name)
		}
		if _, err := validate(t, []byte(broken)); err == nil {
			t.Errorf("%s: the document is valid", tt.name)
		}
	}
}
