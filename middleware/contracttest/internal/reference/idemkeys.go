package reference

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
)

// parts are what keys are apart by for a defect, besides organization,
// environment and path.
var parts = map[string]func(x *exchange) string{
	"attack-two-workers": func(x *exchange) string { return fmt.Sprint(x.conn.number % 2) },
	"idem-per-api-key":   func(x *exchange) string { return bearer(x.token) },
	"idem-charset":       func(x *exchange) string { return x.r.Header.Get("Content-Type") },
	"idem-version":       func(x *exchange) string { return x.r.Proto },
}

// partition is what keys are apart by, besides themselves.
func (s *Server) partition(x *exchange, path string) string {
	org, env := x.key.org, x.key.env
	if s.has("idem-org") {
		org = ""
	}
	if s.has("idem-environment") {
		env = ""
	}
	if s.has("idem-path") {
		path = ""
	}
	p := org + "\x00" + env + "\x00" + path + "\x00"
	if part := pick(s, parts); part != nil {
		p += part(x)
	}
	return p
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F-]{36}$`)

// sameKeys are what a defect takes for the key.
var sameKeys = map[string]func(x *exchange, key string) string{
	"idem-key-cut":     func(_ *exchange, key string) string { return key[:min(64, len(key))] },
	"idem-key-case":    func(_ *exchange, key string) string { return strings.ToLower(key) },
	"idem-key-ignored": func(x *exchange, _ string) string { return string(x.body) },
	"idem-key-422":     func(_ *exchange, key string) string { return strings.ToLower(key) },
	"idem-key-accents": func(_ *exchange, key string) string { return accents.Replace(key) },
}

// accents takes the accents of French, German and Spanish away, also those that
// stand behind a letter of their own.
var accents = strings.NewReplacer("à", "a", "á", "a", "â", "a", "ä", "a", "ç", "c", "è", "e", "é", "e", "ê", "e",
	"ë", "e", "í", "i", "î", "i", "ï", "i", "ñ", "n", "ó", "o", "ô", "o", "ö", "o", "ù", "u", "ú", "u", "û", "u",
	"ü", "u", "\u0300", "", "\u0301", "", "\u0302", "", "\u0303", "", "\u0308", "")

// inherited are the names that each object of JavaScript has.
var inherited = []string{"__proto__", "constructor", "hasOwnProperty", "toString", "valueOf"}

// inFilter reports whether a Bloom filter that is too small has the key.
func (s *Server) inFilter(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var filter [128]bool
	for other := range s.replies {
		for _, bit := range bits(other) {
			filter[bit] = true
		}
	}
	return s.replies[key] == nil && !slices.ContainsFunc(bits(key), func(bit byte) bool { return !filter[bit] })
}

// bits returns the bits of a filter that stand for the key.
func bits(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	for i := range sum {
		sum[i] %= 128
	}
	return sum[:8]
}

func odd(key string) bool { return len(key) > 64 || strings.ContainsAny(key, `"'\;%/:{}$*`) }

// pathless returns what a key is apart by, without its path.
func pathless(key string) string {
	parts := strings.Split(key, "\x00")
	return strings.Join(slices.Delete(parts, 2, 3), "\x00")
}

// forget drops what the request's key stands for.
func (s *Server) forget(x *exchange, path string) {
	s.locked(func() { delete(s.replies, s.partition(x, path)+x.r.Header.Get("Idempotency-Key")) })
}

// stored returns what the request's key stands for, nil when there is nothing.
func (s *Server) stored(x *exchange, path string) (found *reply) {
	if key := x.r.Header.Get("Idempotency-Key"); key != "" {
		s.locked(func() { found = s.replies[s.partition(x, path)+key] })
	}
	return found
}

// store keeps a refusal as if it were the response of a handler.
func (s *Server) store(x *exchange, status int, code string) {
	key := x.r.Header.Get("Idempotency-Key")
	if key == "" || s.stored(x, x.r.URL.Path) != nil {
		return
	}
	response := httptest.NewRecorder()
	x.refuseTo(response, status, code)
	s.keep(x, response)
}

// keep stores a response under the request's key.
func (s *Server) keep(x *exchange, response *httptest.ResponseRecorder) {
	done := make(chan struct{})
	close(done)
	key := s.partition(x, x.r.URL.Path) + x.r.Header.Get("Idempotency-Key")
	s.locked(func() {
		s.replies[key] = &reply{done: done, response: response}
	})
}
