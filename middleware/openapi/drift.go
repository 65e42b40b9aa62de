package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/middleware"
)

// Drift compares a team's own OpenAPI document with what is registered. It
// returns an error that names every difference, in both directions: operations
// that only one of them has, and operations that ask for other scopes. It
// returns nil when there is none.
//
//	if err := openapi.Drift(api, document); err != nil {
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
func Drift(api *middleware.API, document []byte) error {
	described, err := readOperations(document)
	if err != nil {
		return err
	}
	hosts := make(map[string]bool)
	for _, r := range api.Routes() {
		host, _, _ := strings.Cut(r.Path, "/")
		hosts[host] = true
	}
	delete(hosts, "")
	registered := make(map[string]access)
	for _, host := range append(slices.Sorted(maps.Keys(hosts)), "") {
		operations, err := readOperations(Document(api, Info{Host: host}))
		if err != nil {
			return err
		}
		maps.Copy(registered, operations)
	}
	all := maps.Clone(registered)
	maps.Copy(all, described)
	var drift []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		is, isRegistered := registered[name]
		says, isDescribed := described[name]
		if path, ok := strings.CutPrefix(name, "HEAD "); ok && !isRegistered {
			is, isRegistered = registered["GET "+path] // a GET route answers HEAD too
		}
		switch {
		case !isDescribed:
			drift = append(drift, fmt.Errorf("%s is registered and not in the document", name))
		case !isRegistered && says.String() != noKey:
			drift = append(drift, fmt.Errorf("%s is in the document and not registered", name))
		case isRegistered && says.String() != is.String():
			drift = append(drift, fmt.Errorf("%s asks for %v in the document, and for %v as registered", name, says, is))
		}
	}
	if len(drift) > 0 {
		return fmt.Errorf("the OpenAPI document and the registered routes drift apart:\n%w", errors.Join(drift...))
	}
	return nil
}

// access is the ways to be let in, sorted: each is sorted scopes, or one of the
// two words below. Nil is a document that says nothing.
type access []string

const (
	noKey  = "no key"
	anyKey = "any key"
)

func (a access) String() string {
	if a == nil {
		return "nothing"
	}
	return strings.Join(a, " or ")
}

// description is the part of a document that is compared.
type description struct {
	OpenAPI string `json:"openapi"`
	Servers []struct {
		URL       string
		Variables map[string]struct{ Default string }
	}
	Security   []map[string][]string
	Paths      map[string]json.RawMessage
	Components struct {
		SecuritySchemes map[string]struct{ Type, Scheme string }
	}
}

// readOperations returns what the document says of each operation, under "GET
// /path/{}".
func readOperations(document []byte) (map[string]access, error) {
	var d description
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("the OpenAPI document is not JSON of the right shape: %w", err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.") {
		return nil, fmt.Errorf("the document is of OpenAPI %q, and not of 3.x", d.OpenAPI)
	}
	base, err := d.base()
	if err != nil {
		return nil, err
	}
	all := make(map[string]access)
	var mistakes []error
	for path, raw := range d.Paths {
		if !strings.HasPrefix(path, "/") {
			continue // an extension
		}
		var item map[string]json.RawMessage
		if err := json.Unmarshal(raw, &item); err != nil {
			mistakes = append(mistakes, fmt.Errorf("the path %s: %w", path, err))
		}
		if _, ok := item["$ref"]; ok {
			mistakes = append(mistakes, fmt.Errorf("the path %s is a $ref, which is not followed", path))
		}
		for _, method := range documentMethods {
			if item[method] == nil {
				continue
			}
			var o struct{ Security []map[string][]string }
			if err := json.Unmarshal(item[method], &o); err != nil {
				mistakes = append(mistakes, fmt.Errorf("%s %s: %w", method, path, err))
				continue
			}
			if o.Security == nil {
				o.Security = d.Security
			}
			all[strings.ToUpper(method)+" "+wildcard.ReplaceAllString(base+path, "{}")] = d.access(o.Security)
		}
	}
	return all, errors.Join(mistakes...)
}

// base returns the path of the first server, which stands in front of all paths.
func (d description) base() (string, error) {
	if len(d.Servers) == 0 {
		return "", nil
	}
	text := d.Servers[0].URL
	for name, variable := range d.Servers[0].Variables {
		text = strings.ReplaceAll(text, "{"+name+"}", variable.Default)
	}
	server, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("the first server: %w", err)
	}
	return strings.TrimSuffix(server.Path, "/"), nil
}

// access returns the ways to be let in that the requirements name.
func (d description) access(requirements []map[string][]string) access {
	if requirements == nil {
		return nil
	}
	if len(requirements) == 0 { // "security": []
		return access{noKey}
	}
	var ways access
	for _, requirement := range requirements {
		var scopes []string
		for name, roles := range requirement {
			scheme := d.Components.SecuritySchemes[name]
			bearer := scheme.Type == "http" && strings.EqualFold(scheme.Scheme, "bearer")
			if !bearer && scheme.Type != "oauth2" && scheme.Type != "openIdConnect" {
				roles = []string{"the scheme " + name + ", which is no bearer scheme,"}
			}
			scopes = append(scopes, roles...)
		}
		slices.Sort(scopes)
		switch {
		case len(requirement) == 0:
			ways = append(ways, noKey)
		case len(scopes) == 0:
			ways = append(ways, anyKey)
		default:
			ways = append(ways, strings.Join(slices.Compact(scopes), " "))
		}
	}
	slices.Sort(ways)
	return slices.Compact(ways)
}
