// Package bare is a small server that keeps the contract without any of this module's middleware: one account to read, tasks
// to create. The tests of the rules run against it whole, and with one thing broken at a time.
package bare

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The two routes.
const (
	Read   = "/api/v1/account"
	Create = "/api/v1/tasks"
)

// A Key is what a token stands for.
type Key struct {
	Organization, Environment string
	Scoped, Revoked           bool // Scoped: it may do everything; otherwise nothing
}

// A Stage is one step of the way of a request.
type Stage func(*Server, http.Handler) http.Handler

// Server is the server. Its fields are what a test breaks; [New] sets them right.
type Server struct {
	Keys   map[string]Key
	Stages []Stage
	Limit  int // requests a second of an organization's environment; 0: no limit

	Delay        time.Duration // of a create
	Interrupt    bool          // the client's leaving ends a create in the middle
	IgnoreErrors bool          // a body that cannot be read to its end is taken for whole

	Partition   func(*http.Request, Key) string
	Fingerprint func(*http.Request, []byte) string
	IdemKey     func(*http.Request, []byte) (key string, ok bool) // "": not idempotent; !ok: 400
	Keep        func(status int) bool
	Race        bool // look and claim are two steps
	Conflict    bool // a repeat in progress gets 409

	mu      sync.Mutex
	replies map[string]*reply
	windows map[string]*window
}

// New returns a server that keeps the contract.
func New(keys map[string]Key) *Server {
	return &Server{
		Keys:   keys,
		Stages: []Stage{RequestID, Authenticate, RateLimit, Route, Scope, Idempotency},
		Partition: func(_ *http.Request, k Key) string {
			return k.Organization + "\x00" + k.Environment
		},
		Fingerprint: func(r *http.Request, body []byte) string {
			return r.Method + " " + r.URL.String() + "\n" + string(body)
		},
		IdemKey: IdemKey,
		Keep:    func(status int) bool { return status < 300 },
		replies: make(map[string]*reply),
		windows: make(map[string]*window),
	}
}

// Handler puts the stages together.
func (s *Server) Handler() http.Handler {
	var h http.Handler = http.HandlerFunc(s.serve)
	for _, stage := range slices.Backward(s.Stages) {
		h = stage(s, h)
	}
	return h
}

// serve is what all the stages are for.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		fmt.Fprintln(w, `{"organization":"`+keyOf(r).Organization+`"}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	var task struct{ Title string }
	if (err != nil || json.Unmarshal(body, &task) != nil) && !s.IgnoreErrors {
		Refuse(w, 400, "bad_request")
		return
	}
	if s.Interrupt {
		select {
		case <-time.After(s.Delay):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	} else {
		time.Sleep(s.Delay)
	}
	id := rand.Text()
	w.Header().Set("Location", Create+"/"+id)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, `{"id":"`+id+`"}`)
}

// Refuse answers with a problem of RFC 9457.
func Refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"request_id":%q}`, status, code, w.Header().Get("Svc-Request-Id"))
}

// RequestID gives each response an id.
func RequestID(_ *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Svc-Request-Id", rand.Text())
		next.ServeHTTP(w, r)
	})
}

type keyOfRequest struct{}

func keyOf(r *http.Request) Key {
	k, _ := r.Context().Value(keyOfRequest{}).(Key)
	return k
}

// Route knows the two routes.
func Route(_ *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := map[string]string{Read: "GET, HEAD", Create: "POST"}[r.URL.Path]
		switch {
		case allowed == "":
			Refuse(w, 404, "not_found")
		case !slices.Contains(strings.Split(allowed, ", "), r.Method):
			w.Header().Set("Allow", allowed)
			Refuse(w, 405, "method_not_allowed")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
