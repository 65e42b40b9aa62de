package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestPanicOfALookup: a store or an authenticator that panics is a 500, and the
// key is not in the log.
func TestPanicOfALookup(t *testing.T) {
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	store := lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { panic("lost " + token) })
	log := newLogged()
	for name, h := range map[string]http.Handler{
		"alone":  testAPI(store, middleware.Options{Hooks: log.hooks()}),
		"joined": testAPI(store, middleware.Options{Hooks: log.hooks(), Authenticate: nobody}),
		"pieces": func() http.Handler {
			g := middleware.New(store, middleware.Options{Hooks: log.hooks()})
			return middleware.Chain(g.RequestID, g.Recover, g.Authenticate)(sayOK)
		}(),
	} {
		wantRefusal(t, name, serve(h, request("GET", "/api/v1/any", token, "")), 500, "internal", "")
	}
	if got := log.String(); strings.Contains(got, token) || strings.Count(got, "panic while serving") != 3 {
		t.Errorf("got the log %s", got)
	}
}

func TestPanicBehindABufferingWriter(t *testing.T) {
	ring, token := oneKey(t)
	half := steps("half of the answer", "panic")
	api := apiOf(ring.keys, middleware.Options{Hooks: quiet()}, middleware.AnyCaller(), half)
	g := keyless()
	for name, h := range map[string]http.Handler{
		"RequestID(buffer(API))":     g.RequestID(heldBack(api)),
		"RequestID(buffer(Recover))": g.RequestID(heldBack(g.Recover(half))),
		"buffer(API)":                heldBack(api),
	} {
		srv := start(t, h)
		if got, _ := outcomeOf(t, srv.Client(), get(t, srv, "/api/v1/x", token)); got.status == 200 {
			t.Errorf("%s: half a response looks whole", name)
		}
	}
}

// TestPanics has a row for each moment at which a handler can panic. A client
// that reads an answer to its end must have got the whole truth.
func TestPanics(t *testing.T) {
	copied := func(src io.Reader) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { io.Copy(w, src); panic("boom") }
	}
	tests := []struct {
		name   string
		h      http.HandlerFunc
		status int // 0: no response
		whole  bool
		logs   int
	}{
		{"before anything", steps("panic"), 500, true, 1},
		{"after headers", steps("Content-Length: 3", "Content-Encoding: gzip", `Etag: "1"`, "panic"), 500, true, 1},
		{"after early hints", steps("103", "panic"), 500, true, 1},
		{"after a copy of nothing", copied(strings.NewReader("")), 500, true, 1},
		{"after a copy that failed", copied(iotest.ErrReader(io.ErrUnexpectedEOF)), 500, true, 1},
		{"while copying", copied(readerFunc(func([]byte) (int, error) { panic("boom") })), 500, true, 1},
		{"after WriteHeader", steps("201", "panic"), 0, false, 1},
		{"after half", steps("half", "panic"), 0, false, 1},
		{"after flush", steps("half", "flush", "panic"), 200, false, 1},
		{"after flush of a length", steps("Content-Length: 8", "half", "flush", "panic"), 200, false, 1},
		{"ErrAbortHandler", steps("abort"), 0, false, 0},
		{"ErrAbortHandler after flush", steps("flush", "abort"), 200, false, 0},
		{"wrapped ErrAbortHandler", func(w http.ResponseWriter, r *http.Request) {
			panic(fmt.Errorf("wrapped: %w", http.ErrAbortHandler))
		}, 500, true, 1},
		{"nil", func(w http.ResponseWriter, r *http.Request) { panic(nil) }, 500, true, 1},
		{"invalid status", steps("42"), 500, true, 1},
		{"within TimeoutHandler", http.TimeoutHandler(steps("panic"), hangs, "late").ServeHTTP, 500, true, 1},
	}
	overBoth(t, func(t *testing.T, protocol string) {
		for _, tt := range tests {
			log := newLogged()
			api, token := oneRoute(t, tt.h, middleware.Options{Hooks: log.hooks()})
			srv, client := listen(t, protocol, api)
			res, err := client.Do(get(t, srv, "/api/v1/x", token))
			if err != nil {
				if tt.status != 0 {
					t.Errorf("%s: %v, want %d", tt.name, err, tt.status)
				}
			} else {
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				id := wantID(t, res)
				if res.StatusCode != tt.status || (err == nil) != tt.whole {
					t.Errorf("%s: got %d %q to the end (%v), want %d, whole: %v", tt.name, res.StatusCode, body, err, tt.status,
						tt.whole)
				}
				if tt.whole {
					p := answer{res, string(body)}.problem(t)
					if p.Code != "internal" || p.RequestID != id || !strings.Contains(log.String(), "request_id="+id) {
						t.Errorf("%s: got %+v with id %s and the log %s", tt.name, p, id, log)
					}
					if res.Header.Get("Content-Encoding") != "" || res.Header.Get("Etag") != "" {
						t.Errorf("%s: headers of the response that was not sent are left: %v", tt.name, res.Header)
					}
				}
			}
			srv.Close() // after which all is logged
			if got := strings.Count(log.String(), "\n"); got != tt.logs {
				t.Errorf("%s: got %d log lines, want %d: %s", tt.name, got, tt.logs, log)
			}
		}
	})
}

// TestPanicRestoresOuterHeaders: the 500 has what stages outside had set, as
// they had set it, with and without a RequestID outside. So has the replay of
// it, from them and not from the record.
func TestPanicRestoresOuterHeaders(t *testing.T) {
	boom := func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"][0] = "changed in place"
		w.Header().Del("Strict-Transport-Security")
		w.Header().Set("Inside", "1")
		if r.Header.Get("Idempotency-Key") != "" {
			w.WriteHeader(http.StatusCreated) // which is held back
		}
		panic("boom")
	}
	api, token := oneRoute(t, boom, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
	attempt := 0
	outer := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		attempt++
		w.Header().Set("Attempt", strconv.Itoa(attempt))
		w.Header().Set("Vary", "Origin")
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		next.ServeHTTP(w, r)
	})
	for name, h := range map[string]http.Handler{
		"pieces":  middleware.Chain(stage(), outer, keyless().Recover)(http.HandlerFunc(boom)),
		"outside": outer(api), "inside RequestID": middleware.Chain(stage(), outer)(api),
		"behind a foreign writer": middleware.Chain(foreignWriter, outer)(api),
	} {
		for _, replayed := range []string{"", "", "true"} {
			r := request("POST", "/api/v1/x", token, "")
			if name != "pieces" && attempt%3 > 0 {
				r.Header.Set("Idempotency-Key", name)
			}
			a := serve(h, r)
			if got := a.Header; a.StatusCode != 500 || got.Get("Vary") != "Origin" ||
				got.Get("Strict-Transport-Security") != "max-age=1" || got.Get("Inside") != "" ||
				got.Get("Attempt") != strconv.Itoa(attempt) || name != "pieces" && got.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s, attempt %d: got %d with %v, want the outer header alone", name, attempt, a.StatusCode, got)
			}
			wantID(t, a.Response)
		}
	}
}

// TestRecoverAlone: it works in any order, and without RequestID it adds one.
func TestRecoverAlone(t *testing.T) {
	log := newLogged()
	g := middleware.New(nil, middleware.Options{Hooks: log.hooks()})
	h := g.Recover(steps("panic"))
	srv := start(t, h)
	res := do(t, srv.Client(), get(t, srv, "/", ""))
	if p := res.problem(t); res.StatusCode != 500 || p.Code != "internal" || p.RequestID == "" ||
		p.RequestID != res.Header.Get("Svc-Request-Id") || strings.Contains(res.body, "boom") {
		t.Errorf("got %d %s", res.StatusCode, res.body)
	}
	if got := log.String(); !strings.Contains(got, "panic=boom") || !strings.Contains(got, "harness_test.go") {
		t.Errorf("the log has no panic with its stack: %s", got)
	}

	h = middleware.Chain(g.Recover, stage())(steps("panic"))
	srv = start(t, h)
	res = do(t, srv.Client(), get(t, srv, "/", ""))
	if res.StatusCode != 500 || res.problem(t).RequestID != wantID(t, res.Response) {
		t.Errorf("Recover outside RequestID: got %d %s", res.StatusCode, res.body)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
