package rules

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Target is what is checked. As JSON it is a keys file.
type Target struct {
	URL     string         `json:"base_url"` // http or https, with the path that all routes have in front, if any
	RootCAs *x509.CertPool `json:"-"`

	Keys    map[string]string // by the names of offers, and "full"
	Base    string            // path that all routes begin with; "" means /api/v1, and / that there is none
	Read    string            // path of a GET that the full key may call; "" means Base/account
	Creates []Create
	Without []string // names of offers that the target does not have

	RequestIDHeader string `json:"request_id_header"` // "" means Svc-Request-Id
	Wire            bool   `json:"-"`                 // check the wire rules too
	Profile         string // of a protocol, whose rules are checked too; "" for none

	// Dial replaces the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`
	// Burst bounds the requests that look for the rate limit; 0 means 2000.
	Burst int `json:"-"`
}

// A Create is a POST that creates.
type Create struct {
	Path string
	Body string // with {{random}}, {{uuid}} and {{number}} for what must be unique
	Type string // "" means application/json
	List string // path of a GET that shows what was created; "" when there is none
}

// KeyNames returns the names that keys have.
func KeyNames() []string {
	return []string{"full", "none", "worker", "reader", "writer", "sandbox", "sandbox-none", "other", "second", "revoked"}
}

// complete fills in defaults and returns all mistakes at once.
func (t *Target) complete() (*url.URL, error) {
	t.Base = strings.TrimRight(cmp.Or(t.Base, "/api/v1"), "/")
	t.Read = cmp.Or(t.Read, t.Base+"/account")
	t.RequestIDHeader = http.CanonicalHeaderKey(cmp.Or(t.RequestIDHeader, "Svc-Request-Id"))
	t.Burst = cmp.Or(t.Burst, 2000)
	t.Creates = slices.Clone(t.Creates)
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }

	base, err := url.Parse(t.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		mistake("%q is not the URL of a server", t.URL)
	} else if base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		mistake("the URL of %s has a user, a query or a fragment: only the path may stand behind the host", base.Host)
	} else if t.Base != "" && strings.HasSuffix(strings.TrimRight(base.Path, "/"), t.Base) {
		mistake("the URL %s ends in %s, which the paths have too: leave it out", t.URL, t.Base)
	}
	t.URL = strings.TrimRight(t.URL, "/")

	if _, known := profiles[t.Profile]; !known && t.Profile != "" {
		names := strings.Join(slices.Sorted(maps.Keys(profiles)), ", ")
		mistake("there is no profile called %q; the names are %s", t.Profile, names)
	}
	paths := []string{t.Read}
	for i := range t.Creates {
		c := &t.Creates[i]
		c.Type = cmp.Or(c.Type, "application/json")
		paths = append(paths, c.Path)
		if c.List != "" {
			paths = append(paths, c.List)
		}
	}
	for _, path := range paths {
		clean, _, _ := strings.Cut(path, "?")
		if rest, ok := strings.CutPrefix(clean, t.Base+"/"); !ok || rest == "" {
			mistake("the path %q does not begin with %s/ and a name", path, t.Base)
		}
	}
	if len(t.Creates) > 2 {
		mistake("there are %d routes that create: give the two that differ most", len(t.Creates))
	}
	t.checkKeys(mistake)
	t.checkWithout(mistake)
	return base, errors.Join(mistakes...)
}

func (t *Target) checkKeys(mistake func(string, ...any)) {
	if t.Keys["full"] == "" {
		mistake("there is no full key: without one nothing can be looked at")
	}
	byKey := make(map[string]string)
	for _, name := range KeyNames() {
		key := t.Keys[name]
		switch {
		case key == "":
			continue
		case byKey[key] != "":
			mistake("the keys %s and %s are the same", byKey[key], name)
		case len(key) < 8:
			mistake("the key %s is too short to be one", name)
		case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
			mistake("the key %s has a space or a character that no header can carry", name)
		}
		byKey[key] = name
	}
	if full := t.Keys["full"]; full != "" && byKey[flipLast(full)] != "" {
		mistake("the keys full and %s differ in their last byte alone: the check takes such a key for one made up",
			byKey[flipLast(full)])
	}
	for name := range t.Keys {
		if !slices.Contains(KeyNames(), name) {
			mistake("there is no key called %q; the names are %s", name, strings.Join(KeyNames(), ", "))
		}
	}
	t.checkEnvironments(mistake)
}

// checkEnvironments looks for keys whose shape names another environment than
// their name does. Full may be a test key, where there is no sandbox key.
func (t *Target) checkEnvironments(mistake func(string, ...any)) {
	home := cmp.Or(environment(t.Keys["full"]), "live")
	if t.Keys["sandbox"] != "" {
		home = "live"
	}
	var strange []string
	for _, name := range KeyNames() {
		e := environment(t.Keys[name])
		if sandbox := strings.HasPrefix(name, "sandbox"); e != "" && (sandbox && e == "live" || !sandbox && e != home) {
			strange = append(strange, name)
		}
	}
	if len(strange) == 2 && environment(t.Keys[strange[0]]) != environment(t.Keys[strange[1]]) {
		mistake("the keys %s and %s are swapped: their shapes name the other environment", strange[0], strange[1])
		return
	}
	for _, name := range strange {
		mistake("the key %s is a %s key by its shape: is it swapped with another?", name, environment(t.Keys[name]))
	}
}

func (t *Target) checkWithout(mistake func(string, ...any)) {
	for _, name := range t.Without {
		switch {
		case !slices.ContainsFunc(offers, func(o Offer) bool { return o.Name == name }):
			var names []string
			for _, o := range offers {
				names = append(names, o.Name)
			}
			mistake("nothing called %q can be left out; the names are %s", name, strings.Join(names, ", "))
		case name != "rate-limit" && slices.Contains(t.offered(), name):
			mistake("%s is both given and left out", name)
		}
	}
}

// offered returns the names of the offers that are given. Whether there is a
// rate limit shows later.
func (t *Target) offered() []string {
	var names []string
	for _, name := range KeyNames() {
		if t.Keys[name] != "" {
			names = append(names, name)
		}
	}
	for i, c := range t.Creates {
		names = append(names, []string{"create", "second-create"}[min(i, 1)])
		if c.List != "" {
			names = append(names, []string{"list", "second-list"}[min(i, 1)])
		}
	}
	return names
}

// environment returns "live" or "test" when the shape of a key names it.
func environment(key string) string {
	parts := strings.Split(key, "_")
	if len(parts) >= 3 && (parts[1] == "live" || parts[1] == "test") {
		return parts[1]
	}
	return ""
}
