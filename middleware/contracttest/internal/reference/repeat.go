package reference

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"maps"
	"time"
)

// replayOf sends a stored response.
func (x *exchange) replayOf(claim *reply) {
	h, body := claim.response.Header().Clone(), claim.response.Body.Bytes()
	if x.s.has("idem-truncated") {
		body = body[:min(len(body), 4096)]
	}
	if x.s.has("idem-gzip") && claim.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body)
		_ = w.Close()
		h.Set("Content-Encoding", "gzip")
		body = packed.Bytes()
	}
	maps.Copy(x.Header(), h)
	status := pick(x.s, map[string]int{"idem-200": 200, "idem-304": 304})
	x.WriteHeader(cmp.Or(status, claim.response.Code))
	_, _ = x.Write(body)
}

// creating adds to the organization's creates that are under way, and returns
// how many there are.
func (s *Server) creating(x *exchange, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay[x.key.org] += n
	return s.underWay[x.key.org]
}

// isDone reports whether the request repeats a create that has ended.
func (s *Server) isDone(x *exchange, path string) bool {
	before := s.stored(x, path)
	return before != nil && !before.running()
}

// sentAgain makes a second resource of a create whose body took long, as a
// proxy does that takes it for a failed one.
func (s *Server) sentAgain(x *exchange, path string, began time.Time) {
	if title := s.title(x); s.has("idem-gateway-retry") && title != "" && time.Since(began) > time.Second {
		s.insert(x, path, title)
	}
}

// lingering returns the key, or the last one of the connection.
func (x *exchange) lingering(key string) string {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if key != "" && len(key) <= 255 {
		x.conn.lastKey = key
	}
	return cmp.Or(key, x.conn.lastKey)
}

// lingers reports whether the key of the request is that of another one.
func (x *exchange) lingers() bool {
	return x.s.has("idem-key-lingers") && x.r.Header.Get("Idempotency-Key") == ""
}
