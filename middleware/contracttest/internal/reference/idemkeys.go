package reference

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parts are what keys are apart by for a defect, besides organization,
// environment and path.
var parts = map[string]func(x *exchange) string{
	"idem-connection":    func(x *exchange) string { return x.conn.id },
	"attack-two-workers": func(x *exchange) string { return fmt.Sprint(x.conn.number % 2) },
	"idem-per-api-key":   func(x *exchange) string { return bearer(x.token) },
	"idem-agent":         func(x *exchange) string { return x.r.UserAgent() },
	"idem-trace":         func(x *exchange) string { return x.r.Header.Get("Traceparent") },
	"idem-cookie":        func(x *exchange) string { return x.r.Header.Get("Cookie") },
	"idem-accept":        func(x *exchange) string { return x.r.Header.Get("Accept") },
	"idem-encoding":      func(x *exchange) string { return x.r.Header.Get("Accept-Encoding") },
	"idem-forwarded":     func(x *exchange) string { return x.r.Header.Get("X-Forwarded-For") },
	"idem-charset":       func(x *exchange) string { return x.r.Header.Get("Content-Type") },
	"idem-scheme":        func(x *exchange) string { return x.token[:min(6, len(x.token))] },
	"idem-version":       func(x *exchange) string { return x.r.Proto },
	"idem-coding":        func(x *exchange) string { return fmt.Sprint(x.r.TransferEncoding) },
}

// partition is what keys are apart by, besides themselves.
func (s *Server) partition(x *exchange, path string) string {
	org, env := x.key.org, x.key.env
	if s.has("idem-org") || s.has("attack-org-second-keys") && path == Deliverables {
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

// passedOver are the defects that do not heed a key.
var passedOver = map[string]func(x *exchange, key string) bool{
	"idem-off":          func(*exchange, string) bool { return true },
	"idem-key-zero":     func(_ *exchange, key string) bool { return key == "0" },
	"idem-sandbox-off":  func(x *exchange, _ string) bool { return x.key.env == "test" },
	"idem-second-off":   func(x *exchange, _ string) bool { return x.r.URL.Path == Deliverables },
	"idem-chunked-off":  func(x *exchange, _ string) bool { return x.r.ContentLength < 0 },
	"idem-only-uuid":    func(_ *exchange, key string) bool { return !uuid.MatchString(key) },
	"idem-long-ignored": func(_ *exchange, key string) bool { return len(key) > 200 },
	"idem-odd-ignored":  func(_ *exchange, key string) bool { return strings.ContainsAny(key, `/%`) },
	"idem-http2-off":    func(x *exchange, _ string) bool { return x.r.ProtoMajor == 2 },
	"idem-http10-off":   func(x *exchange, _ string) bool { return !x.r.ProtoAtLeast(1, 1) },
	"idem-query-off":    func(x *exchange, _ string) bool { return x.r.URL.RawQuery != "" },
	"attack-large":      func(x *exchange, _ string) bool { return len(x.body) > 32<<10 },
	"idem-expect-off":   func(x *exchange, _ string) bool { return sent("Expect")(x) },
}

// sameKeys are what a defect takes for the key.
var sameKeys = map[string]func(x *exchange, key string) string{
	"idem-key-cut":     func(_ *exchange, key string) string { return key[:min(64, len(key))] },
	"idem-key-32":      func(_ *exchange, key string) string { return key[:min(32, len(key))] },
	"idem-key-case":    func(_ *exchange, key string) string { return strings.ToLower(key) },
	"idem-key-ignored": func(x *exchange, _ string) string { return string(x.body) },
	"idem-key-422":     func(_ *exchange, key string) string { return strings.ToLower(key) },
	"idem-key-suffix":  func(_ *exchange, key string) string { return key[max(0, len(key)-16):] },
	"idem-key-number":  func(_ *exchange, key string) string { return strings.TrimLeft(key, "0") },
	"idem-key-comma":   func(_ *exchange, key string) string { first, _, _ := strings.Cut(key, ","); return first },
	"idem-key-plus":    func(_ *exchange, key string) string { return strings.ReplaceAll(key, "+", "-") },
	"idem-key-dashes":  func(_ *exchange, key string) string { return strings.ReplaceAll(key, "-", "") },
	"idem-key-glob":    globbed,
	"idem-key-accents": func(_ *exchange, key string) string { return accents.Replace(key) },
	"idem-key-decoded": func(_ *exchange, key string) string {
		if decoded, err := url.PathUnescape(key); err == nil {
			return decoded
		}
		return key
	},
	"idem-key-float": func(_ *exchange, key string) string {
		if n, err := strconv.ParseFloat(key, 64); err == nil {
			return fmt.Sprint(n)
		}
		return key
	},
	"idem-key-anagram": func(_ *exchange, key string) string {
		letters := []byte(key)
		slices.Sort(letters)
		return string(letters)
	},
}

// accents takes the accents of French, German and Spanish away, also those that
// stand behind a letter of their own.
var accents = strings.NewReplacer("à", "a", "á", "a", "â", "a", "ä", "a", "ç", "c", "è", "e", "é", "e", "ê", "e",
	"ë", "e", "í", "i", "î", "i", "ï", "i", "ñ", "n", "ó", "o", "ô", "o", "ö", "o", "ù", "u", "ú", "u", "û", "u",
	"ü", "u", "\u0300", "", "\u0301", "", "\u0302", "", "\u0303", "", "\u0308", "")

// globbed returns the oldest key that is like the pattern.
func globbed(x *exchange, pattern string) string {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	prefix := x.s.partition(x, x.r.URL.Path)
	for _, stored := range x.s.order {
		key, ok := strings.CutPrefix(stored, prefix)
		like, _ := path.Match(pattern, key)
		if ok && like && x.s.replies[stored] != nil {
			return key
		}
	}
	return pattern
}

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

// often are the headers that every request has, whatever it is for.
var often = []string{"Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type",
	"Idempotency-Key", "User-Agent"}

// fingerprint returns the other headers of a request.
func fingerprint(r *http.Request) string {
	h := r.Header.Clone()
	for _, name := range often {
		h.Del(name)
	}
	return fmt.Sprint(h)
}

// hashCode is Java's, which two strings may share.
func hashCode(key string) string {
	var sum int32
	for _, b := range []byte(key) {
		sum = 31*sum + int32(b)
	}
	return fmt.Sprint(sum)
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
		s.replies[key] = &reply{done: done, response: response, at: time.Now()}
	})
}
