package middleware_test

import (
	"errors"
	"net/http"
	"strconv"
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
