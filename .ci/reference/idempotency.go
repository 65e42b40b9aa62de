package reference

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// reply is what an idempotency key stands for: a claim, and the response once
// done is closed.
type reply struct {
	body     string // of the request
	path     string
	done     chan struct{}
	response *httptest.ResponseRecorder // nil: nothing happened
	at       time.Time
	repeats  int
	gzip     bool // the first request takes it
	stuck    bool // for idem-race-stuck
}

// running reports whether the create still runs.
func (r *reply) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

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

const maxBody = 1 << 20

// once runs the handler, or repeats its response.
func (s *Server) once(x *exchange, path string) {
	x.known = s.stored(x, path) != nil
	body, err := io.ReadAll(http.MaxBytesReader(x, x.r.Body, maxBody))
	if x.body != nil {
		body, err = x.body, nil
	}
	x.body = body
	chunked := x.r.ContentLength < 0
	lenient := s.has("idem-cut-length") && !chunked || s.has("idem-cut-chunk") && chunked || s.has("idem-cut-string") ||
		s.has("idem-chunk-last") && chunked && json.Valid(body) && errors.Is(err, io.ErrUnexpectedEOF) ||
		s.has("idem-chunk-size") && chunked && !errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case chunked && s.has("free-no-chunks"):
		x.refuse(http.StatusLengthRequired, "length_required")
		return
	case len(body) == maxBody:
		if s.has("large-creates") {
			x.body = body[:bytes.IndexByte(body, '}')+1]
			s.insert(x, path, s.title(x))
		}
		x.refuse(http.StatusRequestEntityTooLarge, "too_large")
		return
	case err != nil:
		x.cut = true
		if lenient {
			s.create(x, httptest.NewRecorder(), path)
		}
		if s.has("free-stores-refusals") || s.has("idem-cut-stored") {
			s.store(x, http.StatusBadRequest, "bad_request")
		}
		x.refuse(http.StatusBadRequest, "bad_request")
		return
	}
	key := x.r.Header.Get("Idempotency-Key")
	if _, given := x.r.Header["Idempotency-Key"]; s.has("idem-key-empty") && given && key == "" {
		key = "empty"
	}
	if key == "" && s.has("idem-guesses") {
		key = string(body)
	}
	first := s.stored(x.as(keys[full]), Tasks)
	switch pass, same := pick(s, passedOver), pick(s, sameKeys); {
	case key == "" && s.has("free-must-key"), s.has("free-short-keys") && odd(key):
		x.refuse(http.StatusBadRequest, "idempotency_key_invalid")
		return
	case key == "", pass != nil && pass(x, key):
		s.create(x, x, path)
		return
	case s.has("idem-org-409") && x.key.org == "org_2" && first != nil:
		x.conflict()
		return
	case s.has("idem-path-500") && path != Tasks && first != nil:
		x.refuse(http.StatusInternalServerError, "internal")
		return
	case s.has("idem-key-500") && strings.ContainsAny(key, `"'`):
		x.refuse(http.StatusInternalServerError, "internal")
		return
	case len(key) > 255, s.has("idem-uuid") && !uuid.MatchString(key) && len(key) < 64:
		x.refuse(http.StatusBadRequest, "idempotency_key_invalid")
		return
	case same != nil:
		key = same(x, key)
	case s.has("idem-key-hash"):
		key = hashCode(key)
	}
	s.claimAndRun(x, path, s.partition(x, path)+key)
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

func (s *Server) claimAndRun(x *exchange, path, key string) {
	if s.has("org-key-taken") && s.taken(key) {
		x.refuse(http.StatusUnprocessableEntity, "idempotency_key_reused")
		return
	}
	for {
		claim, known := s.claim(x, key, path)
		if !known {
			s.run(x, path, key, claim)
			return
		}
		other := claim.body != "" && claim.body != string(x.body) && (claim.path == path || !s.has("idem-path"))
		if other && !x.joined && s.differs(x, path) {
			return
		}
		if claim.running() && s.inFlight(x, path, claim) {
			return
		}
		<-claim.done
		if claim.response != nil { // or nothing happened
			s.again(x, path, claim)
			return
		}
	}
}

// inFlight answers a duplicate of a create that runs, unless that one is to
// wait for it.
func (s *Server) inFlight(x *exchange, path string, claim *reply) bool {
	switch {
	case s.has("idem-409-bare"):
		x.refuse(http.StatusConflict, "idempotency_in_progress")
	case s.has("id-absent-409"):
		x.conflict()
	case s.status("idem-race", 0) != 0:
		x.refuse(s.status("idem-race", 0), "busy")
	case s.has("idem-race-empty"):
		x.WriteHeader(http.StatusAccepted)
	default:
		s.locked(func() { claim.stuck = s.has("idem-race-stuck") })
		if s.has("idem-race-silent") {
			s.insert(x, path, s.title(x))
		}
		return false
	}
	return true
}

// again answers a repeat.
func (s *Server) again(x *exchange, path string, claim *reply) {
	var stuck, late, fifth bool
	s.locked(func() {
		s.repeats++
		claim.repeats++
		stuck, late, fifth = claim.stuck, claim.repeats == 2, s.repeats%5 == 0
	})
	switch {
	case s.has("idem-412") && x.r.Header.Get("If-None-Match") == "*":
		x.refuse(http.StatusPreconditionFailed, "there_is_one")
		return
	case s.has("idem-replaces"):
		s.replace(claim)
	case s.has("idem-409"), stuck:
		x.conflict()
		return
	case s.has("idem-replay-creates"),
		s.has("idem-late-create") && late,
		s.has("idem-long-creates") && len(x.r.Header.Get("Idempotency-Key")) > 200,
		s.has("attack-once-in-five") && fifth:
		s.insert(x, path, s.title(x))
	case s.has("attack-async"):
		later := x.as(x.key)
		time.AfterFunc(300*time.Millisecond, func() { s.insert(later, path, s.title(later)) })
	}
	x.replayOf(claim)
}

// replace makes another resource of the one that the create made.
func (s *Server) replace(claim *reply) {
	s.locked(func() {
		for i, t := range s.tasks {
			if strings.HasSuffix(claim.response.Header().Get("Location"), "/"+t.ID) {
				other := *t
				other.ID, other.made = rand.Text(), time.Now()
				s.tasks[i] = &other
			}
		}
	})
}

func (x *exchange) conflict() {
	x.Header().Set("Retry-After", "1")
	x.refuse(http.StatusConflict, "idempotency_in_progress")
}

// differs answers another body under the same key.
func (s *Server) differs(x *exchange, path string) bool {
	switch {
	case s.has("idem-other-body"), pick(s, sameKeys) != nil && !s.has("idem-key-422"):
		return false
	case s.has("idem-other-body-new"):
		s.create(x, x, path)
	default:
		if s.has("idem-forgets-refused") {
			s.forget(x, path)
		}
		x.refuse(http.StatusUnprocessableEntity, "idempotency_key_reused")
	}
	return true
}

// joins are the creates at one time that a defect takes for one.
var joins = map[string]func(one, other string) bool{
	"idem-coalesced": func(one, other string) bool {
		return one[:strings.LastIndexByte(one, 0)] == other[:strings.LastIndexByte(other, 0)]
	},
	"org-in-flight": foreignTo,
}

// foreignTo reports whether the two are the same for different organizations.
func foreignTo(one, other string) bool {
	org, rest, _ := strings.Cut(one, "\x00")
	otherOrg, otherRest, _ := strings.Cut(other, "\x00")
	return rest == otherRest && org != otherOrg
}

// taken reports whether another organization has used the key.
func (s *Server) taken(key string) (found bool) {
	s.locked(func() {
		for other := range s.replies {
			found = found || foreignTo(other, key)
		}
	})
	return found
}

// claim returns what the key stands for already, or a new claim.
func (s *Server) claim(x *exchange, key, path string) (*reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.replies[key]
	gone := before != nil && before.response != nil && s.has("idem-gone") && !slices.ContainsFunc(s.tasks,
		func(t *resource) bool { return strings.HasSuffix(before.response.Header().Get("Location"), t.ID) })
	soon := s.has("idem-forgets-soon") && before != nil && time.Since(before.at) > time.Second
	lapsed := s.has("idem-lease") && before != nil && before.running() && time.Since(before.at) > s.Create/2
	slow := s.has("idem-slow-body") && before != nil && !before.running() && !x.known
	if before != nil && !gone && !soon && !lapsed && !slow {
		return before, true
	}
	if same := pick(s, joins); same != nil {
		for other, running := range s.replies {
			if running.running() && same(other, key) {
				x.joined = true
				return running, true
			}
		}
	}
	if s.has("idem-race") {
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		s.mu.Lock()
	}
	if s.has("idem-path-overwrites") {
		maps.DeleteFunc(s.replies, func(other string, _ *reply) bool { return pathless(other) == pathless(key) })
	}
	claim := &reply{body: string(x.body), path: path, done: make(chan struct{}), at: time.Now()}
	claim.gzip = x.r.Header.Get("Accept-Encoding") == "gzip"
	s.replies[key] = claim
	s.order = append(s.order, key)
	if keep := pick(s, map[string]int{"idem-forgets-many": 16, "idem-forgets-two": 2}); keep > 0 && len(s.order) > keep {
		delete(s.replies, s.order[0])
		s.order = s.order[1:]
	}
	return claim, false
}

// run makes the response and stores it before it is sent.
func (s *Server) run(x *exchange, path, key string, claim *reply) {
	response := httptest.NewRecorder()
	s.create(x, response, path)
	left := x.r.Context().Err() != nil
	if s.has("idem-same-id") {
		response.Header().Set("Svc-Request-Id", rand.Text())
	}
	s.mu.Lock()
	claim.response = response
	if response.Code >= 400 && !s.has("free-stores-refusals") {
		claim.response = nil
		delete(s.replies, key)
	}
	s.mu.Unlock()
	close(claim.done)
	maps.Copy(x.Header(), response.Header())
	x.WriteHeader(response.Code)
	_, err := x.Write(response.Body.Bytes())
	if err == nil && left {
		err = http.NewResponseController(x).Flush()
	}
	if left && (s.has("idem-abort") && err != nil || s.has("idem-half-close") && err == nil) {
		s.locked(func() { delete(s.replies, key) })
	}
}

// distortions are what a defect makes of a stored response.
var distortions = map[string]func(h http.Header, body []byte) []byte{
	"idem-empty":       func(http.Header, []byte) []byte { return nil },
	"idem-truncated":   func(_ http.Header, body []byte) []byte { return body[:min(len(body), 4096)] },
	"idem-no-location": func(h http.Header, body []byte) []byte { h.Del("Location"); return body },
	"idem-no-language": func(h http.Header, body []byte) []byte { h.Del("Content-Language"); return body },
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
	maps.Copy(x.Header(), h)
	status := pick(x.s, map[string]int{"idem-200": 200, "idem-304": 304, "idem-202": 202})
	x.WriteHeader(cmp.Or(status, claim.response.Code))
	_, _ = x.Write(body)
}

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
	done := make(chan struct{})
	close(done)
	s.locked(func() {
		s.replies[s.partition(x, x.r.URL.Path)+key] = &reply{done: done, response: response, at: time.Now()}
	})
}
