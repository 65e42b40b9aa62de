// Package reference is a small server that keeps the contract and is made of
// nothing but net/http. On demand it breaks the contract in one of the ways
// that its lists name, or uses one of the freedoms that the contract leaves.
package reference

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The routes. Below the latter two is a path for each resource.
const (
	Account      = "/api/v1/account"
	Tasks        = "/api/v1/tasks"
	Deliverables = "/api/v1/deliverables"
)

// Server is the server. The zero value of a field means that there is none.
type Server struct {
	Limit  int           // requests in a window of an organization's environment
	Window time.Duration // of the limit
	Delay  time.Duration // of each request
	Create time.Duration // of a create

	defects     map[string]bool
	connections atomic.Int64
	failures    atomic.Int64 // keys that were refused
	seen        atomic.Bool  // a live key
	allowed     sync.Map     // of scope-decision-cached
	running     atomic.Int64 // requests of the first organization, for org-mixed
	lookups     atomic.Int64 // that run, of auth-busy-open
	creates     atomic.Int64 // that run, of rate-busy-bare
	poisoned    sync.Map     // from the beginning of a key to the time, of invalid-poisons
	requests    atomic.Int64 // of any kind, for idem-worker-recycled
	flights     sync.Map     // from a mark to the last request with it, of beside and scope-narrowed
	leases      sync.Map     // from a token to the request that has it, of key-one-at-a-time
	cuts        sync.Map     // the keys of creates whose body was cut, of idem-cut-hangs
	strangers   atomic.Int64 // invalid keys in a row, of auth-breaker-open
	unknown     sync.Map     // invalid keys, of invalid-again-500
	asked       sync.Map     // from a token, method and path, of scope-second-try
	items       sync.Map     // paths of resources that were read, of item-cached-org
	missing     sync.Map     // from a token and a target to the id, of id-404-cached

	failed atomic.Pointer[key] // of the last 400, for org-after-error
	latest atomic.Pointer[key] // of the last request, for org-slow-body

	previous atomic.Value // Authorization of the last request, for secret-of-previous

	mu      sync.Mutex
	replies map[string]*reply
	other   map[string]*reply // of the worker that came second, for idem-lock-by-worker
	order   []string          // of replies
	windows map[string]*window
	tasks   []*resource
	buffer  []byte // of all repeats
	cache   map[string][]byte
	repeats int
	ids     int

	underWay map[string]int // creates, by organization
	uses     map[string]int // of keys, for secret-metrics
	counts   map[string]int // of ids, by environment, for id-counts-environment
}

// New returns a server with the defects and freedoms.
func New(names ...string) *Server {
	s := &Server{
		defects: make(map[string]bool),
		replies: make(map[string]*reply),
		other:   make(map[string]*reply),
		windows: make(map[string]*window),
		cache:   make(map[string][]byte),

		underWay: make(map[string]int),
		uses:     make(map[string]int),
		counts:   make(map[string]int),
	}
	known := make(map[string]bool)
	for _, d := range slices.Concat(Defects(), Second(), Third(), Fourth()) {
		known[d.Name] = true
	}
	for _, name := range names {
		if !known[name] {
			panic("reference: there is no defect called " + name)
		}
		s.defects[name] = true
	}
	return s
}

// locked calls f alone.
func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Configure prepares an http.Server.
func (s *Server) Configure(srv *http.Server) {
	srv.Handler = s
	srv.DisableGeneralOptionsHandler = !s.has("id-absent-star")
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		in, _ := c.(conn)
		return context.WithValue(ctx, connKey{}, &connection{
			id: rand.Text(), number: int(s.connections.Add(1)), read: in.read})
	}
}

type connKey struct{}

// connection is what some defects keep with a connection.
type connection struct {
	mu       sync.Mutex
	id       string
	ids      atomic.Int64
	number   int
	requests int
	first    *key
	newest   atomic.Pointer[key]
	denied   bool
	read     *atomic.Int64 // bytes, nil outside a Network
	handled  atomic.Int64  // bytes that were read by the end of the last request
	left     atomic.Bool   // the body of the last request, of rate-body-left
	lastKey  string        // of idem-key-lingers
}

// exchange is one request and what became of it so far.
type exchange struct {
	http.ResponseWriter
	s      *Server
	r      *http.Request
	conn   *connection
	key    *key // nil before authentication
	token  string
	body   []byte
	replay bool
	cut    bool // the body did not reach its end
	known  bool // the idempotency key, before the body was read
	joined bool // the create of another request
	status int
	size   int // of the body

	before    string // Authorization of the request before it, of any client
	pipelined bool   // read together with the request before it
}

// as returns the exchange as if it were with another key.
func (x *exchange) as(k *key) *exchange {
	return &exchange{s: x.s, r: x.r, conn: x.conn, token: x.token, body: x.body, key: k}
}

// ServeHTTP answers in the order request id, key, limit, route, scope,
// idempotency, handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(s.Delay)
	if s.has("idem-worker-recycled") && s.requests.Add(1)%25 == 0 {
		s.locked(func() { clear(s.replies) })
	}
	if s.has("free-hints") {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}
	if s.has("free-cookies") {
		http.SetCookie(w, &http.Cookie{Name: "balancer", Value: rand.Text()})
	}
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn == nil {
		conn = &connection{id: rand.Text()}
	}
	x := &exchange{ResponseWriter: w, s: s, r: r, conn: conn, token: r.Header.Get("Authorization")}
	x.before, _ = s.previous.Swap(x.token).(string)
	if s.has("id-absent-pipelined") && r.ProtoMajor == 1 && conn.read != nil {
		x.pipelined = conn.read.Load() == conn.handled.Load()
		defer func() { conn.handled.Store(conn.read.Load()) }()
	}
	defer s.leases.CompareAndDelete(bearer(x.token), x)
	if s.others(x) || !s.authenticate(x) || !s.admit(x) {
		return
	}
	s.route(x)
}

// others answers what some servers do in front of authentication.
func (s *Server) others(x *exchange) bool {
	path := x.r.URL.Path
	known := path == Account || path == Tasks || path == Deliverables
	_, badQuery := url.QueryUnescape(x.r.URL.RawQuery)
	switch {
	case s.has("rate-body-left") && x.leftover():
	case s.cached(x) != nil:
		x.json(http.StatusOK, s.cached(x))
	case s.crashes(x):
		x.refuse(http.StatusInternalServerError, "internal")
	case s.has("id-absent-501") && !slices.Contains(methods, x.r.Method):
		x.refuse(http.StatusNotImplemented, "not_implemented")
	case s.has("secret-metrics") && path == "/metrics":
		s.metrics(x)
	case s.has("secret-in-trace") && x.r.Method == http.MethodTrace:
		x.Header().Set("Content-Type", "message/http")
		_ = x.r.Header.Write(x)
	case s.has("secret-in-404") && !known && keys[bearer(x.token)] != nil:
		x.refuse(http.StatusNotFound, "nothing for "+x.token)
	case s.has("id-absent-414") && len(x.r.RequestURI) > 8<<10:
		x.refuse(http.StatusRequestURITooLong, "uri_too_long")
	case s.status("free-http10", 0) != 0 && !x.r.ProtoAtLeast(1, 1):
		x.refuse(s.status("free-http10", 0), "http_version_not_supported")
	case s.has("id-absent-bad-percent") && badQuery != nil:
		x.refuse(http.StatusBadRequest, "bad_query")
	case s.has("id-absent-waf") && suspicious(x.r):
		x.refuse(http.StatusForbidden, "blocked")
	case s.has("free-options") && x.r.Method == http.MethodOptions:
		x.json(http.StatusOK, []byte(`{"name":"tasks","allow":["GET","POST"]}`))
	case s.has("free-json-app") && !known:
		x.json(http.StatusOK, []byte(`{"service":"tasks"}`))
	case s.has("free-app") && !known:
		x.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(x, "<!doctype html><div id=app></div>")
	default:
		return false
	}
	return true
}

// spellings are the paths that a defect takes for others.
var spellings = map[string]func(path string) string{
	"path-bare":          func(path string) string { return strings.Replace(path, "/account", Account, 1) },
	"path-any-version":   func(path string) string { return strings.Replace(path, "/v9/", "/v1/", 1) },
	"auth-v2-open":       func(path string) string { return strings.Replace(path, "/v2/", "/v1/", 1) },
	"auth-slash-open":    func(path string) string { return strings.TrimRight(path, "/") },
	"scope-slash-open":   func(path string) string { return strings.TrimRight(path, "/") },
	"auth-doubled-open":  func(path string) string { return strings.ReplaceAll(path, "//", "/") },
	"scope-doubled-open": func(path string) string { return strings.ReplaceAll(path, "//", "/") },
	"attack-capitals":    strings.ToLower,
	"auth-suffix-open":   func(path string) string { return strings.TrimSuffix(path, ".json") },
	"auth-dots-open":     path.Clean,
	"auth-static-cached": func(path string) string { return asset.ReplaceAllString(path, "") },
	"auth-newline-open":  func(path string) string { return strings.TrimRight(path, "\n") },
	"auth-by-path":       func(path string) string { return keySegment.ReplaceAllString(path, "") },
	"path-anywhere":      func(path string) string { return path[max(0, strings.Index(path, "/api/v1/")):] },
	"auth-double-encoded-open": func(path string) string {
		if decoded, err := url.PathUnescape(path); err == nil {
			return decoded
		}
		return path
	},
	"path-capitals": func(path string) string {
		if len(path) > 8 && strings.EqualFold(path[:8], "/api/v1/") {
			return "/api/v1/" + path[8:]
		}
		return path
	},
	"path-unversioned": func(path string) string {
		if strings.HasPrefix(path, "/api/v1/") {
			return path
		}
		return strings.Replace(path, "/api/", "/api/v1/", 1)
	},
	"auth-semicolon-open": func(path string) string { return parameter.ReplaceAllString(path, "") },
}

// parameter is what RFC 3986, section 3.3, lets stand in a segment of a path.
var parameter = regexp.MustCompile(`;[^/]*`)

// keySegment is an API key in a path.
var keySegment = regexp.MustCompile(`/(svc|sk)_[^/]+`)

// route finds the handler.
func (s *Server) route(x *exchange) {
	path, method := x.r.URL.Path, x.r.Method
	if spelt := pick(s, spellings); spelt != nil && path != Account {
		path = spelt(path)
	}
	if to := x.r.Header.Get("X-Rewrite-Url"); s.has("path-by-header") && to != "" {
		path = to
	}
	if override := x.r.Header.Get("X-HTTP-Method-Override"); s.has("scope-override") && override != "" && path != Account {
		method = override
	}
	if s.has("scope-method-case") {
		method = strings.ToUpper(method)
	}
	if s.has("auth-verb-open") && !slices.Contains(methods, method) {
		method = http.MethodGet
	}
	collection, id, _ := strings.Cut(strings.TrimPrefix(path, "/api/v1/"), "/")
	collection = "/api/v1/" + collection
	switch {
	case s.has("id-absent-406") && !acceptsJSON(x.r):
		x.refuse(http.StatusNotAcceptable, "not_acceptable")
	case s.has("auth-delete-open") && method == "DELETE" && (path == Tasks || path == Deliverables):
		x.WriteHeader(http.StatusNoContent)
	case s.has("auth-other-methods-open") && (method == "PUT" || method == "PATCH") && path == Account,
		s.has("auth-options-leak") && method == "OPTIONS" && path == Account:
		s.read(x, path)
	case method == http.MethodOptions:
		x.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(path, "/") && len(path) > 1:
		to := "/" + strings.Trim(path, "/")
		if s.has("secret-in-redirect") {
			to += "?key=" + x.token
		}
		if s.has("path-redirect-bare") {
			to = strings.TrimPrefix(to, "/api/v1")
		}
		x.Header().Set("Location", to)
		x.WriteHeader(http.StatusPermanentRedirect)
	case id != "" && !strings.Contains(id, "/") && (collection == Tasks || collection == Deliverables):
		s.item(x, collection, id)
	case path != Account && path != Tasks && path != Deliverables:
		x.refuse(http.StatusNotFound, "not_found")
	case method == "GET" || method == "HEAD":
		s.read(x, path)
	case method == "POST" && path != Account:
		s.post(x, path)
	default:
		x.Header().Set("Allow", "GET, HEAD, POST")
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
	}
}

func acceptsJSON(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	return accept == "" || strings.Contains(accept, "*") || strings.Contains(accept, "json")
}

// refuse answers with a problem of RFC 9457.
func (x *exchange) refuse(status int, code string) { x.refuseTo(x, status, code) }

func (x *exchange) refuseTo(w http.ResponseWriter, status int, code string) {
	if x.s.has("org-after-error") && status == http.StatusBadRequest {
		x.s.failed.Store(x.key)
	}
	if x.s.has("free-plain") {
		http.Error(w, code+" for "+x.r.RequestURI, status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	detail := ""
	if x.s.has("leak-401") && status == 401 || x.s.has("leak-403") && status == 403 {
		detail = string(x.s.account(x.as(keys[full]))) + string(x.s.list(x.as(keys[full]), Tasks))
	}
	if x.s.has("leak-list") {
		detail = string(x.s.list(x.as(keys[full]), Tasks))
	}
	if x.s.has("secret-of-previous") && status == http.StatusBadRequest {
		detail = x.before
	}
	_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":%q}`, status, code, detail)
}

func (x *exchange) json(status int, body []byte) {
	if mark := pick(x.s, caches); mark != nil && x.r.Method == "GET" && x.key != nil {
		x.s.locked(func() { x.s.cache[mark(x, *x.key)+x.r.RequestURI] = body })
	}
	if x.s.has("auth-cache-public") && x.r.Method == http.MethodGet {
		x.Header().Set("Cache-Control", "public, max-age=60")
	}
	x.Header().Set("Content-Type", "application/json")
	if x.r.Header.Get("Range") == "bytes=0-9" && x.r.Method == http.MethodGet && len(body) > 10 {
		x.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", len(body)))
		status, body = http.StatusPartialContent, body[:10]
	}
	x.size = len(body)
	x.WriteHeader(status)
	_, _ = x.Write(body)
}
