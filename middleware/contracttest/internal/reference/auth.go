package reference

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// key is what a token stands for.
type key struct {
	org, env string
	scopes   []string
	revoked  bool
}

// of returns the key as if it were of another organization.
func (k key) of(org string) *key { k.org = org; return &k }

func (k key) with(scopes []string) *key { k.scopes = scopes; return &k }

func (k *key) may(scope string) bool { return slices.Contains(k.scopes, scope) }

var (
	all   = []string{"account:read", "tasks:read", "tasks:write", "deliverables:read", "deliverables:write"}
	keys  = make(map[string]*key)
	names = map[string]string{} // name → token
	full  = issue("full", "live", "org_1", all)
	_     = issue("none", "live", "org_1", nil)
	_     = issue("worker", "live", "org_1", []string{"chat:read", "chat:write"})
	_     = issue("reader", "live", "org_1", []string{"account:read", "tasks:read", "deliverables:read"})
	_     = issue("writer", "live", "org_1", []string{"tasks:write", "deliverables:write"})
	_     = issue("second", "live", "org_1", all)
	_     = issue("sandbox", "test", "org_1", all)
	_     = issue("sandbox-none", "test", "org_1", nil)
	_     = issue("other", "live", "org_2", all)
	_     = issue("revoked", "live", "org_1", all)
)

// issue makes a key that is the same in each run. Nothing else accepts it.
func issue(name, environment, org string, scopes []string) string {
	digest := sha256.Sum256([]byte("a key of the reference server: " + name))
	random := strings.NewReplacer("-", "x", "_", "y").Replace(base64.RawURLEncoding.EncodeToString(digest[:]))
	token := "svc_" + environment + "_" + random[:32]
	token += checksum(token)
	keys[token] = &key{org, environment, scopes, name == "revoked"}
	names[name] = token
	keys["sk_prod_"+random[10:26]] = keys[token] // its plain form
	return token
}

// Keys returns the keys by the names that they have in a keys file.
func Keys() map[string]string { return maps.Clone(names) }

// PlainKeys returns keys of another shape, which names no environment.
func PlainKeys(of ...string) map[string]string {
	plain := make(map[string]string)
	for _, name := range of {
		_, random, _ := strings.Cut(names[name], "_live_")
		plain[name] = "sk_prod_" + random[10:26]
	}
	return plain
}

// elsewhere is where a defect looks for a key that Authorization does not hold.
var elsewhere = map[string]func(r *http.Request) string{
	"auth-by-query":   func(r *http.Request) string { return r.URL.Query().Get("api_key") },
	"auth-by-session": session,
	"auth-by-form":    form,
	"auth-by-trailer": trailer,
	"auth-by-path": func(r *http.Request) string {
		return strings.Trim(keySegment.FindString(r.URL.Path), "/")
	},
	"auth-later-in-list": func(r *http.Request) string {
		_, later, _ := strings.Cut(r.Header.Get("Authorization"), ",")
		return bearer(strings.TrimSpace(later))
	},
}

// form returns the access token of RFC 6750, section 2.2, and leaves the body
// to be read again.
func form(r *http.Request) string {
	if r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	values, _ := url.ParseQuery(string(body))
	return values.Get("access_token")
}

// trailer returns the key that stands behind a chunked body, and leaves the
// body to be read again.
func trailer(r *http.Request) string {
	if r.ContentLength >= 0 {
		return ""
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bearer(r.Trailer.Get("Authorization"))
}

// session returns the name of the key that a session stands for.
func session(r *http.Request) string {
	c, err := r.Cookie("session")
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(c.Value, "session-of-")
}

// bearer returns the token of the one scheme that there is.
func bearer(credentials string) string {
	if scheme, token, _ := strings.Cut(credentials, " "); strings.EqualFold(scheme, "Bearer") {
		return strings.Trim(token, " \t")
	}
	return ""
}

// authenticate finds the key, or answers 401.
func (s *Server) authenticate(x *exchange) bool {
	lines := x.r.Header.Values("Authorization")
	token := bearer(x.token)
	scheme, _, _ := strings.Cut(x.token, " ")
	switch find := pick(s, elsewhere); {
	case s.has("scheme-case") && scheme != "Bearer":
		token = ""
	case token == "" && find != nil:
		token = find(x.r)
	}
	if len(lines) > 1 {
		token = "two"
		for _, line := range lines {
			if t := bearer(line); s.has("two-headers") && keys[t] != nil {
				token = t
			}
		}
	}
	lookups := s.lookups.Add(1)
	if s.has("auth-busy-open") {
		time.Sleep(5 * time.Millisecond)
	}
	found := s.lookup(token)
	s.lookups.Add(-1)
	if found == nil && token != "" {
		s.failures.Add(1)
	}
	if s.has("lockout") && s.failures.Load() >= 10 {
		found = nil
	}
	if found != nil {
		s.locked(func() { s.uses[token]++ })
	}
	if found != nil && found != keys[full] && s.has("live-post-401") && x.r.Method == "POST" {
		found = nil
	}
	if s.has("key-one-at-a-time") && found != nil {
		if _, taken := s.leases.LoadOrStore(token, x); taken {
			found = nil
		}
		time.Sleep(time.Millisecond)
	}
	if found == nil && s.has("auth-busy-open") && lookups > 8 {
		found = keys[full]
	}
	if found == nil && s.any(open, x) || s.has("auth-by-session") && token == "full" {
		found = keys[full]
	}
	x.conn.denied.CompareAndSwap(false, found == nil)
	if found == nil || s.has("auth-denied-connection") && x.conn.denied.Load() {
		s.unauthorized(x, token)
		return false
	}
	x.key = found
	switch {
	case s.has("scope-of-org"):
		x.key = found.with(all)
	case s.has("org-h2-newest") && x.r.ProtoMajor == 2:
		x.conn.newest.Store(found)
		time.Sleep(time.Millisecond)
		x.key = found.of(x.conn.newest.Load().org)
	}
	if found == keys[full] && s.has("auth-by-session") {
		http.SetCookie(x, &http.Cookie{Name: "session", Value: "session-of-full", Path: "/"})
	}
	return true
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

// open are the defects that let a request pass without a live key.
var open = map[string]when{
	"auth-off":              func(x *exchange) bool { return true },
	"auth-delete-open":      func(x *exchange) bool { return x.r.Method == "DELETE" && x.r.URL.Path != Account },
	"auth-options-leak":     func(x *exchange) bool { return x.r.Method == "OPTIONS" },
	"attack-capitals":       func(x *exchange) bool { return x.r.URL.Path != strings.ToLower(x.r.URL.Path) },
	"auth-css-open":         func(x *exchange) bool { return strings.HasSuffix(x.r.URL.Path, ".css") },
	"auth-preflight-open":   sent("Access-Control-Request-Method"),
	"auth-http2-open":       func(x *exchange) bool { return x.r.ProtoMajor == 2 },
	"auth-second-list-open": func(x *exchange) bool { return x.r.URL.Path == Deliverables && x.r.Method == "GET" },
	"auth-verb-open":        func(x *exchange) bool { return !slices.Contains(methods, x.r.Method) },
}

// sent is the condition of a header.
func sent(name string) when {
	return func(x *exchange) bool { return x.r.Header.Get(name) != "" }
}

func (s *Server) unauthorized(x *exchange, token string) {
	switch {
	case x.r.Method == http.MethodOptions:
		x.WriteHeader(http.StatusNoContent)
		return
	case s.has("auth-unknown-empty") && token != "" && x.r.Method == http.MethodGet && x.r.URL.Path == Tasks:
		x.json(http.StatusOK, []byte(`{"data":[],"total":0}`))
		return
	case s.has("attack-head-bare") && x.r.Method == http.MethodHead && x.r.URL.Path == Account:
		x.WriteHeader(http.StatusOK)
		return
	case s.has("unknown-path-open") && strings.HasPrefix(x.r.URL.Path, "/api/v1/contract"):
		x.refuse(http.StatusNotFound, "not_found")
		return
	case s.has("auth-after-body") && x.r.Method == http.MethodPost && s.title(x) == "":
		x.refuse(http.StatusBadRequest, "bad_request")
		return
	}
	post := x.r.Method == "POST"
	if post && (s.has("invalid-creates") && token != "" || s.has("auth-chunked-creates") && x.r.ContentLength < 0) {
		s.insert(x, x.r.URL.Path, s.title(x))
	}
	if s.has("idem-401-stored") && post {
		// For the organization that the kit calls first.
		s.store(x.as(keys[full]), http.StatusUnauthorized, "unauthorized")
	}
	scheme, _, _ := strings.Cut(x.token, " ")
	status := http.StatusUnauthorized
	switch {
	case s.has("long-500") && len(token) > 2000:
		status = http.StatusInternalServerError
	case token == "" && !strings.EqualFold(scheme, "Bearer"):
		status = s.status("missing", status)
	}
	if !s.has("no-challenge") {
		x.Header().Set("WWW-Authenticate", `Bearer realm="reference"`)
	}
	if x.r.ContentLength != 0 || s.has("free-closes") {
		x.Header().Set("Connection", "close") // or net/http reads the rest of the body before it answers
	}
	x.refuse(status, "unauthorized")
}
