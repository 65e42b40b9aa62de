package reference

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

// resource is what a create makes.
type resource struct {
	path, org, env, ID, Title string
	made                      time.Time
}

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

func (s *Server) read(x *exchange, path string) {
	scope := strings.TrimPrefix(path, "/api/v1/") + ":read"
	if !s.allow(x, scope) {
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
	if s.has("secret-encoded") {
		account["key"] = base64.StdEncoding.EncodeToString([]byte(bearer(x.token)))
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
	type item struct {
		ID    string `json:"id"`
		Title string `json:"title"`
	}
	data, total := []item{}, 0
	for i, t := range slices.Backward(s.tasks) {
		org := t.org == x.key.org || s.has("attack-org-second") && path == Deliverables
		env := t.env == x.key.env || s.has("sandbox-shared")
		org = org || s.has("org-by-filter") && t.askedFor(x)
		if t.path != path || time.Since(t.made) < s.lag(i) {
			continue
		}
		if org && env || s.has("org-total") {
			total++
		}
		if org && env {
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
	return body
}

// item answers requests for one resource.
func (s *Server) item(x *exchange, path, id string) {
	verb := map[string]string{"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write",
		"DELETE": "write"}[x.r.Method]
	if verb == "" {
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	if s.has("lacking-item-404") && !s.exists(path+"/"+id) {
		x.refuse(http.StatusNotFound, "not_found")
		return
	}
	scope := strings.TrimPrefix(path, "/api/v1/") + ":" + verb
	if !s.allow(x, scope) {
		return
	}
	s.mu.Lock()
	crossed := verb == "read" && s.has("item-cross-org")
	i := slices.IndexFunc(s.tasks, func(t *resource) bool {
		own := t.org == x.key.org && t.env == x.key.env
		return (t.path == path || crossed) && t.ID == id && (own || !s.has("free-numbers"))
	})
	found := i >= 0 && (s.tasks[i].org == x.key.org && s.tasks[i].env == x.key.env || s.has("item-org") && verb == "read")
	if i >= 0 && verb == "read" {
		found = found || s.tasks[i].path != path
	}
	shown := map[string]string{"id": id}
	if i >= 0 {
		shown["title"] = s.tasks[i].Title
	}
	if i >= 0 && x.r.Method == "DELETE" && found {
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
	if s.has("idem-403-stored") && !x.key.may(family+":write") {
		s.store(x, http.StatusForbidden, "insufficient_scope")
	}
	if s.allow(x, family+":write") {
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
	}
	r := &resource{path, owner.org, owner.env, rand.Text(), title, time.Now()}
	if s.has("free-numbers") {
		s.number(r)
	}
	s.tasks = append(s.tasks, r)
	s.cache = make(map[string][]byte)
	return r, true
}

// number gives the resource the next number of its organization. The other one
// has 500 already.
func (s *Server) number(r *resource) {
	owner := r.org + r.env
	if s.numbers == nil {
		s.numbers = map[string]int{"org_2live": 500}
		for i := range 500 {
			s.tasks = append(s.tasks, &resource{path: r.path, org: "org_2", env: "live", ID: fmt.Sprintf("task-%05d", i+1)})
		}
	}
	s.numbers[owner]++
	r.ID = fmt.Sprintf("task-%05d", s.numbers[owner])
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
		owner = x.as(x.key.of(cmp.Or(task.Organization, x.key.org)))
	}
	made, fresh := s.insert(owner, path, title)
	if !fresh && !s.has("free-upsert") {
		x.refuseTo(w, http.StatusConflict, "there_is_one_with_this_title")
		return
	}
	time.Sleep(s.Create / 2)
	answer := map[string]any{"id": made.ID, "title": title, "created_at": made.made.Format(time.RFC3339Nano)}
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
