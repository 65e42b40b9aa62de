package reference

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"
)

// worker returns which of two workers serves the connection.
func (x *exchange) worker() int { return x.conn.number % 2 }

// ownClaim returns what the key stands for in the worker of the request while
// the create of the other worker runs, or a new claim. The caller has the lock.
func (s *Server) ownClaim(x *exchange, key, path string) (*reply, bool) {
	if own := s.other[key]; own != nil && own.running() {
		return own, true
	}
	own := &reply{body: string(x.body), path: path, done: make(chan struct{}), at: time.Now()}
	s.other[key] = own
	return own, false
}

// lags reports whether a replica does not have the response yet.
func (s *Server) lags(claim *reply) bool {
	return s.has("idem-replica-lag") && !claim.running() && time.Since(claim.ended) < 200*time.Millisecond
}

// overwrite forgets the other keys of the organization and path that stand for
// the same body. The caller has the lock.
func (s *Server) overwrite(key, body string) {
	prefix := key[:strings.LastIndexByte(key, 0)+1]
	maps.DeleteFunc(s.replies, func(other string, r *reply) bool {
		return strings.HasPrefix(other, prefix) && r.body == body && !r.running()
	})
}

// waitForCut lets the repeat of a create whose body was cut wait for its end,
// which does not come.
func (s *Server) waitForCut(x *exchange, key string) bool {
	if _, cut := s.cuts.Load(key); !cut {
		return false
	}
	select {
	case <-time.After(30 * time.Second):
		x.refuse(http.StatusGatewayTimeout, "timeout")
	case <-x.r.Context().Done():
	}
	return true
}

// unreplayable answers a repeat for which the resource is read again.
func (s *Server) unreplayable(x *exchange, path string, claim *reply) bool {
	family := strings.TrimPrefix(path, "/api/v1/")
	switch {
	case s.has("idem-deleted-404") && !s.exists(claim.response.Header().Get("Location")):
		x.refuse(http.StatusNotFound, "not_found")
	case s.has("idem-needs-read") && !x.key.may(family+":read"):
		x.refuse(http.StatusForbidden, "insufficient_scope")
	default:
		return false
	}
	return true
}

// bodyOf sends what is left of a response without its headers.
func (x *exchange) bodyOf(response *httptest.ResponseRecorder) {
	x.replay = true
	x.WriteHeader(response.Code)
	_, _ = x.Write(response.Body.Bytes())
}

// hasEmoji reports whether a column of MySQL's utf8 cannot hold the title.
func hasEmoji(title string) bool {
	return slices.ContainsFunc([]rune(title), func(r rune) bool { return r > 0xffff })
}
