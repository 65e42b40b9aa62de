package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// discard is a writer with the least that a server's has, so that a benchmark
// counts the stages and not the recorder.
type discard struct{ header http.Header }

func (w *discard) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}
func (w *discard) Write(p []byte) (int, error) { return len(p), nil }
func (w *discard) WriteHeader(int)             {}

func benchAPI(tb testing.TB) (api *middleware.API, token string, bare *http.ServeMux) {
	ring := newKeyring()
	token = ring.issue(tb, scope.TasksRead, scope.TasksWrite)
	api = middleware.NewAPI(ring.keys, middleware.Options{
		Limits:  middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.Limit{Count: 1e6, Period: 1e9, Burst: 1e9}),
		Replies: replies(),
	})
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(okBody) })
	created := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = jsonType
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(okBody)
	})
	api.Handle("GET /api/v1/tasks", middleware.Require(scope.TasksRead), ok)
	api.Handle("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), created)
	api.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead), ok)
	bare = http.NewServeMux()
	bare.Handle("GET /api/v1/tasks", ok)
	bare.Handle("POST /api/v1/tasks", created)
	return api, token, bare
}

var (
	okBody   = []byte(`{"ok":true}`)
	jsonType = []string{"application/json"}
)

func benchRequest(method, path, token string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func BenchmarkChain(b *testing.B) {
	api, token, bare := benchAPI(b)
	rows := []struct {
		name string
		h    http.Handler
		r    *http.Request
	}{
		{"bare", bare, benchRequest("GET", "/api/v1/tasks", token)},
		{"get", api, benchRequest("GET", "/api/v1/tasks", token)},
		{"401-missing", api, benchRequest("GET", "/api/v1/tasks", "")},
		{"401-malformed", api, benchRequest("GET", "/api/v1/tasks", token[:len(token)-1]+"!")},
		{"403", api, benchRequest("GET", "/api/v1/account", token)},
	}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row.h.ServeHTTP(&discard{header: make(http.Header)}, row.r)
			}
		})
	}
	b.Run("post-replay", func(b *testing.B) {
		r := benchRequest("POST", "/api/v1/tasks", token)
		r.Header.Set("Idempotency-Key", "replay")
		b.ReportAllocs()
		for b.Loop() {
			api.ServeHTTP(&discard{header: make(http.Header)}, r)
		}
	})
	b.Run("post-fresh", func(b *testing.B) {
		r := benchRequest("POST", "/api/v1/tasks", token)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n++
			r.Header["Idempotency-Key"] = []string{strconv.Itoa(n)}
			api.ServeHTTP(&discard{header: make(http.Header)}, r)
		}
	})
}
