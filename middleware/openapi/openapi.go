// Package openapi writes an OpenAPI 3.1 document of the routes of an API, and
// compares one of a team's own with them.
//
//	api.HandleFunc("GET /api/v1/openapi.json", middleware.AnyCaller(),
//		func(w http.ResponseWriter, _ *http.Request) {
//			w.Header().Set("Content-Type", "application/json")
//			_, _ = w.Write(openapi.Document(api, openapi.Info{Title: "Parcels", Version: "2"}))
//		})
package openapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/scope"
)

// Info is what a document says beyond the routes.
type Info struct {
	Title       string // "" means "API"
	Version     string // of the document; "" means "1"
	Description string
	Servers     []string // URLs without the base path, such as "https://api.example.com"

	// Host chooses the routes whose pattern names this host, beside those that
	// name none. "" leaves out routes that name a host, because a document has
	// one operation for each method and path.
	Host string
}

// Document returns an OpenAPI 3.1 document of the routes, as JSON: paths and
// their parameters, which scopes each operation needs of the API key (as role
// names of the bearer scheme, which OpenAPI 3.1 allows and 3.0 does not), the
// Idempotency-Key, and the refusals with their headers. It does not know what
// the handlers take and return. An operation is deprecated if its route has a
// date for it, also one to come. The same routes give the same bytes.
//
// It leaves out methods that OpenAPI 3.1 has no place for, such as CONNECT. A
// path that ends in a slash stands for all paths under it, as in
// [http.ServeMux], which OpenAPI cannot say. Paths that differ only in the
// names of their wildcards are one path, and have the names of one of them.
// Where Hooks.ProblemBody writes the refusals, their bodies are left out.
func Document(api *middleware.API, info Info) []byte {
	o := api.Guard().Options()
	d := document{
		OpenAPI: "3.1.0",
		Info:    documentInfo{cmp.Or(info.Title, "API"), cmp.Or(info.Version, "1"), info.Description},
		Paths:   make(map[string]map[string]operation),
	}
	for _, url := range info.Servers {
		d.Servers = append(d.Servers, object{"url": url})
	}
	described := documented{o}
	used := make(map[scope.Name]bool)
	paths := make(map[string]string) // by template
	for _, r := range documentRoutes(api.Routes(), info.Host) {
		if paths[r.template] == "" {
			paths[r.template] = r.path
			d.Paths[r.path] = make(map[string]operation)
		}
		path := paths[r.template]
		d.Paths[path][r.method] = described.operation(r, wildcard.FindAllString(path, -1))
		for _, name := range r.Scopes {
			used[name] = true
		}
	}
	d.Components = described.components(used)

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		panic("openapi: " + err.Error()) // strings, maps and slices of them always encode
	}
	return b.Bytes()
}

// documentMethods are those of a path item of OpenAPI 3.1.
var documentMethods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// documented describes the parts of a document that depend on the API's
// options.
type documented struct{ middleware.Options }

type (
	// object is JSON whose members are sorted by name.
	object map[string]any

	document struct {
		OpenAPI    string                          `json:"openapi"`
		Info       documentInfo                    `json:"info"`
		Servers    []object                        `json:"servers,omitempty"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components object                          `json:"components"`
	}
	documentInfo struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description,omitempty"`
	}
	operation struct {
		Deprecated bool                      `json:"deprecated,omitempty"`
		Security   []map[string][]scope.Name `json:"security"`
		Parameters []object                  `json:"parameters,omitempty"`
		Responses  map[string]object         `json:"responses"`
	}
)

const bearerScheme = "apiKey"

var wildcard = regexp.MustCompile(`\{([^{}]*)\}`)

// A documentRoute is a route as a document knows it.
type documentRoute struct {
	middleware.Route
	method, path string
	template     string // path without the names, which OpenAPI takes for the same path
	rest         bool   // the last wildcard takes the rest of the path
	precision    int
}

// documentRoutes returns the routes that a document about a host has, sorted.
// Of routes that OpenAPI cannot tell apart the more precise one counts, which
// is also the one that [http.ServeMux] prefers.
func documentRoutes(routes []middleware.Route, host string) []documentRoute {
	chosen := make(map[string]documentRoute)
	for _, r := range routes {
		slash := strings.IndexByte(r.Path, '/')
		d := documentRoute{Route: r, method: strings.ToLower(r.Method)}
		if at := r.Path[:slash]; at == host && host != "" {
			d.precision += 4
		} else if at != "" {
			continue
		}
		if !slices.Contains(documentMethods, d.method) {
			continue
		}
		path, exact := strings.CutSuffix(r.Path[slash:], "{$}")
		if exact {
			d.precision += 2
		}
		if d.rest = strings.HasSuffix(path, "...}"); !d.rest {
			d.precision++
		}
		d.path = strings.Replace(path, "...}", "}", 1)
		d.template = wildcard.ReplaceAllString(d.path, "{}")
		key := d.method + " " + d.template
		if other, taken := chosen[key]; !taken || d.precision > other.precision {
			chosen[key] = d
		}
	}
	return slices.SortedFunc(maps.Values(chosen), func(a, b documentRoute) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.method, b.method))
	})
}

func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// operation describes a route whose path has these wildcards.
func (d documented) operation(r documentRoute, wildcards []string) operation {
	o := operation{
		Deprecated: !r.Options.Deprecated.IsZero() || !r.Options.Sunset.IsZero(),
		Security:   security(r.Route),
		Responses:  make(map[string]object),
	}
	for i, w := range wildcards {
		p := object{"name": w[1 : len(w)-1], "in": "path", "required": true, "schema": object{"type": "string"}}
		if r.rest && i == len(wildcards)-1 {
			p["description"] = "The rest of the path, which may contain slashes."
		}
		o.Parameters = append(o.Parameters, p)
	}
	refusals := map[string]string{
		"401": "Unauthorized", "429": "TooManyRequests", "503": "Unavailable", "default": "Problem"}
	if len(r.Scopes) > 0 || r.Options.Units > 0 {
		refusals["403"] = "Forbidden"
	}
	var success []string
	if !r.Options.Idempotency.Off {
		key := "IdempotencyKey"
		if r.Options.Idempotency.Required {
			key = "RequiredIdempotencyKey"
		}
		o.Parameters = append(o.Parameters, ref("parameters", key))
		maps.Copy(refusals, map[string]string{
			"400": "BadRequest", "409": "Conflict", "413": "TooLarge", "422": "Unprocessable"})
		success = []string{"Replayed", "OriginalRequestId"}
	}
	o.Responses["2XX"] = object{"description": "Success.", "headers": d.headers(success...)}
	for status, name := range refusals {
		o.Responses[status] = ref("responses", name)
	}
	return o
}

// security says what is needed: the names of one requirement are needed
// together, and of several requirements one is enough.
func security(r middleware.Route) []map[string][]scope.Name {
	if !r.AnyOf {
		return []map[string][]scope.Name{{bearerScheme: append([]scope.Name{}, r.Scopes...)}}
	}
	var alternatives []map[string][]scope.Name
	for _, name := range r.Scopes {
		alternatives = append(alternatives, map[string][]scope.Name{bearerScheme: {name}})
	}
	return alternatives
}

// headers returns the request id and the named headers of components, under the
// names that they have on the wire.
func (d documented) headers(names ...string) object {
	wire := map[string]string{
		"RequestId":         d.RequestIDHeader,
		"OriginalRequestId": keyed.OriginalIDHeader(d.RequestIDHeader),
		"Replayed":          "Idempotent-Replayed",
		"RetryAfter":        "Retry-After", "Challenge": "WWW-Authenticate", "ShouldRetry": keyed.ShouldRetry,
	}
	headers := make(object)
	if d.NoShouldRetry {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "ShouldRetry" })
	}
	for _, name := range append(names, "RequestId") {
		headers[wire[name]] = ref("headers", name)
	}
	return headers
}

func (d documented) components(used map[scope.Name]bool) object {
	text := object{"type": "string"}
	key := func(required bool) object {
		return object{
			"name": "Idempotency-Key", "in": "header", "required": required, "schema": text,
			"description": "Chosen by the client: 1 to 255 printable ASCII characters, unique to the operation. " +
				"A request that is repeated with the same value gets the original response and takes effect once.",
		}
	}
	header := func(schema object, text string) object { return object{"schema": schema, "description": text} }
	always := func(description string) object {
		return object{"schema": text, "required": true, "description": description}
	}
	return object{
		"securitySchemes": object{bearerScheme: object{
			"type": "http", "scheme": "bearer", "bearerFormat": d.Service.Pattern(),
			"description": securityText(d.Service.Scopes, used),
		}},
		"parameters": object{"IdempotencyKey": key(false), "RequiredIdempotencyKey": key(true)},
		"headers": object{
			"RequestId":         always("Identifies the response. Quote it to support."),
			"OriginalRequestId": header(text, "On a repeat: the request id of the original response."),
			"Replayed": header(object{"type": "string", "const": "true"},
				"On a repeat: the original response was returned, and nothing was done."),
			"RetryAfter": header(object{"type": "integer", "minimum": 1}, "Seconds to wait before the request is repeated."),
			"ShouldRetry": header(object{"type": "string", "enum": []string{"true", "false"}},
				"Whether a repeat with the same Idempotency-Key gets another answer."),
			"Challenge": header(text, "A Bearer challenge (RFC 6750, section 3): with each 401, and where a scope is missing."),
		},
		"responses": object{
			"BadRequest":   d.refusal(400, "The request or its Idempotency-Key cannot be read."),
			"Unauthorized": d.refusal(401, "The API key is missing or not valid.", "Challenge"),
			"Forbidden":    d.refusal(403, "The credentials lack a scope, or units.", "Challenge", "ShouldRetry"),
			"Conflict": d.refusal(409, "The original response to this Idempotency-Key cannot be returned, or not yet, and "+
				"Retry-After is there in that case; or the request breaks a rule of the data.", "RetryAfter", "ShouldRetry"),
			"TooLarge":        d.refusal(413, "The body of a request with an Idempotency-Key is too large."),
			"Unprocessable":   d.refusal(422, "The Idempotency-Key was used for a different request.", "ShouldRetry"),
			"TooManyRequests": d.refusal(429, "A rate limit is used up.", "RetryAfter", "ShouldRetry"),
			"Unavailable": d.refusal(503, "The request was not finished. Repeat it if Retry-After is there.",
				"RetryAfter", "ShouldRetry"),
			"Problem": d.refusal(0, "Any other refusal.", "ShouldRetry"),
		},
		"schemas": d.schemas(),
	}
}

func securityText(registry *scope.Registry, used map[scope.Name]bool) string {
	var b strings.Builder
	b.WriteString("A secret API key. An operation needs the scopes that it names.")
	for _, definition := range registry.Definitions() {
		if used[definition.Name] {
			fmt.Fprintf(&b, "\n- `%s`: %s", definition.Name, definition.Meaning)
		}
	}
	return b.String()
}

// refusal describes the response of a status, with the codes that the table of
// problems has for it.
func (d documented) refusal(status int, text string, headers ...string) object {
	var names []string
	for code, row := range codes.Table {
		if row.Status == status {
			names = append(names, "`"+code+"`")
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		text += " Codes: " + strings.Join(names, ", ") + "."
	}
	r := object{"description": text, "headers": d.headers(headers...)}
	if d.Hooks == nil || d.Hooks.ProblemBody == nil {
		r["content"] = object{"application/problem+json": object{"schema": ref("schemas", "Problem")}}
	}
	return r
}

func (d documented) schemas() object {
	if d.Hooks != nil && d.Hooks.ProblemBody != nil {
		return object{}
	}
	text := func(description string) object { return object{"type": "string", "description": description} }
	number := func(description string) object { return object{"type": "integer", "description": description} }
	kind := "Always about:blank."
	if d.RateLimit.Fields == middleware.FieldsDraft11 {
		kind = "about:blank, or the type quota-exceeded of a rate limit."
	}
	properties := object{
		"type":   text(kind),
		"title":  text("The phrase of the status."),
		"status": number("The status of the response."),
		"detail": text("What was wrong and what to do, for people."),
		"code":   text("What was wrong, for programs. Codes are added, never renamed."),
		"request_id": text("The id in the header " + d.RequestIDHeader +
			"; in a repeated response that of the original."),
		"policy":         text("The rate limit or the quota that refused."),
		"missing_scopes": object{"type": "array", "items": object{"type": "string"}},
		"resets_at": object{"type": "string", "format": "date-time",
			"description": "When the next period of the quota begins."},
		"original_status":   number("The status of a response that was not retained."),
		"original_location": text("The Location of a response that was not retained."),
	}
	return object{"Problem": object{
		"type": "object", "description": "A refusal (RFC 9457). Members may be added.",
		"required": []string{"type", "title", "status", "code"}, "properties": properties,
	}}
}
