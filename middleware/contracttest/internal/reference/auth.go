package reference

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
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

var orgs = []string{"org_1", "org_2"}

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
	plain := "sk_prod_" + random[10:26]
	keys[plain] = keys[token]
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
	"auth-by-query":        func(r *http.Request) string { return r.URL.Query().Get("api_key") },
	"auth-by-header":       func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
	"auth-by-cookie":       func(r *http.Request) string { return cookie(r, "api_key") },
	"auth-by-session":      session,
	"auth-session-create":  session,
	"auth-by-basic":        func(r *http.Request) string { _, password, _ := r.BasicAuth(); return password },
	"auth-without-scheme":  func(r *http.Request) string { return r.Header.Get("Authorization") },
	"auth-by-proxy-header": func(r *http.Request) string { return bearer(r.Header.Get("Proxy-Authorization")) },
	"auth-by-form":         form,
	"auth-by-trailer":      trailer,
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

// session returns the name of the key that a session stands for.
func session(r *http.Request) string { return strings.TrimPrefix(cookie(r, "session"), "session-of-") }

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

func cookie(r *http.Request, name string) string {
	if c, err := r.Cookie(name); err == nil {
		return c.Value
	}
	return ""
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
	scheme, rest, _ := strings.Cut(x.token, " ")
	switch find := pick(s, elsewhere); {
	case s.has("scheme-case") && scheme != "Bearer":
		token = ""
	case s.has("auth-any-scheme"):
		token = rest
	case s.has("scheme-doubled"):
		for bearer(token) != "" {
			token = bearer(token)
		}
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
	if s.has("auth-coalesced") && token != "" {
		found = s.beside("lookup", found)
	}
	s.lookups.Add(-1)
	if found == nil && token != "" {
		s.failures.Add(1)
	}
	if s.has("lockout") && s.failures.Load() >= 10 {
		found = nil
	}
	if found != nil {
		s.seen.Store(true)
		s.locked(func() { s.uses[token]++ })
	}
	if found != nil && found != keys[full] && s.has("live-post-401") && x.r.Method == "POST" {
		found = nil
	}
	if s.has("invalid-poisons") && len(token) >= 16 {
		if at, ok := s.poisoned.Load(token[:16]); ok && time.Since(at.(time.Time)) < time.Second {
			found = nil
		} else if found == nil {
			s.poisoned.Store(token[:16], time.Now())
		}
	}
	if s.has("cookie-beats-key") && cookie(x.r, "session") != "" {
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
	sessions := s.has("auth-by-session") || s.has("auth-session-create")
	if found == nil && s.any(open, x) || sessions && token == "full" {
		found = keys[full]
	}
	if found = s.byConnection(x, found); found == nil {
		s.unauthorized(x, token)
		return false
	}
	x.key = found
	if claim := pick(s, claims); claim != nil {
		x.key = claim(x, *found)
	}
	if found == keys[full] && (s.has("auth-by-session") || s.has("auth-session-create") && x.r.Method == "POST") {
		http.SetCookie(x, &http.Cookie{Name: "session", Value: "session-of-full", Path: "/"})
	}
	return true
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}

// open are the defects that let a request pass without a live key.
var open = map[string]when{
	"auth-off":                func(x *exchange) bool { return true },
	"auth-get-only":           func(x *exchange) bool { return x.r.Method != "GET" },
	"auth-post-only":          func(x *exchange) bool { return x.r.Method != "POST" },
	"auth-other-methods-open": func(x *exchange) bool { return x.r.Method == "PUT" || x.r.Method == "PATCH" },
	"auth-delete-open":        func(x *exchange) bool { return x.r.Method == "DELETE" && x.r.URL.Path != Account },
	"auth-options-leak":       func(x *exchange) bool { return x.r.Method == "OPTIONS" },
	"auth-head-open":          func(x *exchange) bool { return x.r.Method == "HEAD" },
	"auth-slash-open":         func(x *exchange) bool { return strings.HasSuffix(x.r.URL.Path, "/") },
	"auth-doubled-open":       func(x *exchange) bool { return strings.Contains(x.r.URL.Path, "//") },
	"auth-encoded-open":       func(x *exchange) bool { return strings.Contains(x.r.RequestURI, "%2F") },
	"auth-letter-open":        func(x *exchange) bool { return strings.Contains(x.r.RequestURI, "%61") },
	"auth-suffix-open":        func(x *exchange) bool { return strings.HasSuffix(x.r.URL.Path, ".json") },
	"auth-v2-open":            func(x *exchange) bool { return strings.HasPrefix(x.r.URL.Path, "/api/v2/") },
	"auth-absolute-open":      func(x *exchange) bool { return strings.HasPrefix(x.r.RequestURI, "http") },
	"attack-capitals":         func(x *exchange) bool { return x.r.URL.Path != strings.ToLower(x.r.URL.Path) },
	"attack-revoked-creates":  func(x *exchange) bool { return x.r.Method == "POST" && keys[bearer(x.token)] != nil },
	"attack-replay-open":      func(x *exchange) bool { return x.repeats() && bearer(x.token) != names["revoked"] },
	"attack-replay-revoked":   func(x *exchange) bool { return x.repeats() && bearer(x.token) == names["revoked"] },
	"auth-http2-post-open":    func(x *exchange) bool { return x.r.ProtoMajor == 2 && x.r.Method == "POST" },
	"auth-http2-open":         func(x *exchange) bool { return x.r.ProtoMajor == 2 },
	"auth-http10-open":        func(x *exchange) bool { return !x.r.ProtoAtLeast(1, 1) },
	"auth-override-open":      sent("X-Http-Method-Override"),
	"empty-accepted":          func(x *exchange) bool { return strings.EqualFold(strings.TrimSpace(x.token), "Bearer") },
	"auth-any-cookie":         sent("Cookie"),
	"auth-etag-open":          sent("If-None-Match"),
	"auth-range-open":         sent("Range"),
	"auth-cors-open":          sent("Origin"),
	"auth-url-open":           sent("X-Original-Url"),
	"auth-subrequest-open":    sent("X-Middleware-Subrequest"),
	"auth-upgrade-open":       sent("Upgrade"),
	"auth-local-open":         func(x *exchange) bool { return x.r.Header.Get("X-Forwarded-For") == "127.0.0.1" },
	"auth-host-open":          func(x *exchange) bool { return strings.HasPrefix(x.r.Host, "localhost") },
	"auth-probe-open":         func(x *exchange) bool { return strings.HasPrefix(x.r.UserAgent(), "kube-probe/") },
	"auth-second-list-open":   func(x *exchange) bool { return x.r.URL.Path == Deliverables && x.r.Method == "GET" },
	"auth-dots-open":          func(x *exchange) bool { return strings.Contains(x.r.URL.Path, "/../") },
	"auth-verb-open":          func(x *exchange) bool { return !slices.Contains(methods, x.r.Method) },
	"auth-semicolon-open":     func(x *exchange) bool { return strings.Contains(x.r.URL.Path, ";") },
	"auth-stream-open":        func(x *exchange) bool { return x.r.Header.Get("Accept") == "text/event-stream" },
	"auth-text-open": func(x *exchange) bool {
		return strings.HasPrefix(x.r.Header.Get("Content-Type"),
			"text/plain")
	},
	"revoked-second-path": func(x *exchange) bool {
		return x.r.URL.Path == Deliverables && bearer(x.token) == names["revoked"]
	},
	"auth-body-open":    func(x *exchange) bool { return x.r.Method == "GET" && x.r.ContentLength != 0 },
	"auth-address-open": func(x *exchange) bool { return x.token == "" && x.s.seen.Load() },
	"item-open":         func(x *exchange) bool { return strings.HasPrefix(x.r.URL.Path, Tasks+"/") },
	"auth-gateway-header": func(x *exchange) bool {
		return sent("X-Authenticated-Userid")(x) || sent("X-Consumer-Id")(x)
	},
	"auth-newline-open":        func(x *exchange) bool { return strings.HasSuffix(x.r.URL.Path, "\n") },
	"auth-double-encoded-open": func(x *exchange) bool { return strings.Contains(x.r.RequestURI, "%25") },
}

// sent is the condition of a header.
func sent(name string) when {
	return func(x *exchange) bool { return x.r.Header.Get(name) != "" }
}

// repeats reports whether the request repeats a create of the full key.
func (x *exchange) repeats() bool { return x.s.stored(x.as(keys[full]), x.r.URL.Path) != nil }

// byConnection mixes up the keys of a connection.
func (s *Server) byConnection(x *exchange, found *key) *key {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	x.conn.requests++
	x.conn.denied = x.conn.denied || found == nil
	if s.has("auth-denied-connection") && x.conn.denied {
		return nil
	}
	first := x.conn.first
	if first == nil {
		x.conn.first = found
		return found
	}
	if s.has("auth-once-a-connection") && found == nil {
		return first
	}
	switch {
	case found == nil:
		return nil
	case s.has("scope-of-connection"):
		return &key{org: found.org, env: found.env, scopes: first.scopes}
	case s.has("org-of-connection"), s.has("org-second-of-connection") && x.r.URL.Path == Deliverables:
		return found.of(first.org)
	}
	return found
}

// unauthorized answers 401.
func (s *Server) unauthorized(x *exchange, token string) {
	switch {
	case x.r.Method == http.MethodOptions:
		x.WriteHeader(http.StatusNoContent)
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
	switch claim := s.stored(x.as(keys[full]), x.r.URL.Path); {
	case s.has("missing-item-404") && itemPath.MatchString(x.r.URL.Path) && !s.exists(x.r.URL.Path):
		x.refuse(http.StatusNotFound, "not_found")
		return
	case s.has("missing-grpc-200") && post && token == "" && x.r.Header.Get("Content-Type") == "application/grpc":
		x.Header().Set("Content-Type", "application/grpc")
		x.Header().Set("Grpc-Status", "16")
		x.WriteHeader(http.StatusOK)
		return
	case s.has("invalid-in-flight-409") && post && token != "" && claim != nil && claim.running():
		x.conflict()
		return
	}
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
	case s.has("short-500") && token != "" && len(token) < prefix,
		s.has("long-500") && len(token) > 2000,
		s.has("token-quote-500") && strings.Contains(token, "'"),
		s.has("token-byte-500") && strings.Contains(token, "\xff"):
		status = 500
	case s.has("scheme-400") && scheme != "" && !strings.EqualFold(scheme, "Bearer"):
		status = 400
	case s.has("rate-stranger-bare") && s.failures.Load() > 5 && token != "":
		status = 429
	case s.has("revoked-403") && keys[token] != nil:
		status = 403
	case s.has("missing-csrf") && token == "" && post && x.r.Header.Get("Cookie") != "":
		status = 403
	case s.has("missing-keyless-400") && token == "" && post && x.r.Header.Get("Idempotency-Key") == "":
		status = 400
	case s.has("missing-html-login") && token == "" && strings.Contains(x.r.Header.Get("Accept"), "text/html"):
		status = http.StatusFound
	case s.has("missing-html-404") && token == "" && strings.Contains(x.r.Header.Get("Accept"), "text/html"):
		status = http.StatusNotFound
	case token == "" && !strings.EqualFold(scheme, "Bearer"):
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
	if x.r.ContentLength != 0 || s.has("free-closes") {
		x.Header().Set("Connection", "close") // or net/http reads the rest of the body before it answers
	}
	code := "unauthorized"
	if s.has("secret-in-error") {
		code = fmt.Sprintf("the key %s is not known", token)
	}
	x.refuse(status, code)
}
