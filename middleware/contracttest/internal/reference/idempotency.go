package reference

import (
	"crypto/rand"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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
	repeats  int
	gzip     bool   // the first request takes it
	stuck    bool   // in progress for ever
	host     string // of the request, for free-hosts
}

func (r *reply) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

const maxBody = 1 << 20

// once runs the handler, or repeats its response.
func (s *Server) once(x *exchange, path string) {
	switch {
	case !s.has("idem-busy-409"):
	case !s.isDone(x, path):
		s.creating(x, 1)
		defer s.creating(x, -1)
	case s.creating(x, 0) > 0:
		x.conflict()
		return
	}
	began := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(x, x.r.Body, maxBody))
	if x.body != nil {
		body, err = x.body, nil
	}
	x.body = body
	chunked := x.r.ContentLength < 0
	lenient := s.has("idem-cut-length") && !chunked || s.has("idem-cut-string")
	switch {
	case chunked && s.has("free-no-chunks"):
		x.refuse(http.StatusLengthRequired, "length_required")
		return
	case len(body) == maxBody:
		x.refuse(http.StatusRequestEntityTooLarge, "too_large")
		return
	case err != nil:
		if lenient {
			s.create(x, httptest.NewRecorder(), path)
		}
		if s.has("free-stores-refusals") || s.has("idem-cut-stored") {
			s.store(x, http.StatusBadRequest, "bad_request")
		}
		x.refuse(http.StatusBadRequest, "bad_request")
		return
	}
	s.sentAgain(x, path, began)
	key := x.r.Header.Get("Idempotency-Key")
	if _, given := x.r.Header["Idempotency-Key"]; s.has("idem-key-empty") && given && key == "" {
		key = "empty"
	}
	if key == "" && s.has("idem-guesses") {
		key = string(body)
	}
	if s.has("idem-key-lingers") {
		key = x.lingering(key)
	}
	first := s.stored(x.as(keys[full]), Tasks)
	switch same := pick(s, sameKeys); {
	case key == "" && s.has("free-must-key"), s.has("free-short-keys") && odd(key):
		x.refuse(http.StatusBadRequest, "idempotency_key_invalid")
		return
	case key == "", s.has("idem-key-zero") && key == "0":
		s.create(x, x, path)
		return
	case s.has("idem-org-409") && x.key.org == "org_2" && first != nil:
		x.conflict()
		return
	case s.has("idem-path-500") && path != Tasks && first != nil:
		x.refuse(http.StatusInternalServerError, "internal")
		return
	case s.has("idem-key-proto") && slices.Contains(inherited, key):
		x.WriteHeader(http.StatusOK)
		return
	case s.has("idem-key-500") && strings.ContainsAny(key, `"'`):
		x.refuse(http.StatusInternalServerError, "internal")
		return
	case len(key) > 255, s.has("idem-uuid") && !uuid.MatchString(key) && len(key) < 64:
		x.refuse(http.StatusBadRequest, "idempotency_key_invalid")
		return
	case same != nil:
		key = same(x, key)
	}
	s.claimAndRun(x, path, s.partition(x, path)+key)
}

func (s *Server) claimAndRun(x *exchange, path, key string) {
	if s.has("idem-bloom") && s.inFilter(key) {
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
		other = other || s.has("free-hosts") && claim.host != x.r.Host
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
	case s.status("idem-race", 0) != 0:
		x.refuse(s.status("idem-race", 0), "busy")
	case s.has("idem-race-empty"):
		x.WriteHeader(http.StatusAccepted)
	default:
		s.locked(func() { claim.stuck = s.has("idem-race-stuck") })
		return false
	}
	return true
}

// again answers a repeat.
func (s *Server) again(x *exchange, path string, claim *reply) {
	var stuck, late bool
	s.locked(func() {
		claim.repeats++
		stuck, late = claim.stuck, claim.repeats == 2
	})
	switch {
	case s.has("idem-needs-read") && !x.key.may(strings.TrimPrefix(path, "/api/v1/")+":read"):
		x.refuse(http.StatusForbidden, "insufficient_scope")
		return
	case s.has("idem-412") && x.r.Header.Get("If-None-Match") == "*":
		x.refuse(http.StatusPreconditionFailed, "there_is_one")
		return
	case s.has("idem-replaces"):
		s.replace(claim)
	case s.has("idem-409"), stuck:
		x.conflict()
		return
	case s.has("idem-replay-creates"), s.has("idem-late-create") && late:
		s.insert(x, path, s.title(x))
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
	if s.has("idem-other-body") || x.lingers() || pick(s, sameKeys) != nil && !s.has("idem-key-422") {
		return false
	}
	if s.has("idem-forgets-refused") {
		s.forget(x, path)
	}
	if s.has("idem-422-creates") {
		s.insert(x, path, s.title(x))
	}
	x.refuse(s.status("idem-other-body", http.StatusUnprocessableEntity), "idempotency_key_reused")
	return true
}

// foreignTo reports whether the two are the same for different organizations.
func foreignTo(one, other string) bool {
	org, rest, _ := strings.Cut(one, "\x00")
	otherOrg, otherRest, _ := strings.Cut(other, "\x00")
	return rest == otherRest && org != otherOrg
}

// claim returns what the key stands for already, or a new claim.
func (s *Server) claim(x *exchange, key, path string) (*reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.replies[key]
	if before != nil {
		return before, true
	}
	partition := key[:strings.LastIndexByte(key, 0)+1]
	for other, running := range s.replies {
		if s.has("idem-path-equal") && pathless(other) == pathless(key) && running.body == string(x.body) {
			return running, true
		}
		if s.has("idem-coalesced") && running.running() && strings.HasPrefix(other, partition) {
			x.joined = true
			return running, true
		}
	}
	if s.has("idem-path-overwrites") {
		maps.DeleteFunc(s.replies, func(other string, _ *reply) bool { return pathless(other) == pathless(key) })
	}
	if s.has("idem-forgets-foreign") {
		maps.DeleteFunc(s.replies, func(other string, _ *reply) bool { return foreignTo(other, key) })
	}
	if s.has("idem-body-overwrites") {
		maps.DeleteFunc(s.replies, func(other string, r *reply) bool {
			return strings.HasPrefix(other, partition) && r.body == string(x.body) && !r.running()
		})
	}
	claim := &reply{body: string(x.body), path: path, host: x.r.Host, done: make(chan struct{}),
		gzip: x.r.Header.Get("Accept-Encoding") == "gzip"}
	s.replies[key] = claim
	return claim, false
}

// run makes the response and stores it before it is sent.
func (s *Server) run(x *exchange, path, key string, claim *reply) {
	response := httptest.NewRecorder()
	s.create(x, response, path)
	if s.has("idem-same-id") {
		response.Header().Set("Svc-Request-Id", rand.Text())
	}
	s.mu.Lock()
	claim.response = response
	switch {
	case s.has("idem-400-stuck") && response.Code == http.StatusBadRequest:
		claim.stuck = true
	case s.has("idem-400-201") && response.Code == http.StatusBadRequest:
		claim.response = httptest.NewRecorder()
		claim.response.Code = http.StatusCreated
	case response.Code >= 400 && !s.has("free-stores-refusals"):
		claim.response = nil
		delete(s.replies, key)
	}
	s.mu.Unlock()
	close(claim.done)
	maps.Copy(x.Header(), response.Header())
	x.WriteHeader(response.Code)
	_, _ = x.Write(response.Body.Bytes())
}
