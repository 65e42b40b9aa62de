package reference

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// key is what a token stands for.
type key struct {
	org, env string
	scopes   []string
	revoked  bool
}

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
	token := "svc_" + environment + "_" + random[:38]
	keys[token] = &key{org, environment, scopes, name == "revoked"}
	names[name] = token
	return token
}

// Keys returns the keys by the names that they have in a keys file.
func Keys() map[string]string {
	all := make(map[string]string)
	for name, token := range names {
		all[name] = token
	}
	return all
}

// authenticate finds the key, or answers 401.
func (s *Server) authenticate(x *exchange) bool {
	h := x.r.Header
	lines := h.Values("Authorization")
	scheme, token := "", ""
	if len(lines) > 0 {
		scheme, token, _ = strings.Cut(lines[0], " ")
		token = strings.TrimSpace(token)
	}
	bearer := strings.EqualFold(scheme, "Bearer")
	if s.has("scheme-case") {
		bearer = scheme == "Bearer"
	}
	if s.has("auth-any-scheme") {
		bearer = token != ""
	}
	if !bearer {
		token = ""
	}
	if token == "" {
		token = s.elsewhere(x, scheme)
	}
	if len(lines) > 1 {
		token = "two"
		if s.has("two-headers") {
			for _, line := range lines {
				if _, t, _ := strings.Cut(line, " "); keys[t] != nil {
					token = t
				}
			}
		}
	}
	found := s.lookup(token)
	if s.has("lockout") {
		s.locked(func() {
			if found == nil && token != "" {
				s.failures++
			}
			if s.failures >= 10 {
				found = nil
			}
		})
	}
	if found == nil && s.open(x, token) {
		found = keys[full]
	}
	found = s.byConnection(x, found)
	if s.has("auth-denied-connection") {
		x.conn.mu.Lock()
		x.conn.denied = x.conn.denied || found == nil
		if x.conn.denied {
			found = nil
		}
		x.conn.mu.Unlock()
	}
	x.key = found
	if found != nil {
		if s.has("auth-by-session") && found == keys[full] {
			http.SetCookie(x, &http.Cookie{Name: "session", Value: "session-of-full", Path: "/"})
		}
		return true
	}
	if x.r.Method == http.MethodOptions {
		x.WriteHeader(http.StatusNoContent)
		return false
	}
	if s.has("attack-head-bare") && x.r.Method == http.MethodHead && x.r.URL.Path == Account {
		x.WriteHeader(http.StatusOK)
		return false
	}
	if s.has("unknown-path-open") && x.r.URL.Path != Account && x.r.URL.Path != Tasks && x.r.URL.Path != Deliverables {
		x.refuse(http.StatusNotFound, "not_found")
		return false
	}
	if s.has("auth-after-body") && x.r.Method == http.MethodPost && s.title(x) == "" {
		x.refuse(http.StatusBadRequest, "bad_request")
		return false
	}
	s.unauthorized(x, token, bearer)
	return false
}

// elsewhere looks for a key where none should be.
func (s *Server) elsewhere(x *exchange, scheme string) string {
	h := x.r.Header
	switch {
	case s.has("auth-by-query"):
		return x.r.URL.Query().Get("api_key")
	case s.has("auth-by-header"):
		return h.Get("X-Api-Key")
	case s.has("auth-by-cookie"):
		if c, err := x.r.Cookie("api_key"); err == nil {
			return c.Value
		}
	case s.has("auth-by-session"):
		if c, err := x.r.Cookie("session"); err == nil && c.Value == "session-of-full" {
			return full
		}
	case s.has("auth-by-basic"):
		_, password, _ := x.r.BasicAuth()
		return password
	case s.has("auth-without-scheme"):
		return scheme
	}
	return ""
}

// open reports whether a defect lets a request pass without a live key.
func (s *Server) open(x *exchange, token string) bool {
	m, path := x.r.Method, x.r.URL.Path
	asFull := x.as(keys[full])
	switch {
	case s.has("auth-off"),
		s.has("auth-get-only") && m != "GET",
		s.has("auth-post-only") && m != "POST",
		s.has("auth-other-methods-open") && (m == "PUT" || m == "PATCH"),
		s.has("auth-delete-open") && m == "DELETE" && path != Account,
		s.has("auth-options-leak") && m == "OPTIONS",
		s.has("auth-head-open") && m == "HEAD",
		s.has("auth-slash-open") && strings.HasSuffix(path, "/"),
		s.has("auth-doubled-open") && strings.Contains(path, "//"),
		s.has("auth-encoded-open") && strings.Contains(x.r.RequestURI, "%2F"),
		s.has("attack-capitals") && path != strings.ToLower(path),
		s.has("attack-revoked-creates") && m == "POST" && keys[token] != nil,
		s.has("attack-replay-open") && s.stored(asFull, path) != nil && token != names["revoked"],
		s.has("attack-replay-revoked") && s.stored(asFull, path) != nil && token == names["revoked"],
		s.has("auth-http2-post-open") && x.r.ProtoMajor == 2 && m == "POST",
		s.has("auth-http2-open") && x.r.ProtoMajor == 2,
		s.has("auth-override-open") && x.r.Header.Get("X-HTTP-Method-Override") != "",
		s.has("empty-accepted") && token == "" && strings.EqualFold(strings.TrimSpace(x.token), "Bearer"):
		return true
	}
	return false
}

// lookup compares a token with the keys.
func (s *Server) lookup(token string) *key {
	if k := keys[token]; k != nil && (!k.revoked || s.has("revoked-accepted")) {
		return k
	}
	if first, _, more := strings.Cut(token, " "); s.has("token-first-word") && more && keys[first] != nil {
		return keys[first]
	}
	if first, _, more := strings.Cut(token, ","); s.has("token-first-of-list") && more && keys[first] != nil {
		return keys[first]
	}
	switch {
	case s.has("token-like") && token == "svc_live_%",
		s.has("token-glob") && token == "svc_live_*",
		s.has("token-sql") && strings.Contains(token, "' OR '1'='1"),
		s.has("any-shape") && (strings.HasPrefix(token, "svc_live_") || strings.HasPrefix(token, "svc_test_")):
		return keys[full]
	}
	const prefix = len("svc_live_")
	for known, k := range keys {
		// but says whether the two are the same outside these bytes.
		but := func(from, to int) bool {
			return len(token) == len(known) && token[:from] == known[:from] && token[to:] == known[to:]
		}
		end := len(known)
		switch {
		case k.revoked:
		case s.has("prefix-compared") && len(token) > prefix+4 && strings.HasPrefix(known, token),
			s.has("suffix-ignored") && strings.HasPrefix(token, known),
			s.has("sandbox-last-byte") && k.env == "test" && but(end-1, end),
			s.has("last-byte-ignored") && but(end-1, end),
			s.has("case-ignored") && strings.EqualFold(token, known),
			s.has("first-byte-ignored") && but(prefix, prefix+1),
			s.has("environment-ignored") && but(0, prefix):
			return k
		}
	}
	return nil
}

// byConnection mixes up the keys of a connection.
func (s *Server) byConnection(x *exchange, found *key) *key {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	first := x.conn.first
	if first == nil {
		x.conn.first = found
		return found
	}
	switch {
	case s.has("auth-once-a-connection") && found == nil:
		return first
	case s.has("scope-of-connection") && found != nil:
		mixed := *found
		mixed.scopes = first.scopes
		return &mixed
	case (s.has("org-of-connection") || s.has("org-second-of-connection") && x.r.URL.Path == Deliverables) && found != nil:
		mixed := *found
		mixed.org = first.org
		return &mixed
	}
	return found
}

// unauthorized answers 401.
func (s *Server) unauthorized(x *exchange, token string, bearer bool) {
	if s.has("invalid-creates") && x.r.Method == "POST" && token != "" {
		s.insert(x, x.r.URL.Path, s.title(x))
	}
	if s.has("idem-401-stored") && x.r.Method == "POST" {
		// For the organization that the kit calls first.
		s.store(x.as(keys[full]), http.StatusUnauthorized, "unauthorized")
	}
	status := http.StatusUnauthorized
	switch {
	case s.has("short-500") && token != "" && len(token) < len("svc_live_"),
		s.has("token-quote-500") && strings.Contains(token, "'"),
		s.has("token-byte-500") && strings.Contains(token, "\xff"):
		status = 500
	case s.has("revoked-403") && keys[token] != nil:
		status = 403
	case token == "" && !bearer:
		status = s.status("missing", status)
	case !s.has("invalid-500") || !strings.HasPrefix(token, "svc_"):
		status = s.status("invalid", status)
	}
	if status == http.StatusFound {
		x.Header().Set("Location", "/login")
	}
	if !s.has("no-challenge") {
		x.Header().Set("WWW-Authenticate", `Bearer realm="reference"`)
	}
	if x.r.ContentLength != 0 {
		x.Header().Set("Connection", "close") // or net/http reads the rest of the body before it answers
	}
	code := "unauthorized"
	if s.has("secret-in-error") {
		code = fmt.Sprintf("the key %s is not known", token)
	}
	x.refuse(status, code)
}

// allow wants a scope, or answers 403.
func (s *Server) allow(x *exchange, scope string) bool {
	k, path := x.key, x.r.URL.Path
	family, _, _ := strings.Cut(scope, ":")
	inFamily := slices.ContainsFunc(k.scopes, func(held string) bool { return strings.HasPrefix(held, family+":") })
	switch {
	case k.may(scope), s.has("scope-off"),
		s.has("scope-any") && len(k.scopes) > 0,
		s.has("scope-family") && inFamily,
		s.has("scope-write-reads") && k.may(family+":write"),
		s.has("scope-get-open") && x.r.Method == "GET",
		s.has("scope-head-open") && x.r.Method == "HEAD",
		s.has("scope-slash-open") && strings.HasSuffix(path, "/"),
		s.has("scope-doubled-open") && strings.Contains(path, "//"),
		s.has("scope-second-list-open") && path == Deliverables && x.r.Method == "GET",
		s.has("scope-second-open") && path == Deliverables,
		s.has("scope-override") && x.r.Header.Get("X-HTTP-Method-Override") != "" && x.r.Method == "GET",
		s.has("scope-http2-post-open") && x.r.ProtoMajor == 2 && x.r.Method == "POST",
		s.has("attack-scope-http2") && x.r.ProtoMajor == 2,
		s.has("sandbox-unscoped") && k.env == "test":
		return true
	}
	x.refuse(s.status("lacking", http.StatusForbidden), "insufficient_scope")
	return false
}
