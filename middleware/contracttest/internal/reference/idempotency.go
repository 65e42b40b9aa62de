package reference

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"time"
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
	stuck    bool // for idem-race-stuck
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
	if s.has("idem-connection") {
		p += x.conn.id
	}
	if s.has("attack-two-workers") {
		p += fmt.Sprint(x.conn.number % 2)
	}
	if s.has("idem-per-api-key") {
		p += x.token
	}
	return p
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F-]{36}$`)

// once runs the handler, or repeats its response.
func (s *Server) once(x *exchange, path string) {
	body, err := io.ReadAll(x.r.Body)
	if x.body != nil {
		body, err = x.body, nil
	}
	x.body = body
	chunked := x.r.ContentLength < 0
	lenient := s.has("idem-cut-length") && !chunked || s.has("idem-cut-chunk") && chunked || s.has("idem-cut-string")
	if err != nil {
		x.cut = true
		if lenient {
			s.create(x, httptest.NewRecorder(), path)
		}
		x.refuse(http.StatusBadRequest, "bad_request")
		return
	}
	key := x.r.Header.Get("Idempotency-Key")
	switch {
	case key == "", s.has("idem-off"),
		s.has("idem-sandbox-off") && x.key.env == "test",
		s.has("idem-second-off") && path == Deliverables,
		s.has("idem-chunked-off") && chunked,
		s.has("idem-only-uuid") && !uuid.MatchString(key),
		s.has("idem-long-ignored") && len(key) > 200,
		s.has("idem-odd-ignored") && strings.ContainsAny(key, `/%`),
		s.has("attack-large") && len(body) > 32<<10,
		s.has("idem-http2-off") && x.r.ProtoMajor == 2:
		s.create(x, x, path)
		return
	case s.has("idem-key-500") && strings.ContainsAny(key, `"'`):
		x.refuse(http.StatusInternalServerError, "internal")
		return
	case len(key) > 255, s.has("idem-uuid") && !uuid.MatchString(key) && len(key) < 64:
		x.refuse(http.StatusBadRequest, "idempotency_key_invalid")
		return
	case s.has("idem-key-cut"):
		key = key[:min(64, len(key))]
	case s.has("idem-key-case"):
		key = strings.ToLower(key)
	case s.has("idem-key-ignored"):
		key = string(body)
	}
	s.claimAndRun(x, path, s.partition(x, path)+key)
}

func (s *Server) claimAndRun(x *exchange, path, key string) {
	for {
		claim, known := s.claim(key, path, string(x.body))
		if !known {
			s.run(x, path, key, claim)
			return
		}
		other := claim.body != "" && claim.body != string(x.body) && (claim.path == path || !s.has("idem-path"))
		if other && s.differs(x, path) {
			return
		}
		select {
		case <-claim.done:
		default:
			if s.inFlight(x, path, claim) {
				return
			}
			<-claim.done
		}
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
	case s.has("idem-race-500"):
		x.refuse(http.StatusInternalServerError, "internal")
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
	case s.has("idem-409"), stuck:
		x.conflict()
		return
	case s.has("idem-replay-creates"),
		s.has("idem-late-create") && late,
		s.has("attack-once-in-five") && fifth:
		s.insert(x, path, s.title(x))
	case s.has("attack-async"):
		later := x.as(x.key)
		time.AfterFunc(300*time.Millisecond, func() { s.insert(later, path, s.title(later)) })
	}
	x.replayOf(claim)
}

func (x *exchange) conflict() {
	x.Header().Set("Retry-After", "1")
	x.refuse(http.StatusConflict, "idempotency_in_progress")
}

// differs answers another body under the same key.
func (s *Server) differs(x *exchange, path string) bool {
	switch {
	case s.has("idem-key-ignored"), s.has("idem-other-body"), s.has("idem-key-cut"), s.has("idem-key-case"):
		return false
	case s.has("idem-other-body-new"):
		s.create(x, x, path)
	default:
		x.refuse(http.StatusUnprocessableEntity, "idempotency_key_reused")
	}
	return true
}

// claim returns what the key stands for already, or a new claim.
func (s *Server) claim(key, path, body string) (*reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.replies[key]; before != nil && !(s.has("idem-forgets-soon") && time.Since(before.at) > time.Second) {
		return before, true
	}
	if s.has("idem-race") {
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		s.mu.Lock()
	}
	claim := &reply{body: body, path: path, done: make(chan struct{}), at: time.Now()}
	s.replies[key] = claim
	s.order = append(s.order, key)
	if s.has("idem-forgets-many") && len(s.order) > 16 {
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
	if response.Code >= 400 {
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
		s.mu.Lock()
		delete(s.replies, key)
		s.mu.Unlock()
	}
}

// replayOf sends a stored response.
func (x *exchange) replayOf(claim *reply) {
	s := x.s
	stored := claim.response
	x.replay = true
	h := stored.Header().Clone()
	body := stored.Body.Bytes()
	status := stored.Code
	switch {
	case s.has("idem-200"):
		status = http.StatusOK
	case s.has("idem-empty"):
		body = nil
	case s.has("idem-rebuilt"):
		now := `"read_at":"` + time.Now().Format(time.RFC3339Nano) + `",`
		body = bytes.Replace(body, []byte(`"created_at":`), []byte(now+`"created_at":`), 1)
	case s.has("idem-no-location"):
		h.Del("Location")
	case s.has("idem-no-type"):
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	maps.Copy(x.Header(), h)
	x.WriteHeader(status)
	_, _ = x.Write(body)
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
