package reference

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"regexp"
	"time"
)

// caches are the defects that answer a GET as another one with the same mark.
var caches = map[string]func(x *exchange, k key) string{
	"auth-cached":        func(*exchange, key) string { return "" },
	"auth-cached-gzip":   func(x *exchange, _ key) string { return x.r.Header.Get("Accept-Encoding") },
	"scope-cached":       func(_ *exchange, k key) string { return k.org + k.env },
	"org-read-cached":    func(_ *exchange, k key) string { return fmt.Sprint(k.scopes) },
	"auth-static-cached": assetMark,
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

// asset is what a cache takes for a file that is the same for everybody.
var asset = regexp.MustCompile(`/[^/]+\.(css|js|png|svg|ico)$`)

// assetMark is the same for all requests for a file, and another for each
// request besides.
func assetMark(x *exchange, _ key) string {
	if asset.MatchString(x.r.URL.Path) {
		return ""
	}
	return rand.Text()
}

// cachedID is the id of a 404 in a cache.
type cachedID struct {
	id string
	at time.Time
}

// idOfMissing returns the id of the same 404 less than a second ago.
func (s *Server) idOfMissing(x *exchange) string {
	mark := x.token + x.r.RequestURI
	if cached, ok := s.missing.Load(mark); ok && time.Since(cached.(cachedID).at) < time.Second {
		return cached.(cachedID).id
	}
	id := rand.Text()
	s.missing.Store(mark, cachedID{id, time.Now()})
	return id
}

// readBefore reports whether the owner of the path's resource has read it.
func readBefore(x *exchange) bool {
	_, ok := x.s.items.Load(x.r.URL.Path)
	return ok && x.r.Method == http.MethodGet
}
