// Package reference is a small server that keeps the contract and is made of
// nothing but net/http. On demand it breaks the contract in one of the ways
// that defects.txt lists.
package reference

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed defects.txt
var defects string

// A Defect is one way to break the contract.
type Defect struct {
	Name, Text, Sentence string
	Advice               bool
}

// Defects reads the list.
func Defects() []Defect {
	var all []Defect
	sentence := ""
	for line := range strings.Lines(defects) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '"':
			sentence = strings.Trim(line, `"`)
		default:
			name, text, _ := strings.Cut(line, " ")
			text, advice := strings.CutPrefix(strings.TrimSpace(text), "(advice) ")
			all = append(all, Defect{name, text, sentence, advice})
		}
	}
	return all
}

// The routes.
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

	mu       sync.Mutex
	replies  map[string]*reply
	order    []string // of replies
	windows  map[string]*window
	tasks    []resource
	cache    map[string][]byte
	failures int
	repeats  int
	ids      int
}

// resource is what a create makes.
type resource struct{ path, org, env, ID, Title string }

// New returns a server with the defects.
func New(names ...string) *Server {
	s := &Server{
		defects: make(map[string]bool),
		replies: make(map[string]*reply),
		windows: make(map[string]*window),
		cache:   make(map[string][]byte),
	}
	known := make(map[string]bool)
	for _, d := range Defects() {
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

func (s *Server) has(name string) bool { return s.defects[name] }

// status returns the one that a defect such as missing-403 answers in place of
// the right one.
func (s *Server) status(defect string, right int) int {
	for name := range s.defects {
		if wrong, err := strconv.Atoi(strings.TrimPrefix(name, defect+"-")); err == nil {
			return wrong
		}
	}
	return right
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
	srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &connection{id: rand.Text(), number: int(s.connections.Add(1))})
	}
}

type connKey struct{}

// connection is what some defects keep with a connection.
type connection struct {
	mu     sync.Mutex
	id     string
	number int
	first  *key
	denied bool
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
	conn, _ := r.Context().Value(connKey{}).(*connection)
	if conn == nil {
		conn = &connection{id: rand.Text()}
	}
	x := &exchange{ResponseWriter: w, s: s, r: r, conn: conn}
	x.token = r.Header.Get("Authorization")
	if !s.authenticate(x) || !s.admit(x) {
		return
	}
	s.route(x)
}

// route finds the handler.
func (s *Server) route(x *exchange) {
	path := x.r.URL.Path
	if s.has("path-bare") && path == "/account" || s.has("path-any-version") && path == "/api/v9/account" {
		path = Account
	}
	if strings.HasSuffix(path, "/") && s.slashesOpen() {
		path = strings.TrimRight(path, "/")
	}
	if s.has("auth-doubled-open") || s.has("scope-doubled-open") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if s.has("attack-capitals") {
		path = strings.ToLower(path)
	}
	method := x.r.Method
	if override := x.r.Header.Get("X-HTTP-Method-Override"); s.has("scope-override") && override != "" && path != Account {
		method = override
	}
	switch {
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
		x.Header().Set("Location", to)
		x.WriteHeader(http.StatusPermanentRedirect)
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

func (s *Server) slashesOpen() bool { return s.has("auth-slash-open") || s.has("scope-slash-open") }

// read answers GET and HEAD.
func (s *Server) read(x *exchange, path string) {
	if !s.allow(x, strings.TrimPrefix(path, "/api/v1/")+":read") {
		return
	}
	if s.has("idem-get") {
		if stored := s.stored(x, Tasks); stored != nil {
			x.replayOf(stored)
			return
		}
	}
	var body []byte
	if path == Account {
		body, _ = json.Marshal(map[string]string{"organization": x.key.org, "environment": x.key.env})
	} else {
		body = s.list(x, path)
	}
	if s.has("secret-in-body") && path == Account {
		body, _ = json.Marshal(map[string]string{"organization": x.key.org, "environment": x.key.env, "key": x.token})
	}
	tag := fmt.Sprintf(`"%d"`, len(body))
	x.Header().Set("Etag", tag)
	if match := x.r.Header.Get("If-None-Match"); match == "*" || match == tag {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	x.json(http.StatusOK, body)
}

// list shows the newest first.
func (s *Server) list(x *exchange, path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache[path] != nil && (s.has("org-cached") || s.has("org-second-cached") && path == Deliverables) {
		return s.cache[path]
	}
	type item struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	data := []item{}
	for i := len(s.tasks) - 1; i >= 0; i-- {
		t := s.tasks[i]
		org := t.org == x.key.org || s.has("org-ignored") || s.has("attack-org-second") && path == Deliverables
		if env := t.env == x.key.env || s.has("sandbox-shared"); t.path == path && org && env {
			data = append(data, item{t.ID, t.Title})
		}
	}
	body, _ := json.Marshal(map[string]any{"data": data, "total": len(data)})
	s.cache[path] = body
	return body
}

// post reads the body, and then once more what a key stands for.
func (s *Server) post(x *exchange, path string) {
	family := strings.TrimPrefix(path, "/api/v1/")
	if s.has("lacking-creates") && !x.key.may(family+":write") {
		s.insert(x, path, s.title(x))
	}
	if s.has("scope-replay") && s.stored(x, path) != nil {
		s.once(x, path)
		return
	}
	if s.has("idem-403-stored") && !x.key.may(family+":write") {
		s.store(x, http.StatusForbidden, "insufficient_scope")
	}
	if !s.allow(x, family+":write") {
		return
	}
	s.once(x, path)
}

// title reads the title of a body, "" when there is none.
func (s *Server) title(x *exchange) string {
	if x.body == nil {
		x.body, _ = io.ReadAll(x.r.Body)
	}
	var task struct{ Title string }
	_ = json.Unmarshal(x.body, &task)
	return task.Title
}

// insert makes a resource.
func (s *Server) insert(x *exchange, path, title string) resource {
	owner := x.key
	if owner == nil {
		owner = keys[full]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := resource{path, owner.org, owner.env, rand.Text(), title}
	s.tasks = append(s.tasks, r)
	s.cache = make(map[string][]byte)
	return r
}

// create is the handler.
func (s *Server) create(x *exchange, w http.ResponseWriter, path string) {
	title := s.title(x)
	if title == "" && s.has("idem-cut-string") {
		// What a lenient parser makes of the rest of a string.
		if _, rest, ok := strings.Cut(string(x.body), `"title":"`); ok {
			title = strings.TrimRight(rest, `"}`)
		}
	}
	if title == "" {
		x.refuseTo(w, http.StatusBadRequest, "bad_request")
		return
	}
	made := s.insert(x, path, title)
	time.Sleep(s.Create)
	body, _ := json.Marshal(map[string]string{
		"id": made.ID, "title": title, "created_at": time.Now().Format(time.RFC3339Nano),
	})
	w.Header().Set("Location", path+"/"+made.ID)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(append(body, '\n'))
}

// refuse answers with a problem of RFC 9457.
func (x *exchange) refuse(status int, code string) { x.refuseTo(x, status, code) }

func (x *exchange) refuseTo(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q}`, status, code)
}

func (x *exchange) json(status int, body []byte) {
	x.Header().Set("Content-Type", "application/json")
	x.WriteHeader(status)
	_, _ = x.Write(body)
}
