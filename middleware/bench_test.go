package middleware_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// discard is a writer with the least that a server's has, so that a benchmark
// counts the stages and not the recorder.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}
func (w *discard) Write(p []byte) (int, error) { return len(p), nil }
func (w *discard) WriteHeader(status int)      { w.status = status }

func benchAPI(tb testing.TB) (api *middleware.API, token string, bare *http.ServeMux) {
	ring := newKeyring()
	token = ring.issue(tb, scope.TasksRead, scope.TasksWrite)
	api = middleware.NewAPI(ring.keys, middleware.Options{
		RateLimit:   middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.Limit{Count: 1e6, Period: 1e9, Burst: 1e9}),
		Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Lease: 100 * time.Millisecond, Retention: 100 * time.Millisecond})},
	})
	ok, created := http.HandlerFunc(benchOK), http.HandlerFunc(benchCreated)
	api.Handle("GET /api/v1/tasks", middleware.Require(scope.TasksRead), ok)
	api.Handle("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), created)
	api.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead), ok)
	bare = http.NewServeMux()
	bare.Handle("GET /api/v1/tasks", ok)
	bare.Handle("POST /api/v1/tasks", created)
	return api, token, bare
}

// benchPieces is the API of benchAPI as pieces of a Guard around a mux, with
// what stands between two pieces, or nothing.
func benchPieces(tb testing.TB, between func(http.Handler) http.Handler) (pieces http.Handler, token string) {
	ring := newKeyring()
	token = ring.issue(tb, scope.TasksRead, scope.TasksWrite)
	g := middleware.New(ring.keys, middleware.Options{
		RateLimit:   middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.Limit{Count: 1e6, Period: 1e9, Burst: 1e9}),
		Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Lease: 100 * time.Millisecond, Retention: 100 * time.Millisecond})},
	})
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/tasks", g.Require(scope.TasksRead)(http.HandlerFunc(benchOK)))
	mux.Handle("GET /api/v1/account", g.Require(scope.AccountRead)(http.HandlerFunc(benchOK)))
	mux.Handle("POST /api/v1/tasks", middleware.Chain(g.Require(scope.TasksWrite), between, g.Idempotent)(http.HandlerFunc(benchCreated)))
	return middleware.Chain(g.RequestID, between, g.Recover, between, g.Authenticate, g.RateLimit)(mux), token
}

var (
	okBody   = []byte(`{"ok":true}`)
	taskBody = []byte(`{"id":"task_1","title":"Call the bank","state":"open","created_at":"2026-11-21T00:00:00Z"}`)
	jsonType = []string{"application/json"}
)

// passOn stands for middleware of somebody else.
func passOn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

func benchOK(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(okBody) }

func benchCreated(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(taskBody)
}

func benchRequest(method, path, token string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func BenchmarkChain(b *testing.B) {
	api, token, bare := benchAPI(b)
	pieces, own := benchPieces(b, middleware.Chain())
	apart, others := benchPieces(b, passOn)
	rows := []struct {
		name string
		h    http.Handler
		r    *http.Request
	}{
		{"bare", bare, benchRequest("GET", "/api/v1/tasks", token)},
		{"pieces", pieces, benchRequest("GET", "/api/v1/tasks", own)},
		{"pieces-401", pieces, benchRequest("GET", "/api/v1/tasks", "")},
		{"pieces-403", pieces, benchRequest("GET", "/api/v1/account", own)},
		{"apart", apart, benchRequest("GET", "/api/v1/tasks", others)},
		{"get", api, benchRequest("GET", "/api/v1/tasks", token)},
		{"401-missing", api, benchRequest("GET", "/api/v1/tasks", "")},
		{"401-malformed", api, benchRequest("GET", "/api/v1/tasks", token[:len(token)-1]+"!")},
		{"403", api, benchRequest("GET", "/api/v1/account", token)},
	}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row.r.Pattern = "" // as of a request that a server has just read
				row.h.ServeHTTP(&discard{header: make(http.Header)}, row.r)
			}
		})
	}
}

// BenchmarkCreate is a POST with a small body: on the bare mux, along the chain
// without a key, as the first of its key, and as a repeat. Replies are kept for
// a moment only, so that the store is as full at the end as at the beginning.
func BenchmarkCreate(b *testing.B) {
	api, token, bare := benchAPI(b)
	pieces, own := benchPieces(b, middleware.Chain())
	for _, size := range []int{100, 16 << 10} {
		body := bytes.Repeat([]byte("a"), size)
		create := func(b *testing.B, h http.Handler, token string, key func(n int) string) {
			r := benchRequest("POST", "/api/v1/tasks", token)

			r.ContentLength = int64(size)
			sent, value := new(benchBody), make([]string, 1)
			if key != nil {
				r.Header["Idempotency-Key"] = value
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				sent.Reset(body)
				r.Body, r.Pattern = sent, ""
				if key != nil {
					value[0] = key(n)
				}
				w := discard{header: make(http.Header)}
				h.ServeHTTP(&w, r)
				if w.status != http.StatusCreated {
					b.Fatalf("status %d", w.status)
				}
			}
		}
		b.Run(fmt.Sprintf("bare/%d", size), func(b *testing.B) { create(b, bare, "", nil) })
		b.Run(fmt.Sprintf("unkeyed/%d", size), func(b *testing.B) { create(b, api, token, nil) })
		b.Run(fmt.Sprintf("fresh/%d", size), func(b *testing.B) {
			create(b, api, token, strconv.Itoa)
		})
		b.Run(fmt.Sprintf("replay/%d", size), func(b *testing.B) {
			create(b, api, token, func(int) string { return "same" })
		})
		b.Run(fmt.Sprintf("pieces-fresh/%d", size), func(b *testing.B) { create(b, pieces, own, strconv.Itoa) })
		b.Run(fmt.Sprintf("pieces-replay/%d", size), func(b *testing.B) {
			create(b, pieces, own, func(int) string { return "same" })
		})
	}
}

type benchBody struct{ bytes.Reader }

func (*benchBody) Close() error { return nil }
