package reference

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// put makes a resource at a path of the client's choice, and wants a scope only
// for reading.
func (s *Server) put(x *exchange, path, id string) {
	if !s.allow(x, strings.TrimPrefix(path, "/api/v1/")+":read") {
		return
	}
	title := s.title(x)
	switch {
	case title == "":
		x.refuse(http.StatusBadRequest, "bad_request")
	case s.exists(path + "/" + id):
		x.refuse(http.StatusMethodNotAllowed, "method_not_allowed")
	default:
		made, _ := s.insert(x, path, title)
		s.locked(func() { made.ID = id })
		body, _ := json.Marshal(map[string]string{"id": id, "title": title})
		x.json(http.StatusCreated, body)
	}
}

// batch makes a resource of each element when the body is an array, and wants
// no scope.
func (s *Server) batch(x *exchange, path string) bool {
	body := bufio.NewReader(x.r.Body)
	x.r.Body = struct {
		io.Reader
		io.Closer
	}{body, x.r.Body}
	if first, _ := body.Peek(1); string(first) != "[" {
		return false
	}
	var tasks []struct{ Title string }
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(&tasks); err != nil {
		x.refuse(http.StatusBadRequest, "bad_request")
		return true
	}
	for _, task := range tasks {
		s.insert(x, path, task.Title)
	}
	x.json(http.StatusCreated, []byte("{}"))
	return true
}
