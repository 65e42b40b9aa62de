package bench

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
)

// netHTTP is a Server that is an http.Handler.
type netHTTP struct{ http.Handler }

// discard has the least that the writer of a server has, so that the stages are
// measured and not the recorder.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header { return w.header }
func (w *discard) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}
func (w *discard) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}

func (h netHTTP) Loop(q Request) func(authorization, key string) int {
	r := httptest.NewRequest(q.Method, q.Path, strings.NewReader(q.Body))
	if q.Body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	body := new(strings.Reader)
	r.Body = io.NopCloser(body)
	authorizations, keys := make([]string, 1), make([]string, 1)
	return func(authorization, key string) int {
		body.Reset(q.Body)
		// gin-contrib/requestid writes into the request's header, and would
		// find its own id there the next time.
		delete(r.Header, "X-Request-Id")
		r.Pattern = "" // as of a request that a server has just read
		if authorization != "" {
			authorizations[0] = authorization
			r.Header["Authorization"] = authorizations
		}
		if key != "" {
			keys[0] = key
			r.Header["Idempotency-Key"] = keys
		}
		w := &discard{header: make(http.Header)}
		h.ServeHTTP(w, r)
		return w.status
	}
}

func (h netHTTP) Serve(ln net.Listener) {
	srv := http.Server{Handler: h.Handler, ErrorLog: log.New(io.Discard, "", 0)}
	srv.Serve(ln)
}

// application is what stands behind the stages of every net/http peer.
type application struct{ *Setup }

func (a application) list(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, listBody)
}

func (a application) post(w http.ResponseWriter, r *http.Request) {
	a.create()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, createdBody)
}

func (a application) half(w http.ResponseWriter, r *http.Request) { writeHalf(w) }

// routes are those of the peers on http.ServeMux.
func (a application) routes(post http.HandlerFunc) *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /api/v1/tasks", need("tasks:read", a.list))
	m.HandleFunc("GET /api/v1/account", need("account:read", a.list))
	m.HandleFunc("POST /api/v1/tasks", need("tasks:write", post))
	m.HandleFunc("GET /api/v1/half", need("tasks:read", a.half))
	return m
}

func newBare(s *Setup) Server {
	a := application{s}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks", a.list)
	mux.HandleFunc("POST /api/v1/tasks", a.post)
	return netHTTP{mux}
}
