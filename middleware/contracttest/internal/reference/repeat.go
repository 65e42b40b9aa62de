package reference

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
	"unicode"
)

// distortions are what a defect makes of a stored response.
var distortions = map[string]func(h http.Header, body []byte) []byte{
	"idem-empty":       func(http.Header, []byte) []byte { return nil },
	"idem-escaped":     func(_ http.Header, body []byte) []byte { return []byte(escapes.Replace(string(body))) },
	"idem-truncated":   func(_ http.Header, body []byte) []byte { return body[:min(len(body), 4096)] },
	"idem-no-location": func(h http.Header, body []byte) []byte { h.Del("Location"); return body },
	"idem-no-type":     func(h http.Header, body []byte) []byte { h.Set("Content-Type", "text/plain"); return body },
	"idem-ascii": func(_ http.Header, body []byte) []byte {
		return bytes.Map(func(r rune) rune {
			if r > unicode.MaxASCII {
				return '?'
			}
			return r
		}, body)
	},
	"idem-rebuilt": func(_ http.Header, body []byte) []byte {
		now := `"read_at":"` + time.Now().Format(time.RFC3339Nano) + `",`
		return bytes.Replace(body, []byte(`"created_at":`), []byte(now+`"created_at":`), 1)
	},
	"idem-location-twice": func(h http.Header, body []byte) []byte { h.Add("Location", h.Get("Location")); return body },
}

// replayOf sends a stored response.
func (x *exchange) replayOf(claim *reply) {
	x.replay = true
	h, body := claim.response.Header().Clone(), claim.response.Body.Bytes()
	if distort := pick(x.s, distortions); distort != nil {
		body = distort(h, body)
	}
	if x.s.has("idem-gzip") && claim.gzip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(body)
		_ = w.Close()
		h.Set("Content-Encoding", "gzip")
		body = packed.Bytes()
	}
	if x.s.has("idem-gzip-claimed") && strings.Contains(x.r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
	}
	if x.s.has("idem-shared-buffer") {
		body = x.s.shared(body)
	}
	if x.s.has("secret-in-replay") && claim.token != "" {
		h.Set("Authorization", claim.token)
	}
	maps.Copy(x.Header(), h)
	if x.s.has("idem-range") && x.r.Header.Get("Range") != "" {
		http.ServeContent(x, x.r, "", time.Time{}, bytes.NewReader(body))
		return
	}
	status := pick(x.s, map[string]int{"idem-200": 200, "idem-304": 304, "idem-202": 202})
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

// rollBack removes the resource of a create.
func (s *Server) rollBack(response *httptest.ResponseRecorder) {
	s.locked(func() {
		s.tasks = slices.DeleteFunc(s.tasks, func(t *resource) bool {
			return response.Header().Get("Location") == t.path+"/"+t.ID
		})
	})
}

// shared returns a body by way of the one buffer of all repeats.
func (s *Server) shared(body []byte) []byte {
	s.locked(func() { s.buffer = bytes.Clone(body) })
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buffer
}

// sentAgain makes a second resource of a create whose body took long, as a
// proxy does that takes it for a failed one.
func (s *Server) sentAgain(x *exchange, path string, began time.Time) {
	if title := s.title(x); s.has("idem-gateway-retry") && title != "" && time.Since(began) > time.Second {
		s.insert(x, path, title)
	}
}

// escapes are those of HTML, also for what JSON has escaped already.
var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;",
	`\u0026`, "&amp;", `\u003c`, "&lt;", `\u003e`, "&gt;")
