// Package reference is a small server that keeps the contract and is made of
// nothing but net/http. On demand it breaks the contract in one of the ways
// that defects.txt lists, or uses one of the freedoms that the contract leaves.
package reference

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed defects.txt
var defects string

//go:embed second.txt
var second string

//go:embed third.txt
var third string

// A Defect is one way to break the contract, or to differ without breaking it.
type Defect struct {
	Name, Text, Sentence string
	Advice, Missed, Free bool
}

// Defects reads the list.
func Defects() []Defect { return read(defects) }

// Second reads the second list.
func Second() []Defect { return read(second) }

// Third reads the third list.
func Third() []Defect { return read(third) }

func read(list string) []Defect {
	var all []Defect
	sentence := ""
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '"':
			sentence = strings.Trim(line, `"`)
		default:
			name, text, _ := strings.Cut(line, " ")
			text, advice := strings.CutPrefix(strings.TrimSpace(text), "(advice) ")
			text, missed := strings.CutPrefix(text, "(missed) ")
			all = append(all, Defect{name, text, sentence, advice, missed, strings.HasPrefix(name, "free-")})
		}
	}
	return all
}

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

	mu      sync.Mutex
	replies map[string]*reply
	order   []string // of replies
	windows map[string]*window
	tasks   []*resource
	cache   map[string][]byte
	repeats int
	ids     int
}

// resource is what a create makes.
type resource struct {
	path, org, env, ID, Title string
	made                      time.Time
}

// New returns a server with the defects and freedoms.
func New(names ...string) *Server {
	s := &Server{
		defects: make(map[string]bool),
		replies: make(map[string]*reply),
		windows: make(map[string]*window),
		cache:   make(map[string][]byte),
	}
	known := make(map[string]bool)
	for _, d := range slices.Concat(Defects(), Second(), Third()) {
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

// when is the condition of a defect.
type when func(*exchange) bool

// any reports whether a defect of the server is in the table, and applies.
func (s *Server) any(table map[string]when, x *exchange) bool {
	for name := range s.defects {
		if applies := table[name]; applies != nil && applies(x) {
			return true
		}
	}
	return false
}

// pick returns what a defect of the server has in the table.
func pick[T any](s *Server, table map[string]T) (found T) {
	for name := range s.defects {
		if one, ok := table[name]; ok {
			return one
		}
	}
	return found
}

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
	srv.DisableGeneralOptionsHandler = !s.has("id-absent-star")
	srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, &connection{id: rand.Text(), number: int(s.connections.Add(1))})
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
	denied   bool
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
}

// as returns the exchange as if it were with another key.
func (x *exchange) as(k *key) *exchange {
	return &exchange{s: x.s, r: x.r, conn: x.conn, token: x.token, body: x.body, key: k}
}

// ServeHTTP answers in the order request id, key, limit, route, scope,
// idempotency, handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(s.Delay)
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
	if s.others(x) || !s.authenticate(x) || !s.admit(x) {
		return
	}
	s.route(x)
}

// others answers what some servers do in front of authentication.
func (s *Server) others(x *exchange) bool {
	path := x.r.URL.Path
	known := path == Account || path == Tasks || path == Deliverables
	switch {
	case s.cached(x) != nil:
		x.json(http.StatusOK, s.cached(x))
	case s.has("secret-in-trace") && x.r.Method == http.MethodTrace:
		x.Header().Set("Content-Type", "message/http")
		_ = x.r.Header.Write(x)
	case s.has("secret-in-404") && !known && keys[bearer(x.token)] != nil:
		x.refuse(http.StatusNotFound, "nothing for "+x.token)
	case s.has("id-absent-414") && len(x.r.RequestURI) > 8<<10:
		x.refuse(http.StatusRequestURITooLong, "uri_too_long")
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

// caches are the defects that answer a GET as another one with the same mark.
var caches = map[string]func(x *exchange, k key) string{
	"auth-cached":      func(*exchange, key) string { return "" },
	"auth-cached-gzip": func(x *exchange, _ key) string { return x.r.Header.Get("Accept-Encoding") },
	"scope-cached":     func(_ *exchange, k key) string { return k.org + k.env },
	"org-read-cached":  func(_ *exchange, k key) string { return fmt.Sprint(k.scopes) },
}

// cached returns what the cache holds for the request.
func (s *Server) cached(x *exchange) []byte {
	mark, k := pick(s, caches), keys[bearer(x.token)]
	private := s.has("scope-cached") || s.has("org-read-cached")
	if mark == nil || x.r.Method != "GET" || k == nil && private {
		return nil
	}
	if k == nil {
		k = &key{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache[mark(x, *k)+x.r.RequestURI]
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

// route finds the handler.
func (s *Server) route(x *exchange) {
	path, method := x.r.URL.Path, x.r.Method
	if spelt := pick(s, spellings); spelt != nil && path != Account {
		path = spelt(path)
	}
	if override := x.r.Header.Get("X-HTTP-Method-Override"); s.has("scope-override") && override != "" && path != Account {
		method = override
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

// read answers GET and HEAD.
func (s *Server) read(x *exchange, path string) {
	if s.has("scope-override-silent") && sent("X-Http-Method-Override")(x) && path != Account {
		s.insert(x, path, s.title(x))
	}
	scope := strings.TrimPrefix(path, "/api/v1/") + ":read"
	if s.has("lacking-empty-list") && path != Account && !x.key.may(scope) {
		x.json(http.StatusOK, []byte(`{"data":[],"total":0}`))
		return
	}
	if !s.allow(x, scope) {
		return
	}
	if s.has("account-sandbox-404") && path == Account && x.key.env == "test" {
		x.refuse(http.StatusNotFound, "not_found")
		return
	}
	if stored := s.stored(x, Tasks); s.has("idem-get") && stored != nil {
		x.replayOf(stored)
		return
	}
	var body []byte
	if path == Account {
		body = s.account(x)
	} else {
		body = s.list(x, path)
	}
	tag := fmt.Sprintf(`"%d"`, len(body))
	x.Header().Set("Etag", tag)
	if match := x.r.Header.Get("If-None-Match"); match == "*" || match == tag {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	x.json(http.StatusOK, body)
}

func (s *Server) account(x *exchange) []byte {
	account := map[string]string{"organization": x.key.org, "environment": x.key.env}
	if s.has("secret-in-body") {
		account["key"] = x.token
	}
	if s.has("secret-encoded") {
		account["key"] = base64.StdEncoding.EncodeToString([]byte(bearer(x.token)))
	}
	if s.has("secret-of-others") {
		others := slices.DeleteFunc(slices.Sorted(maps.Values(names)), func(token string) bool {
			return keys[token].org != x.key.org || token == bearer(x.token)
		})
		account["other_keys"] = strings.Join(others, " ")
	}
	if s.has("free-clock") {
		account["time"] = time.Now().String()
	}
	body, _ := json.Marshal(account)
	return body
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
	data, total := []item{}, 0
	for _, t := range slices.Backward(s.tasks) {
		org := t.org == x.key.org || s.has("org-ignored") || s.has("attack-org-second") && path == Deliverables
		env := t.env == x.key.env || s.has("sandbox-shared")
		if t.path == path && (org && env || s.has("org-total")) {
			total++
		}
		if t.path == path && org && env && (!s.has("free-late-list") || time.Since(t.made) > time.Second) {
			data = append(data, item{t.ID, t.Title})
		}
	}
	list := map[string]any{"data": data, "total": total}
	switch {
	case s.has("free-number"):
		list = map[string]any{"version": 2, "tasks": map[string]int{"count": len(data), "limit": 1 << 30}}
	case s.has("free-page"):
		list = map[string]any{"data": data[:min(10, len(data))], "more": len(data) > 10}
	}
	body, _ := json.Marshal(list)
	s.cache[path] = body
	return body
}

// item answers requests for one resource.
func (s *Server) item(x *exchange, path, id string) {
	verb := map[string]string{"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write",
		"DELETE": "write"}[x.r.Method]
	if x.r.Method == "DELETE" && s.has("scope-delete-read") {
		verb = "read"
	}
	if verb == "" {
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	if !s.allow(x, strings.TrimPrefix(path, "/api/v1/")+":"+verb) {
		return
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.tasks, func(t *resource) bool { return t.path == path && t.ID == id })
	found := i >= 0 && (s.tasks[i].org == x.key.org && s.tasks[i].env == x.key.env || s.any(foreign, x))
	title := ""
	if i >= 0 {
		title = s.tasks[i].Title
	}
	if i >= 0 && x.r.Method == "DELETE" && (found || s.has("item-404-deletes")) {
		s.tasks = slices.Delete(s.tasks, i, i+1)
	}
	s.mu.Unlock()
	switch {
	case !found:
		x.refuse(http.StatusNotFound, "not_found")
	case x.r.Method == "DELETE":
		x.WriteHeader(http.StatusNoContent)
	case verb == "write":
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
	default:
		body, _ := json.Marshal(map[string]string{"id": id, "title": title})
		x.json(http.StatusOK, body)
	}
}

// post looks at the scope, and runs what a key stands for once.
func (s *Server) post(x *exchange, path string) {
	family := strings.TrimPrefix(path, "/api/v1/")
	if s.has("lacking-creates") && !x.key.may(family+":write") {
		s.insert(x, path, s.title(x))
	}
	if s.has("scope-after-body") && !x.key.may(family+":write") && s.title(x) == "" {
		x.refuse(http.StatusBadRequest, "bad_request")
		return
	}
	if s.has("scope-replay") && s.stored(x, path) != nil {
		s.once(x, path)
		return
	}
	if s.has("idem-403-stored") && !x.key.may(family+":write") {
		s.store(x, http.StatusForbidden, "insufficient_scope")
	}
	if stored := s.stored(x, path); s.has("lacking-reused") && !x.key.may(family+":write") && stored != nil {
		if s.title(x); stored.body != string(x.body) {
			x.refuse(http.StatusUnprocessableEntity, "idempotency_key_reused")
			return
		}
	}
	if s.allow(x, family+":write") {
		defer s.creates.Add(-1)
		if running := s.creates.Add(1); s.has("rate-busy-bare") && running > 8 {
			x.refuse(http.StatusTooManyRequests, "too_many_at_one_time")
			return
		}
		s.once(x, path)
	}
}

// title reads the title of a body, "" when there is none.
func (s *Server) title(x *exchange) string {
	if x.body == nil {
		x.body, _ = io.ReadAll(x.r.Body)
	}
	if len(x.body) == 0 && s.has("free-no-body") {
		return rand.Text()
	}
	var task struct{ Title string }
	_ = json.Unmarshal(x.body, &task)
	return task.Title
}

// insert makes a resource. It returns false when there is one with this title,
// where titles have to be unique.
func (s *Server) insert(x *exchange, path, title string) (*resource, bool) {
	owner := x.key
	if owner == nil {
		owner = keys[full]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if s.has("free-unique") && t.Title == title && t.path == path && t.org == owner.org {
			return t, false
		}
		if s.has("org-upsert") && t.Title == title && t.path == path && t.org != owner.org {
			return t, true
		}
	}
	r := &resource{path, owner.org, owner.env, rand.Text(), title, time.Now()}
	s.tasks = append(s.tasks, r)
	s.cache = make(map[string][]byte)
	return r, true
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
	if s.has("id-absent-500") && strings.Contains(title, "\x00") {
		x.refuseTo(w, http.StatusInternalServerError, "internal")
		return
	}
	time.Sleep(s.Create / 2)
	owner := x
	if s.has("org-by-body") {
		var task struct{ Organization string }
		_ = json.Unmarshal(x.body, &task)
		owner = x.as(x.key.of(task.Organization))
	}
	made, fresh := s.insert(owner, path, title)
	if !fresh && !s.has("free-upsert") {
		x.refuseTo(w, http.StatusConflict, "there_is_one_with_this_title")
		return
	}
	time.Sleep(s.Create / 2)
	answer := map[string]string{"id": made.ID, "title": title, "created_at": made.made.Format(time.RFC3339Nano)}
	body, _ := json.Marshal(answer)
	switch {
	case s.has("free-silent"):
		body = []byte("{}")
	case s.has("free-echo"):
		body = x.body
	default:
		w.Header().Set("Location", path+"/"+made.ID)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Language", "en")
	w.WriteHeader(map[bool]int{true: http.StatusCreated, false: http.StatusOK}[fresh])
	_, _ = w.Write(append(body, '\n'))
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
	if x.s.has("leak-401") && status == 401 || x.s.has("leak-403") && status == 403 {
		detail = string(x.s.account(x.as(keys[full]))) + string(x.s.list(x.as(keys[full]), Tasks))
	}
	if x.s.has("leak-list") {
		detail = string(x.s.list(x.as(keys[full]), Tasks))
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
	x.size = len(body)
	x.WriteHeader(status)
	_, _ = x.Write(body)
}
