package contracttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/openapi"
)

// OpenAPIDrift compares a team's own OpenAPI document with what is registered.
// It returns an error that names every difference, in both directions:
// operations that only one of them has, and operations that ask for other
// scopes. It returns nil when there is none.
//
//	if err := contracttest.OpenAPIDrift(api, document); err != nil {
//		t.Error(err)
//	}
//
// The document is JSON. A path counts with the path of the first server in
// front; the names of path parameters do not count. The scopes of an operation
// are those of its security requirement, or else of the document's, under a
// scheme that is http with bearer, oauth2 or openIdConnect. An operation that
// is not registered and says "security": [] is somebody else's, and left alone.
// Of routes for several hosts that share a method and path, the one without a
// host counts.
func OpenAPIDrift(api *middleware.API, document []byte) error {
	described, err := operations(document)
	if err != nil {
		return err
	}
	registered := make(map[string]security)
	for _, host := range hosts(api) {
		operations, err := operations(openapi.Document(api, openapi.Info{Host: host}))
		if err != nil {
			return err
		}
		maps.Copy(registered, operations)
	}
	var drift []error
	names := slices.AppendSeq(slices.Collect(maps.Keys(registered)), maps.Keys(described))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		is, isRegistered := registered[name]
		says, isDescribed := described[name]
		head := false
		if path, ok := strings.CutPrefix(name, "HEAD "); ok && !isRegistered {
			is, head = registered["GET "+path] // a GET route answers HEAD too
		}
		switch {
		case !isDescribed:
			drift = append(drift, fmt.Errorf("%s is registered and not in the document", name))
		case !isRegistered && !head && says.public():
		case !isRegistered && !head:
			drift = append(drift, fmt.Errorf("%s is in the document and not registered", name))
		case says.String() != is.String():
			drift = append(drift, fmt.Errorf("%s asks for %v in the document, and for %v as registered", name, says, is))
		}
	}
	if len(drift) > 0 {
		return fmt.Errorf("the OpenAPI document and the registered routes drift apart:\n%w", errors.Join(drift...))
	}
	return nil
}

// hosts returns the hosts that patterns name, and at last "", whose routes
// count where they share a path with others.
func hosts(api *middleware.API) []string {
	var all []string
	for _, r := range api.Routes() {
		if host, _, _ := strings.Cut(r.Path, "/"); host != "" {
			all = append(all, host)
		}
	}
	slices.Sort(all)
	return append(slices.Compact(all), "")
}

// security are the ways to be let in: each is sorted scopes, or one of the two
// words below. Nil is a document that says nothing.
type security []string

const (
	noKey  = "no key"
	anyKey = "any key"
)

// public reports whether the document says that nobody needs a key.
func (s security) public() bool { return len(s) == 1 && s[0] == noKey }

func (s security) String() string {
	if s == nil {
		return "nothing"
	}
	return strings.Join(s, " or ")
}

// openAPI is the part of a document that is compared.
type openAPI struct {
	OpenAPI    string `json:"openapi"`
	Servers    []openAPIServer
	Security   *[]requirement
	Paths      map[string]json.RawMessage
	Components struct {
		SecuritySchemes map[string]struct{ Type, Scheme string }
	}
}

type openAPIServer struct {
	URL       string
	Variables map[string]struct{ Default string }
}

type requirement map[string][]string

// operations returns what the document says of each operation, under "GET
// /path/{}".
func operations(document []byte) (map[string]security, error) {
	var d openAPI
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("the OpenAPI document is not JSON of the right shape: %w", err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.") {
		return nil, fmt.Errorf("the document is of OpenAPI %q, and not of 3.x", d.OpenAPI)
	}
	base, err := serverPath(d.Servers)
	if err != nil {
		return nil, err
	}
	all := make(map[string]security)
	var mistakes []error
	for path, raw := range d.Paths {
		var item map[string]json.RawMessage
		if !strings.HasPrefix(path, "/") {
			continue // an extension
		}
		if err := json.Unmarshal(raw, &item); err != nil {
			mistakes = append(mistakes, fmt.Errorf("the path %s: %w", path, err))
		}
		if _, ok := item["$ref"]; ok {
			mistakes = append(mistakes, fmt.Errorf("the path %s is a $ref, which is not followed", path))
		}
		for method, raw := range item {
			if !slices.Contains(openAPIMethods, method) {
				continue
			}
			var operation struct{ Security *[]requirement }
			if err := json.Unmarshal(raw, &operation); err != nil {
				mistakes = append(mistakes, fmt.Errorf("%s %s: %w", method, path, err))
				continue
			}
			needs := operation.Security
			if needs == nil {
				needs = d.Security
			}
			name := strings.ToUpper(method) + " " + parameter.ReplaceAllString(base+path, "{}")
			all[name] = d.securityOf(needs)
		}
	}
	return all, errors.Join(mistakes...)
}

var (
	openAPIMethods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}
	parameter      = regexp.MustCompile(`\{[^{}]*\}`)
)

func (d openAPI) securityOf(needs *[]requirement) security {
	if needs == nil {
		return nil
	}
	var s security
	for _, need := range *needs {
		scopes := []string{}
		for name, roles := range need {
			scheme := d.Components.SecuritySchemes[name]
			switch {
			case scheme.Type == "http" && strings.EqualFold(scheme.Scheme, "bearer"),
				scheme.Type == "oauth2", scheme.Type == "openIdConnect":
				scopes = append(scopes, roles...)
			default:
				scopes = append(scopes, "the scheme "+name+", which is no bearer scheme,")
			}
		}
		slices.Sort(scopes)
		way := strings.Join(slices.Compact(scopes), " ")
		switch {
		case len(need) == 0:
			way = noKey
		case way == "":
			way = anyKey
		}
		s = append(s, way)
	}
	if s == nil { // "security": []
		s = security{noKey}
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// serverPath returns the path of the first server, which stands in front of all
// paths.
func serverPath(servers []openAPIServer) (string, error) {
	if len(servers) == 0 {
		return "", nil
	}
	text := servers[0].URL
	for name, variable := range servers[0].Variables {
		text = strings.ReplaceAll(text, "{"+name+"}", variable.Default)
	}
	server, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("the first server: %w", err)
	}
	return strings.TrimSuffix(server.Path, "/"), nil
}
