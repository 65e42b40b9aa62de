package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestStreamWithoutLimit: the largest MaxResponse retains a stream too.
func TestStreamWithoutLimit(t *testing.T) {
	s := newSite(t, keyedOptions{MaxResponse: math.MaxInt}, events(3, 0, func(*http.Request, error) {}))
	first, again := s.post("key"), s.post("key")
	if first.body != eventText(3) || again.body != first.body || !again.replayed() {
		t.Errorf("got %d %q, then %d %q, want the stream twice", first.StatusCode, first.body, again.StatusCode, again.body)
	}
}

// TestStreams: a response that streams reaches its client whole, however long
// it takes and whatever wrote it, and a repeat gets it whole if it was kept.
func TestStreams(t *testing.T) {
	const most = 64 << 10
	export := strings.Repeat("0123456789abcdef", 8*most/16)
	rows := []struct {
		name   string
		handle http.HandlerFunc
		repeat string // what a repeat gets, "" for 409
		logs   string
	}{
		{"events", events(5, 20*time.Second, func(_ *http.Request, err error) {
			if err != nil {
				t.Errorf("the context of a stream ended: %v", err)
			}
		}), eventText(5), ""},
		{"an export over MaxResponse", func(w http.ResponseWriter, r *http.Request) {
			for piece := range strings.SplitSeq(export, "9") {
				if r.Context().Err() != nil {
					t.Errorf("the context of an export ended: %v", context.Cause(r.Context()))
					return
				}
				_, _ = io.WriteString(w, piece+"9")
			}
		}, "", "larger than IdempotencyOptions.MaxResponse"},
		{"events over MaxResponse", steps("Content-Type: application/x-ndjson", "flush", export), "",
			"larger than IdempotencyOptions.MaxResponse"},
		{"events of just MaxResponse", steps("Content-Type: application/x-ndjson", export[:most/2], "flush",
			export[:most/2]), export[:most], ""},
		{"NotRetained", func(w http.ResponseWriter, r *http.Request) {
			events(2, 0, func(*http.Request, error) {})(w, r)
			middleware.ExecutionFrom(r.Context()).DropResponse()
			_, _ = w.Write([]byte("more"))
		}, "", ""},
	}
	for _, protocol := range protocols {
		for _, row := range rows {
			inBubble(t, protocol+"/"+row.name, func(t *testing.T) {
				ring, log := newKeyring(), newLogged()
				var runs atomic.Int64
				client := listenInBubble(t, protocol, keyed(ring, logging(log, keyedOptions{MaxResponse: most}),
					func(w http.ResponseWriter, r *http.Request) {
						runs.Add(1)
						row.handle(w, r)
					}), nil)
				bare := listenInBubble(t, protocol, row.handle, nil)
				token := ring.issue(t)
				for range 2 { // a reason is logged once
					key := fmt.Sprint("key ", runs.Load())
					want := do(t, bare, keyedRequest(t, "http://api.example/", token, key))
					first := do(t, client, keyedRequest(t, "http://api.example/", token, key))
					if first.StatusCode != want.StatusCode || first.body != want.body || len(first.body) == 0 ||
						!reflect.DeepEqual(first.Trailer, want.Trailer) {
						t.Errorf("first: %d with %d bytes, want %d with %d", first.StatusCode, len(first.body),
							want.StatusCode, len(want.body))
					}
					again := do(t, client, keyedRequest(t, "http://api.example/", token, key))
					switch {
					case row.repeat == "":
						if p := again.problem(t); p.Code != "idempotency_response_not_retained" || p.OriginalStatus != first.StatusCode {
							t.Errorf("repeat: %d %s, want idempotency_response_not_retained", again.StatusCode, again.body)
						}
					case again.body != row.repeat || again.StatusCode != first.StatusCode ||
						again.Header.Get("Content-Type") != first.Header.Get("Content-Type") ||
						again.Header.Get("Location") != first.Header.Get("Location") || !again.replayed():
						t.Errorf("repeat: %d %q, want all of the stream", again.StatusCode, again.body)
					}
				}
				if runs.Load() != 2 {
					t.Errorf("%d runs, want 2", runs.Load())
				}
				if text := log.String(); row.logs == "" && text != "" || row.logs != "" && strings.Count(text, row.logs) != 1 {
					t.Errorf("log %q, want %q once", text, row.logs)
				}
			})
		}
	}
}

// TestStreamsBeyondTheRoom: a stream for which there is no room goes on, and is
// not kept. Others find the room again.
func TestStreamsBeyondTheRoom(t *testing.T) {
	const size = 10 << 10
	s := newSite(t, keyedOptions{MaxBody: 4 << 10, MaxBodies: 36 << 10}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.URL.Path == "/first" { // at its beginning there is no room
			_, _ = w.Write(make([]byte, size))
		}
		_ = http.NewResponseController(w).Flush()
		for range 20 {
			_, _ = w.Write(make([]byte, r.ContentLength*size/40))
		}
	})
	for i, row := range []struct {
		path   string
		half   int // half of size
		length int
		repeat int
	}{{"/", 1, size / 2, 200}, {"/", 2, size, 409}, {"/", 2, size, 409}, {"/first", 2, 2 * size, 409},
		{"/", 1, size / 2, 200}} {
		ask := func() answer {
			return serve(s, request("POST", row.path, s.token, strings.Repeat("x", row.half),
				fmt.Sprint("Idempotency-Key: ", i)))
		}
		if a := ask(); a.StatusCode != 200 || len(a.body) != row.length {
			t.Errorf("%d: %d with %d bytes, want 200 with %d", i, a.StatusCode, len(a.body), row.length)
		}
		wantAnswer(t, fmt.Sprint(i, ", the repeat"), ask(), row.repeat)
	}
	if n := strings.Count(s.log.String(), "IdempotencyOptions.MaxBodies"); n != 1 {
		t.Errorf("%d lines name MaxBodies, want one: %s", n, s.log)
	}
}

// TestDuplicateOfAStream: the claim of a stream is renewed as long as it runs, so
// that a duplicate in another process gets 409, and then the stream.
func TestDuplicateOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, token := oneKey(t)
		store := struct{ idem.Store }{&idem.Memory{}} // of another type than Memory, so it has leases
		var runs atomic.Int64
		process := func() http.Handler {
			return keyed(ring, with(keyedOptions{Runner: idem.NewRunner(store, idem.Options{Lease: 6 * time.Second,
				Wait: -1})}), events(8, 5*time.Second, func(_ *http.Request, err error) {
				if runs.Add(1); err != nil {
					t.Errorf("the context ended: %v", err)
				}
			}))
		}
		here, there := process(), process()
		first := make(chan answer)
		go func() { first <- serve(here, post(token, "a")) }()
		time.Sleep(38 * time.Second)
		if a := serve(there, post(token, "a")); a.StatusCode != 409 || a.problem(t).Code != "idempotency_in_progress" {
			t.Errorf("during the stream: %d %s, want 409", a.StatusCode, a.body)
		}
		wantAnswer(t, "the stream", <-first, 201, eventText(8))
		wantAnswer(t, "afterwards", serve(there, post(token, "a")), 201, eventText(8))
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
	})
}

// TestReverseProxy: what httputil.ReverseProxy passes on is whole, with and
// without a length, and can be repeated within MaxResponse. It flushes each
// response that has no length.
func TestReverseProxy(t *testing.T) {
	upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(n))
		}
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.Header().Set("Location", "/tasks/1")
		w.WriteHeader(http.StatusCreated)
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, strings.Repeat("a", n))
	}))
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	ring, token := oneKey(t)
	for _, protocol := range protocols {
		srv, client := listen(t, protocol,
			keyed(ring, with(keyedOptions{}), httputil.NewSingleHostReverseProxy(target).ServeHTTP))
		for _, path := range []string{"/length", "/chunked", "/events"} {
			for n, repeat := range map[int]int{7: 201, 2 << 20: 409} {
				url := fmt.Sprintf("%s%s?n=%d", srv.URL, path, n)
				first, again := do(t, client, keyedRequest(t, url, token, url)), do(t, client, keyedRequest(t, url, token, url))
				if first.StatusCode != 201 || len(first.body) != n || first.Header.Get("Location") != "/tasks/1" {
					t.Errorf("%s %s: %d with %d bytes", protocol, url, first.StatusCode, len(first.body))
				}
				if again.StatusCode != repeat || repeat == 201 && again.body != first.body {
					t.Errorf("%s %s: the repeat got %d with %d bytes", protocol, url, again.StatusCode, len(again.body))
				}
			}
		}
	}
}

// TestDiscardedResponse: a handler whose response cannot be sent is told by its
// writes and its context, and its client gets the refusal.
func TestDiscardedResponse(t *testing.T) {
	refused := newJoiner()
	refused.commit = func(_, undo func()) error { undo(); return errors.New("reset") }
	lost := idemtest.NewFaulty(&idem.Memory{})
	lost.Always(idemtest.Extend, idemtest.Lose)
	for want, runner := range map[outcome]*idem.Runner{
		{503, "idempotency_store_unavailable", ""}: joining(refused),
		{409, "idempotency_outcome_unknown", ""}:   runnerOf(lost, idem.Options{Lease: 3 * time.Second}),
	} {
		synctest.Test(t, func(t *testing.T) {
			writes := 0
			s := newSite(t, keyedOptions{Runner: runner}, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second) // the claim is lost
				w.Header().Set("Content-Type", "text/event-stream")
				for writes = range 1000 {
					_, err := fmt.Fprint(w, "data\n\n")
					if errors.Join(err, http.NewResponseController(w).Flush()) != nil {
						if r.Context().Err() == nil {
							t.Error("the context goes on")
						}
						return
					}
				}
			})
			a := s.post("a")
			if got := (outcome{a.StatusCode, a.problem(t).Code, ""}); got != want || writes != 0 {
				t.Errorf("%v after %d writes, want %v after the first", got, writes, want)
			}
		})
	}
}
