package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// A hook that turns one refusal into another gets that one's fields.
func TestHookRewritesRefusals(t *testing.T) {
	ring := newKeyring()
	hooks := quiet()
	hooks.Problem = func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
		if p.Status == 401 {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "x", RetryAfter: 7 * time.Second})
		} else {
			middleware.WriteProblem(w, r, middleware.Problem{Status: 401, Code: "x", Challenge: `Bearer realm="other"`})
		}
	}
	h := middleware.Chain(middleware.RequestID(middleware.RequestIDOptions{Hooks: hooks}), middleware.Authenticate(brokenKeys{}, middleware.AuthOptions{}))(http.NotFoundHandler())
	for _, want := range []struct {
		token           string
		status          int
		wait, challenge string
	}{
		{"", 503, "7", `Bearer realm="api"`},
		{ring.issue(t), 401, "1", `Bearer realm="other"`},
	} {
		got := serve(h, request("GET", "/", want.token, ""))
		wait, challenge := got.Header.Get("Retry-After"), got.Header.Get("Www-Authenticate")
		if got.StatusCode != want.status || wait != want.wait || challenge != want.challenge {
			t.Errorf("%d with Retry-After %q and challenge %q, want %+v", got.StatusCode, wait, challenge, want)
		}
	}
}

// What one response's values are changed into is not what the next one gets.
func TestValuesOfTheirOwn(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	h := keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "body")
	}))
	for range 3 {
		for _, token := range []string{token, ""} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, keyedRequest(t, "/x", token, "a"))
			if h := w.Header(); token == "" && h.Get("Cache-Control")+h.Get("Content-Type")+h.Get("Connection") != "no-storeapplication/problem+jsonclose" {
				t.Errorf("a refusal has %v", w.Header())
			}
			if replayed := w.Header().Get("Idempotent-Replayed"); replayed != "" && replayed != "true" {
				t.Errorf("a replay has %v", w.Header())
			}
			for _, values := range w.Header() {
				for i := range values {
					values[i] = strings.ToUpper(values[i])
				}
			}
		}
	}
}

// A claim is not left behind by a writer of somebody else's that panics.
func TestHeaderThatPanics(t *testing.T) {
	ring := newKeyring()
	store := idem.NewMemory(idem.MemoryOptions{})
	h := middleware.Chain(
		middleware.Authenticate(ring.keys, middleware.AuthOptions{Hooks: quiet()}),
		middleware.RequireScope(middleware.AnyKey(), middleware.ScopeOptions{}),
		func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(brokenHeader{w}, r) })
		},
		middleware.Idempotency(store, middleware.IdempotencyOptions{}),
	)(http.NotFoundHandler())
	func() {
		defer func() { _ = recover() }()
		serve(h, keyedRequest(t, "/x", ring.issue(t), "a"))
		t.Error("nothing panicked")
	}()
	if n := store.Stats().Claims; n != 0 {
		t.Errorf("%d claims are held", n)
	}
}

type brokenHeader struct{ http.ResponseWriter }

func (brokenHeader) Header() http.Header { panic("the stream is closed") }

// A Problem hook finds the request id in the header, also where a handler panicked.
func TestHookFindsTheID(t *testing.T) {
	for _, line := range []string{"Idempotency-Key: 1", "X-Other: 1"} {
		ring := newKeyring()
		hooks, seen := quiet(), ""
		hooks.Problem = func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
			seen = w.Header().Get("Svc-Request-Id")
			w.WriteHeader(p.Status)
		}
		api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies(), Hooks: hooks})
		api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) { panic("boom") })
		if got := serve(api, request("POST", "/api/v1/x", ring.issue(t), "{}", line)); seen == "" || seen != got.Header.Get("Svc-Request-Id") {
			t.Errorf("%s: the hook saw %q, the client %q", line, seen, got.Header.Get("Svc-Request-Id"))
		}
	}
}

// A context that somebody keeps does not keep the bodies of its request.
func TestKeptContextKeepsNoBodies(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var kept []context.Context
	h := keyed(ring, replies(), middleware.IdempotencyOptions{MaxResponse: 1}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = append(kept, context.WithoutCancel(r.Context()))
		_, _ = io.WriteString(w, strings.Repeat("b", 1<<20))
	}))
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	body, before := strings.Repeat("a", 1<<20), heap()
	for i := range 20 {
		r := request("POST", "/x", token, body, "Idempotency-Key: "+strconv.Itoa(i))
		h.ServeHTTP(&discard{header: make(http.Header)}, r)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("20 contexts keep %d bytes of 40 MiB", grown)
	}
	runtime.KeepAlive(kept)
}

// The context of a transaction is made before the handler runs, whether or not the
// handler asks for it.
func TestJoinedContextIsMadeFirst(t *testing.T) {
	ring := newKeyring()
	store := newJoiner()
	asked := &contextCounter{Store: store}
	api := middleware.NewAPI(ring.keys, middleware.Options{Replies: asked, Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Join: true}})
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		if n := asked.made.Load(); n != 1 {
			t.Errorf("the context was made %d times", n)
		}
	})
	serve(api, request("POST", "/api/v1/x", ring.issue(t), "", "Idempotency-Key: 1"))
}

type contextCounter struct {
	idem.Store
	made atomic.Int64
}

func (c *contextCounter) Join(ctx context.Context, claim idem.Claim) (idem.Record, idem.Joined, error) {
	record, joined, err := c.Store.(idem.Joiner).Join(ctx, claim)
	if joined == nil {
		return record, nil, err
	}
	return record, countedContext{joined, c}, err
}

type countedContext struct {
	idem.Joined
	counter *contextCounter
}

func (c countedContext) Context(parent context.Context) context.Context {
	c.counter.made.Add(1)
	return c.Joined.Context(parent)
}
