package reference

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"time"
)

// flight is the key of a request, which others at the same time take over.
type flight struct {
	key *key
	at  time.Time
}

// beside returns the request's own key, and when there is none that of another
// request with the mark at the same time.
func (s *Server) beside(mark string, own *key) *key {
	if own != nil {
		s.flights.Store(mark, flight{own, time.Now()})
		time.Sleep(time.Millisecond)
		return own
	}
	time.Sleep(time.Millisecond / 2)
	if other, ok := s.flights.Load(mark); ok && time.Since(other.(flight).at) < time.Millisecond {
		return other.(flight).key
	}
	return nil
}

// linkToken is the token in the link to a resource.
func linkToken(id string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(id)))[:16] }

// linked returns a key for the resource that a link with its token names.
func (s *Server) linked(x *exchange) (found *key) {
	id, reads := path.Base(x.r.URL.Path), []string{"tasks:read", "deliverables:read"}
	if x.r.URL.Query().Get("token") != linkToken(id) {
		return nil
	}
	s.locked(func() {
		for _, t := range s.tasks {
			if t.ID == id {
				found = &key{org: t.org, env: t.env, scopes: reads}
			}
		}
	})
	return found
}

// script answers with the account as a script that calls a function.
func (s *Server) script(x *exchange) {
	caller := cmp.Or(keys[bearer(x.token)], keys[full])
	x.Header().Set("Content-Type", "text/javascript")
	_, _ = fmt.Fprintf(x, "%s(%s);", x.r.URL.Query().Get("callback"), s.account(x.as(caller)))
}
