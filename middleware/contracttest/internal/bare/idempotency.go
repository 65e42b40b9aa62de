package bare

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"
)

// reply is what a key stands for: a claim, and the response once done is closed.
type reply struct {
	fingerprint string
	done        chan struct{}
	response    *httptest.ResponseRecorder // nil: nothing happened
}

// IdemKey returns the key of a POST.
func IdemKey(r *http.Request, _ []byte) (string, bool) {
	values := r.Header.Values("Idempotency-Key")
	if r.Method != http.MethodPost || len(values) == 0 {
		return "", true
	}
	for _, c := range values[0] {
		if c < 0x21 || c > 0x7e {
			return "", false
		}
	}
	return values[0], len(values) == 1 && len(values[0]) > 0 && len(values[0]) <= 255
}

// Idempotency returns the original response to a repeat.
func Idempotency(s *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil && !s.IgnoreErrors {
			Refuse(w, 400, "bad_request")
			return
		}
		key, ok := s.IdemKey(r, body)
		copied := r.WithContext(r.Context())
		copied.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case !ok:
			Refuse(w, 400, "idempotency_key_invalid")
		case key == "":
			next.ServeHTTP(w, copied)
		default:
			s.once(w, copied, s.Partition(r, keyOf(r))+"\x00"+key, s.Fingerprint(r, body), next)
		}
	})
}

func (s *Server) once(w http.ResponseWriter, r *http.Request, key, fingerprint string, next http.Handler) {
	for {
		claim, known := s.claim(key, fingerprint)
		switch {
		case !known:
			s.run(w, r, key, claim, next)
			return
		case claim.fingerprint != fingerprint:
			Refuse(w, 422, "idempotency_key_reused")
			return
		}
		if s.Conflict {
			select {
			case <-claim.done:
			default:
				w.Header().Set("Retry-After", "1")
				Refuse(w, 409, "idempotency_in_progress")
				return
			}
		}
		<-claim.done
		if claim.response != nil {
			maps.Copy(w.Header(), kept(claim.response.Header()))
			w.Header().Set("Idempotent-Replayed", "true")
			w.Header().Set("Svc-Original-Request-Id", claim.response.Header().Get("Svc-Request-Id"))
			w.WriteHeader(claim.response.Code)
			_, _ = w.Write(claim.response.Body.Bytes())
			return
		}
	}
}

// claim returns what the key stands for already, or a new claim.
func (s *Server) claim(key, fingerprint string) (*reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.replies[key]; ok {
		return before, true
	}
	if s.Race {
		s.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		s.mu.Lock()
	}
	claim := &reply{fingerprint: fingerprint, done: make(chan struct{})}
	s.replies[key] = claim
	return claim, false
}

func (s *Server) run(w http.ResponseWriter, r *http.Request, key string, claim *reply, next http.Handler) {
	response := httptest.NewRecorder()
	response.Header().Set("Svc-Request-Id", w.Header().Get("Svc-Request-Id"))
	if !s.Interrupt {
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	next.ServeHTTP(response, r)
	s.mu.Lock()
	if s.Keep(response.Code) {
		claim.response = response
	} else {
		delete(s.replies, key)
	}
	s.mu.Unlock()
	close(claim.done)
	maps.Copy(w.Header(), kept(response.Header()))
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes())
}

// kept leaves out what belongs to one response alone.
func kept(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Svc-Request-Id")
	return h
}
