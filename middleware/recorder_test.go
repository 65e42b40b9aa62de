package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestRecorderAbilities: the handler of a keyed request can do what concerns the
// connection, and nothing that leads past the recorder.
func TestRecorderAbilities(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			srv, client := listen(t, protocol, keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	srv, client := listen(t, "HTTP/1.1", keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})))
	first, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
	again, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
	if first != (outcome{}) || again != (outcome{200, "", ""}) {
		t.Errorf("%v, then %v, want nothing, then the replay of 200", first, again)
	}
}

// TestPanicKeepsOuterHeaders: the 500 in a panicking handler's place has what the
// stages outside have set, and nothing of the handler's. The replay of it gets the
// outer stages' fields from them, not from the record.
func TestPanicKeepsOuterHeaders(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	inner := keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// TestAbortLeavesNoHeader: of a handler that was interrupted nothing is left for
// whoever outside answers in its place.
func TestAbortLeavesNoHeader(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	inner := keyed(ring, replies(), middleware.IdempotencyOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			o := middleware.Options{Replies: replies(), Hooks: quiet()}
			if joins {
				o.Replies, o.Idempotency.Join = newJoiner(), true
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
