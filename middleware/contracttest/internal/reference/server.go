// Package reference is a small server that keeps the contract and is made of
// nothing but net/http. On demand it breaks the contract in one of the ways
// that defects.txt names, or uses one of the freedoms that the contract leaves.
package reference

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
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
	lookups     atomic.Int64 // that run, of auth-busy-open
	requests    atomic.Int64 // of any kind, for idem-worker-recycled
	leases      sync.Map     // from a token to the request that has it, of key-one-at-a-time

	mu      sync.Mutex
	replies map[string]*reply
	windows map[string]*window
	tasks   []*resource
	cache   map[string][]byte // of org-read-cached

	underWay map[string]int // creates, by organization, for idem-busy-409
	uses     map[string]int // of keys, for secret-metrics
	numbers  map[string]int // the last one of each organization, for free-numbers
}

// New returns a server with the defects and freedoms.
func New(names ...string) *Server {
	s := &Server{
		defects: make(map[string]bool),
		replies: make(map[string]*reply),
		windows: make(map[string]*window),
		cache:   make(map[string][]byte),

		underWay: make(map[string]int),
		uses:     make(map[string]int),
	}
	for _, name := range names {
		if !slices.ContainsFunc(Defects(), func(d Defect) bool { return d.Name == name }) {
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
	srv.DisableGeneralOptionsHandler = true
	srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &connection{number: s.connections.Add(1)})
	}
}

type connKey struct{}

// connection is what some defects keep with a connection.
type connection struct {
	number int64
	denied atomic.Bool         // a request, of auth-denied-connection
	newest atomic.Pointer[key] // of org-h2-newest
	left   atomic.Bool         // the body of the last request, of rate-body-left

	mu      sync.Mutex
	lastKey string // of idem-key-lingers
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
	joined bool // the create of another request
	status int
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
	if s.has("free-hop") {
		for name := range strings.SplitSeq(strings.Join(r.Header.Values("Connection"), ","), ",") {
			r.Header.Del(strings.TrimSpace(name))
		}
	}
	if s.has("free-cookies") {
		http.SetCookie(w, &http.Cookie{Name: "balancer", Value: rand.Text()})
	}
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn == nil {
		conn = new(connection)
	}
	x := &exchange{ResponseWriter: w, s: s, r: r, conn: conn, token: r.Header.Get("Authorization")}
	defer s.leases.CompareAndDelete(bearer(x.token), x)
	if s.others(x) || !s.authenticate(x) || !s.admit(x) {
		return
	}
	s.route(x)
}

// others answers what some servers do in front of authentication.
func (s *Server) others(x *exchange) bool {
	path := x.r.URL.Path
	_, badQuery := url.QueryUnescape(x.r.URL.RawQuery)
	known := path == Account || path == Tasks || path == Deliverables
	switch {
	case x.conn.left.Swap(false): // of rate-body-left
		x.Header().Set("Connection", "close")
		x.refuse(http.StatusBadRequest, "bad_request")
	case s.has("org-read-cached") && s.cached(x) != nil:
		x.json(http.StatusOK, s.cached(x))
	case s.has("secret-metrics") && path == "/metrics":
		s.metrics(x)
	case s.status("free-http10", 0) != 0 && !x.r.ProtoAtLeast(1, 1):
		x.refuse(s.status("free-http10", 0), "http_version_not_supported")
	case s.has("free-bad-query") && badQuery != nil:
		x.ResponseWriter.WriteHeader(http.StatusBadRequest)
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
	"path-any-version": func(path string) string { return strings.Replace(path, "/v9/", "/v1/", 1) },
	"attack-capitals":  strings.ToLower,
	"auth-css-open":    func(path string) string { return strings.TrimSuffix(path, ".css") },
	"auth-by-path":     func(path string) string { return keySegment.ReplaceAllString(path, "") },
}

// keySegment is an API key in a path.
var keySegment = regexp.MustCompile(`/(svc|sk)_[^/]+`)

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
	case s.has("auth-delete-open") && method == "DELETE" && (path == Tasks || path == Deliverables):
		x.WriteHeader(http.StatusNoContent)
	case s.has("auth-options-leak") && method == "OPTIONS" && path == Account:
		s.read(x, path)
	case method == http.MethodOptions:
		x.WriteHeader(http.StatusNoContent)
	case s.has("scope-put-open") && method == "PUT" && path == Tasks:
		s.create(x, x, path)
	case s.has("scope-patch-open") && method == "PATCH" && s.title(x) != "":
		s.insert(x, collection, s.title(x))
		x.WriteHeader(http.StatusNoContent)
	case s.has("idem-slash") && path == Tasks+"/" && method == "POST":
		s.create(x, x, Tasks)
	case strings.HasSuffix(path, "/") && len(path) > 1:
		to := "/" + strings.Trim(path, "/")
		if s.has("secret-in-redirect") {
			to += "?key=" + x.token
		}
		x.Header().Set("Location", to)
		x.WriteHeader(http.StatusPermanentRedirect)
	case id != "" && !strings.Contains(id, "/") && (collection == Tasks || collection == Deliverables):
		s.item(x, collection, id)
	case path != Account && path != Tasks && path != Deliverables:
		x.refuse(http.StatusNotFound, "not_found")
	case (method == "GET" || method == "HEAD") && (path == Account || !s.has("free-post-only")):
		s.read(x, path)
	case method == "POST" && path != Account:
		s.post(x, path)
	default:
		x.Header().Set("Allow", "GET, HEAD, POST")
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
	}
}

// refuse answers with a problem of RFC 9457.
func (x *exchange) refuse(status int, code string) { x.refuseTo(x, status, code) }

func (x *exchange) refuseTo(w http.ResponseWriter, status int, code string) {
	if x.s.has("free-plain") {
		http.Error(w, code+" for "+x.r.RequestURI, status)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	detail := ""
	if x.s.has("leak-403") && status == 403 {
		detail = string(x.s.account(x.as(keys[full]))) + string(x.s.list(x.as(keys[full]), Tasks))
	}
	_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":%q}`, status, code, detail)
}

func (x *exchange) json(status int, body []byte) {
	if x.s.has("org-read-cached") && x.r.Method == http.MethodGet && x.key != nil {
		x.s.locked(func() { x.s.cache[mark(x, x.key)] = body })
	}
	if x.s.has("auth-cache-public") && x.r.Method == http.MethodGet {
		x.Header().Set("Cache-Control", "public, max-age=60")
	}
	x.Header().Set("Content-Type", "application/json")
	if x.r.Header.Get("Range") == "bytes=0-9" && x.r.Method == http.MethodGet && len(body) > 10 {
		x.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", len(body)))
		status, body = http.StatusPartialContent, body[:10]
	}
	x.WriteHeader(status)
	_, _ = x.Write(body)
}

// mark is what org-read-cached takes for the whole of a request.
func mark(x *exchange, k *key) string { return fmt.Sprint(k.scopes, x.r.RequestURI) }

// cached returns what the cache holds for a GET with a key.
func (s *Server) cached(x *exchange) []byte {
	k := keys[bearer(x.token)]
	if k == nil || x.r.Method != http.MethodGet {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache[mark(x, k)]
}

func (s *Server) metrics(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range slices.Sorted(maps.Keys(s.uses)) {
		_, _ = fmt.Fprintf(w, "requests_total{key=%q} %d\n", token, s.uses[token])
	}
}
