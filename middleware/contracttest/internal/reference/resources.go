package reference

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"time"
)

// resource is what a create makes.
type resource struct {
	path, org, env, ID, Title string
	made                      time.Time
	maker                     string // the API key
}

// itemPath is the path of one resource.
var itemPath = regexp.MustCompile("^(" + Tasks + "|" + Deliverables + ")/[^/]+$")

// exists reports whether any organization has a resource at the path.
func (s *Server) exists(path string) (found bool) {
	s.locked(func() {
		found = slices.ContainsFunc(s.tasks, func(t *resource) bool { return t.path+"/"+t.ID == path })
	})
	return found
}

// askedFor reports whether the filter of a list names the resource.
func (t *resource) askedFor(x *exchange) bool {
	filter := x.r.URL.Query()
	return filter.Get("id") == t.ID || filter.Get("title") == t.Title
}

// takeID gives a new resource the id that the body names, in the place of the
// one that has it.
func (s *Server) takeID(x *exchange, r *resource) {
	var task struct{ ID string }
	if _ = json.Unmarshal(x.body, &task); task.ID != "" {
		r.ID = task.ID
		s.tasks = slices.DeleteFunc(s.tasks, func(t *resource) bool { return t.path == r.path && t.ID == r.ID })
	}
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
		if s.has("path-link-bare") {
			x.Header().Set("Link", "<"+strings.TrimPrefix(path, "/api/v1")+`>; rel="self"`)
		}
	}
	tag := fmt.Sprintf(`"%d"`, len(body))
	x.Header().Set("Etag", tag)
	if s.has("idem-get-first") && sent("Idempotency-Key")(x) && s.stored(x, path) == nil {
		response := httptest.NewRecorder()
		_, _ = response.Write(body)
		s.keep(x, response)
	}
	if match := x.r.Header.Get("If-None-Match"); match == "*" || match == tag {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	x.json(http.StatusOK, body)
}

func (s *Server) account(x *exchange) []byte {
	account := map[string]any{"organization": x.key.org, "environment": x.key.env}
	if s.has("secret-in-body") {
		account["key"] = x.token
	}
	if token := bearer(x.token); s.has("secret-mask-inverted") && len(token) > 4 {
		account["key"] = token[:len(token)-4] + "****"
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

// lag is how far the list is behind of what was made as the i-th.
func (s *Server) lag(i int) time.Duration {
	switch {
	case !s.has("free-late-list"):
		return 0
	case i > 20 && i%4 == 0:
		return 6 * time.Second
	}
	return time.Second
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
		Maker string `json:"created_by,omitempty"`
	}
	data, total := []item{}, 0
	for i, t := range slices.Backward(s.tasks) {
		org := t.org == x.key.org || s.has("org-ignored") || s.has("attack-org-second") && path == Deliverables
		env := t.env == x.key.env || s.has("sandbox-shared")
		org = org || s.has("org-by-filter") && t.askedFor(x)
		if s.has("org-sandbox-open") && t.env == "test" {
			org, env = true, true
		}
		if t.path != path || time.Since(t.made) < s.lag(i) {
			continue
		}
		if org && env || s.has("org-total") {
			total++
		}
		if org && env {
			data = append(data, item{t.ID, t.Title, s.creator(t)})
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
	if x.r.Method == "PUT" && s.has("scope-put-open") {
		s.put(x, path, id)
		return
	}
	if verb == "" {
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	if s.has("lacking-item-404") && !s.exists(path+"/"+id) {
		x.refuse(http.StatusNotFound, "not_found")
		return
	}
	scope := strings.TrimPrefix(path, "/api/v1/") + ":" + verb
	if x.r.Method == "DELETE" && s.has("lacking-deletes") && !x.key.may(scope) {
		s.remove(x, path, id)
	}
	if !s.allow(x, scope) {
		return
	}
	s.mu.Lock()
	crossed := verb == "read" && s.has("item-cross-org")
	i := slices.IndexFunc(s.tasks, func(t *resource) bool { return (t.path == path || crossed) && t.ID == id })
	found := i >= 0 && (s.tasks[i].org == x.key.org && s.tasks[i].env == x.key.env || s.any(foreign, x))
	if i >= 0 && verb == "read" {
		found = found || s.tasks[i].path != path || s.has("org-sandbox-open") && s.tasks[i].env == "test"
	}
	shown := map[string]string{"id": id}
	if i >= 0 {
		shown["title"] = s.tasks[i].Title
		if maker := s.creator(s.tasks[i]); maker != "" {
			shown["created_by"] = maker
		}
	}
	if i >= 0 && x.r.Method == "DELETE" && (found || s.has("item-404-deletes")) {
		s.tasks = slices.Delete(s.tasks, i, i+1)
	}
	s.mu.Unlock()
	switch {
	case !found:
		x.refuse(http.StatusNotFound, s.notFound(x, path, id))
	case x.r.Method == "DELETE":
		x.WriteHeader(http.StatusNoContent)
	case verb == "write":
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
	default:
		if x.r.Method == "GET" {
			s.items.Store(x.r.URL.Path, true)
		}
		body, _ := json.Marshal(shown)
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
	if running := s.stored(x, path); s.has("scope-in-flight") && running != nil && running.running() {
		s.once(x, path)
		return
	}
	if s.has("scope-batch") && s.batch(x, path) {
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
		if s.has("secret-in-debug-page") && unknownCharset(x.r) {
			x.debugPage()
			return
		}
		s.once(x, path)
	}
}

// readBody reads a body to its end, or to maxBody.
func (s *Server) readBody(x *exchange) ([]byte, error) {
	control := http.NewResponseController(x)
	if s.has("id-absent-408") {
		_ = control.SetReadDeadline(time.Now().Add(3 * time.Second))
	}
	body, err := io.ReadAll(http.MaxBytesReader(x, x.r.Body, maxBody))
	if s.has("id-absent-408") && err == nil {
		_ = control.SetReadDeadline(time.Time{})
	}
	return body, err
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
	r := &resource{path, owner.org, owner.env, rand.Text(), title, time.Now(), bearer(x.token)}
	if s.has("org-takes-id") {
		s.takeID(x, r)
	}
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
	last := s.latest.Load()
	time.Sleep(s.Create / 2)
	owner := x
	if last != nil { // of org-slow-body
		owner = x.as(last)
	}
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
	if s.has("idem-500-inserted") && hasEmoji(title) {
		x.refuseTo(w, http.StatusInternalServerError, "internal")
		return
	}
	time.Sleep(s.Create / 2)
	answer := map[string]any{"id": made.ID, "title": title, "created_at": made.made.Format(time.RFC3339Nano)}
	if s.has("scope-create-lists") {
		answer["newest"] = json.RawMessage(s.list(x, path))
	}
	body, _ := json.Marshal(answer)
	switch {
	case s.has("free-silent"):
		body = []byte("{}")
	case s.has("free-echo"):
		body = x.body
	default:
		w.Header().Set("Location", path+"/"+made.ID)
		if s.has("path-location-bare") {
			w.Header().Set("Location", strings.TrimPrefix(path, "/api/v1")+"/"+made.ID)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Language", "en")
	w.WriteHeader(map[bool]int{true: http.StatusCreated, false: http.StatusOK}[fresh])
	_, _ = w.Write(append(body, '\n'))
}
