package middleware_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestRecorderAbilities: the handler of a keyed request can do what concerns
// the connection, and nothing that leads past the recorder.
func TestRecorderAbilities(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := http.NewResponseController(w)
				for name, err := range map[string]error{
					"SetReadDeadline":  c.SetReadDeadline(time.Now().Add(time.Minute)),
					"SetWriteDeadline": c.SetWriteDeadline(time.Now().Add(time.Minute)),
					"EnableFullDuplex": c.EnableFullDuplex(),
				} {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("Hijack: %v, want ErrNotSupported", err)
				}
				_, pusher := w.(http.Pusher)
				_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
				if pusher || unwraps {
					t.Errorf("Pusher %t, Unwrap %t, want neither", pusher, unwraps)
				}
				w.WriteHeader(http.StatusSwitchingProtocols) // there is nothing to switch to
				w.WriteHeader(http.StatusCreated)
			})))
			for _, replayed := range []string{"", "true"} {
				if a := do(t, client, keyedRequest(t, srv.URL, token, "a")); a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != replayed {
					t.Errorf("%d, replayed %q, want 201 and %q", a.StatusCode, a.Header.Get("Idempotent-Replayed"), replayed)
				}
			}
		})
	}
}

// TestDeadlineOfTheHandler: a write deadline that the handler sets is the
// connection's.
func TestDeadlineOfTheHandler(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	srv, client := listen(t, "HTTP/1.1", keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})))
	first, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
	again, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
	if first != (outcome{}) || again != (outcome{200, "", ""}) {
		t.Errorf("%v, then %v, want nothing, then the replay of 200", first, again)
	}
}

// TestPanicKeepsOuterHeaders: the 500 in a panicking handler's place has what
// the stages outside have set, and nothing of the handler's. The replay of it
// gets the outer stages' fields from them, not from the record.
func TestPanicKeepsOuterHeaders(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	inner := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Etag", "half")
		w.WriteHeader(http.StatusCreated)
		panic("half-way")
	}))
	attempt := 0
	srv, client := listen(t, "HTTP/1.1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt++
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Attempt", strconv.Itoa(attempt))
		inner.ServeHTTP(w, r)
	}))
	for _, want := range []string{"1", "2"} {
		a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
		if h := a.Header; a.StatusCode != 500 || h.Get("Vary") != "Origin" || h.Get("X-Attempt") != want || h.Get("Etag") != "" {
			t.Errorf("attempt %s: %d with %v", want, a.StatusCode, h)
		}
	}
}

// TestAbortLeavesNoHeader: of a handler that was interrupted nothing is left
// for whoever outside answers in its place.
func TestAbortLeavesNoHeader(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	inner := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Content-Length", "5")
		w.Header()["Vary"][0] = "changed in place"
		w.WriteHeader(http.StatusCreated)
		panic(http.ErrAbortHandler)
	}))
	got := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			_ = recover()
			w.WriteHeader(http.StatusBadGateway)
		}()
		w.Header().Set("Vary", "Origin")
		inner.ServeHTTP(w, r)
	}), keyedRequest(t, "/x", token, "a"))
	if h := got.Header; got.StatusCode != 502 || h.Get("Set-Cookie")+h.Get("Content-Length") != "" || h.Get("Vary") != "Origin" || h.Get("Svc-Request-Id") == "" {
		t.Errorf("%d with %v", got.StatusCode, got.Header)
	}
}

// TestLateHandlerWritesNowhere: a goroutine of a handler that has ended reaches
// neither the response nor its header.
func TestLateHandlerWritesNowhere(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "return": func() {}} {
		for _, joins := range []bool{true, false} {
			ring := newKeyring()
			token := ring.issue(t)
			o := middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}, Hooks: quiet()}
			if joins {
				o.Idempotency.Runner = runnerOf(newJoiner(), idem.Options{Join: true})
			}
			api := middleware.NewAPI(ring.keys, o)
			var late sync.WaitGroup
			api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
				late.Go(func() {
					<-r.Context().Done()
					w.Header().Set("X-Late", "1")
					w.WriteHeader(http.StatusAccepted)
					if _, err := io.WriteString(w, "late"); err == nil {
						t.Errorf("%s, joined %t: a late write was taken", name, joins)
					}
				})
				w.WriteHeader(http.StatusInternalServerError)
				end()
			})
			got := serve(api, request("POST", "/api/v1/x", token, "{}", "Idempotency-Key: 1"))
			late.Wait()
			if got.StatusCode != 500 || got.Header.Get("X-Late") != "" || strings.Contains(got.body, "late") {
				t.Errorf("%s, joined %t: %d %q with %v", name, joins, got.StatusCode, got.body, got.Header)
			}
		}
	}
}

// TestLateHandlerOfABypass: a goroutine may also write while the stage notes
// that the response was sent past it. The race detector fails this test.
func TestLateHandlerOfABypass(t *testing.T) {
	ring := newKeyring()
	var writes atomic.Int64
	// The report of the bypass waits for two writes, so that one of them begins
	// after it.
	slow := slog.NewTextHandler(onWrite(func() {
		for n := writes.Load(); writes.Load() < n+2; {
			runtime.Gosched()
		}
	}), nil)
	var outer http.ResponseWriter
	var over atomic.Bool
	var late sync.WaitGroup
	o := middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slow)}}
	inner := keyed(ring, o, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		late.Go(func() {
			for !over.Load() {
				w.WriteHeader(http.StatusAccepted)
				writes.Add(1)
			}
		})
		outer.WriteHeader(http.StatusTeapot)
	}))
	got := serve(middleware.New(nil, o).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = w
		inner.ServeHTTP(w, r)
	})), keyedRequest(t, "/x", ring.issue(t), "a"))
	over.Store(true)
	late.Wait()
	if got.StatusCode != http.StatusTeapot {
		t.Errorf("%d, want 418", got.StatusCode)
	}
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestWritesAroundTheReturn: a goroutine of the handler writes while the
// handler returns. Whatever of it is in the response, the replay has the same.
func TestWritesAroundTheReturn(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	chunk := strings.Repeat("x", 64)
	for _, joined := range []bool{false, true} {
		runner := replies()
		if joined {
			runner = runnerOf(newJoiner(), idem.Options{Join: true})
		}
		var late sync.WaitGroup
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner, MaxResponse: 16 << 10}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun := make(chan struct{})
			late.Go(func() {
				_, _ = io.WriteString(w, chunk)
				close(begun)
				for range 64 {
					_, _ = io.WriteString(w, chunk)
					_ = http.NewResponseController(w).Flush()
					w.WriteHeader(http.StatusTeapot)
				}
			})
			<-begun
		}))
		for round := range 300 {
			key := "Idempotency-Key: " + strconv.Itoa(round)
			first := serve(h, request("POST", "/", token, "{}", key))
			again := serve(h, request("POST", "/", token, "{}", key))
			late.Wait()
			third := serve(h, request("POST", "/", token, "{}", key))
			if first.StatusCode != 200 || again.StatusCode != 200 || first.body != again.body || again.body != third.body {
				t.Fatalf("joined %t, round %d: %d with %d bytes, then %d with %d, then %d with %d", joined, round,
					first.StatusCode, len(first.body), again.StatusCode, len(again.body), third.StatusCode, len(third.body))
			}
		}
	}
}

// TestLateGoroutine: a goroutine that outlives its handler may use all that the
// handler had. It finds the context ended, and changes nothing.
func TestLateGoroutine(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for name, end := range map[string]func(){"return": func() {}, "panic": func() { panic("boom") }, "abort": func() { panic(http.ErrAbortHandler) }} {
		for _, protocol := range protocols {
			var runs atomic.Int64
			ended, late := make(chan struct{}), make(chan struct{}, 4)
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				ctx := r.Context()
				for range cap(late) {
					go func() {
						defer func() { late <- struct{}{} }()
						<-ctx.Done()
						<-ended
						middleware.FreeKey(ctx)
						if err := context.Cause(ctx); err != context.Canceled {
							t.Errorf("%s: the context ended with %v", name, err)
						}
						if who, ok := middleware.PrincipalFrom(ctx); !ok || who.Organization() != "org_1" || middleware.Executions(ctx) != 1 {
							t.Errorf("%s: the context has lost its values", name)
						}
						c := http.NewResponseController(w)
						w.WriteHeader(http.StatusAccepted)
						_, err := w.Write([]byte("late"))
						_, same := io.WriteString(w, "late")
						if err == nil || same == nil || c.SetWriteDeadline(time.Unix(1, 0)) == nil {
							t.Errorf("%s: a late call was taken", name)
						}
						_ = c.Flush()
						_ = w.Header().Get("X-Late")
					}()
				}
				w.WriteHeader(http.StatusCreated)
				end()
			})))
			first, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
			close(ended)
			for range cap(late) {
				<-late
			}
			again, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
			if name == "abort" {
				first = outcome{409, "idempotency_outcome_unknown", ""}
			}
			if again != first || runs.Load() != 1 {
				t.Errorf("%s, %s: %v, then %v with %d runs", name, protocol, first, again, runs.Load())
			}
		}
	}
}

// A claim is not left behind by a writer of somebody else's that panics.
func TestHeaderThatPanics(t *testing.T) {
	ring := newKeyring()
	store := idem.NewMemory(idem.MemoryOptions{})
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}})
	h := middleware.Chain(g.Authenticate, g.AnyKey,
		func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(brokenHeader{w}, r) })
		},
		g.Idempotent,
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

// settling is a store during whose Settle something happens.
type settling struct {
	idem.Store
	during func()
}

func (s settling) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, o idem.Settlement) error {
	s.during()
	return s.Store.Settle(ctx, key, token, o)
}

// A goroutine that still uses the header map when the response is saved does
// not race with sending it.
func TestHeaderAfterTheReturn(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var header http.Header
	stop, stopped := make(chan struct{}), make(chan struct{})
	store := settling{idem.NewMemory(idem.MemoryOptions{}), func() {
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					header["X-Late"] = nil
				}
			}
		}()
	}}
	h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = w.Header()
		header["Trailer:X-Sum"] = []string{"1"}
		w.WriteHeader(http.StatusCreated)
	}))
	if a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")); a.StatusCode != http.StatusCreated {
		t.Errorf("got %d", a.StatusCode)
	}
	close(stop)
	<-stopped
}
