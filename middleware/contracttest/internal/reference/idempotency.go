package reference

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
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
	at       time.Time
	ended    time.Time
	worker   int
	repeats  int
	gzip     bool // the first request takes it
	stuck    bool // in progress for ever
	token    string
	host     string // of the request, for free-hosts
	headers  string // of the request, for idem-fingerprint-422
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

const maxBody = 1 << 20

// once runs the handler, or repeats its response.
func (s *Server) once(x *exchange, path string) {
	x.known = s.stored(x, path) != nil
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
	body, err := s.readBody(x)
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
	case s.has("id-absent-408") && errors.Is(err, os.ErrDeadlineExceeded):
		x.refuse(http.StatusRequestTimeout, "timeout")
		return
	case err != nil:
		x.cut = true
		if lenient {
			s.create(x, httptest.NewRecorder(), path)
		}
		if s.has("free-stores-refusals") || s.has("idem-cut-stored") {
			s.store(x, http.StatusBadRequest, "bad_request")
		}
		if given := x.r.Header.Get("Idempotency-Key"); s.has("idem-cut-hangs") && given != "" {
			s.cuts.Store(s.partition(x, path)+given, true)
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
	case s.has("idem-key-hash"):
		key = hashCode(key)
	}
	s.claimAndRun(x, path, s.partition(x, path)+key)
}

func (s *Server) claimAndRun(x *exchange, path, key string) {
	if s.has("org-key-taken") && s.taken(key) {
		x.refuse(http.StatusUnprocessableEntity, "idempotency_key_reused")
		return
	}
	if s.waitForCut(x, key) {
		return
	}
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
		other = other || s.has("idem-fingerprint-422") && claim.headers != fingerprint(x.r)
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
	case s.has("idem-lock-stolen"):
		s.forget(x, path)
		x.conflict()
	case s.has("idem-race-loser"):
		own := httptest.NewRecorder()
		s.create(x, own, path)
		s.rollBack(own)
		x.replayOf(&reply{response: own})
	case s.has("idem-race-body-only"):
		<-claim.done
		if claim.response == nil {
			return false
		}
		x.bodyOf(claim.response)
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
	if s.unreplayable(x, path, claim) {
		return
	}
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
	case s.has("idem-other-body"), x.lingers(), pick(s, sameKeys) != nil && !s.has("idem-key-422"):
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
	if before != nil && !gone && !soon && !lapsed && !slow && !s.lags(before) {
		if s.has("idem-lock-by-worker") && before.running() && before.worker != x.worker() {
			return s.ownClaim(x, key, path)
		}
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
	if s.has("idem-forgets-foreign") {
		maps.DeleteFunc(s.replies, func(other string, _ *reply) bool { return foreignTo(other, key) })
	}
	claim := &reply{body: string(x.body), path: path, done: make(chan struct{}), at: time.Now()}
	claim.host = x.r.Host
	claim.gzip = x.r.Header.Get("Accept-Encoding") == "gzip"
	claim.token, claim.headers, claim.worker = x.token, fingerprint(x.r), x.worker()
	if s.has("idem-body-overwrites") {
		s.overwrite(key, claim.body)
	}
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
	claim.response, claim.ended = response, time.Now()
	switch {
	case s.has("idem-400-stuck") && response.Code == http.StatusBadRequest:
		claim.stuck = true
	case response.Code >= 400 && !s.has("free-stores-refusals"):
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
	if left && err != nil && s.has("idem-abort-stuck") {
		s.locked(func() { claim.stuck = true })
	}
}
