package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
)

// events is a handler that flushes its header and then n events, one each pause,
// as long as its context lives, and then tells why it ended.
func events(n int, pause time.Duration, ended func(r *http.Request, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Location", "/streams/1")
		w.WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(w).Flush()
		for i := range n {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				ended(r, err)
				return
			}
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				ended(r, r.Context().Err())
				return
			}
		}
		w.Header().Set(http.TrailerPrefix+"X-Events", fmt.Sprint(n))
		ended(r, nil)
	}
}

func eventText(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "data: %d\n\n", i)
	}
	return b.String()
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
		{"events over MaxResponse", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write([]byte(export))
		}, "", "larger than IdempotencyOptions.MaxResponse"},
		{"NotRetained", func(w http.ResponseWriter, r *http.Request) {
			events(2, 0, func(*http.Request, error) {})(w, r)
			middleware.NotRetained(r.Context())
			_, _ = w.Write([]byte("more"))
		}, "", ""},
	}
	for _, protocol := range protocols {
		for _, row := range rows {
			inBubble(t, protocol+"/"+row.name, func(t *testing.T) {
				ring, log := newKeyring(), newLogged()
				var runs atomic.Int64
				client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{MaxResponse: most}},
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						runs.Add(1)
						row.handle(w, r)
					})), nil)
				bare := listenInBubble(t, protocol, row.handle, nil)
				token := ring.issue(t)
				for range 2 { // a reason is logged once
					key := fmt.Sprint("key ", runs.Load())
					want := do(t, bare, keyedRequest(t, "http://api.example/", token, key))
					first := do(t, client, keyedRequest(t, "http://api.example/", token, key))
					if first.StatusCode != want.StatusCode || first.body != want.body || len(first.body) == 0 || !reflect.DeepEqual(first.Trailer, want.Trailer) {
						t.Errorf("first: %d with %d bytes, want %d with %d", first.StatusCode, len(first.body), want.StatusCode, len(want.body))
					}
					again := do(t, client, keyedRequest(t, "http://api.example/", token, key))
					switch {
					case row.repeat == "":
						if p := again.problem(t); p.Code != "idempotency_response_not_retained" || p.OriginalStatus != first.StatusCode {
							t.Errorf("repeat: %d %s, want idempotency_response_not_retained", again.StatusCode, again.body)
						}
					case again.body != row.repeat || again.StatusCode != first.StatusCode || again.Header.Get("Content-Type") != first.Header.Get("Content-Type") || again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("Idempotent-Replayed") != "true":
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
	ring, log := newKeyring(), newLogged()
	token := ring.issue(t)
	const size = 10 << 10
	h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{MaxBody: 4 << 10, MaxBodies: 36 << 10}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for range 20 {
			_, _ = w.Write(make([]byte, r.ContentLength*size/40))
		}
	}))
	for i, row := range []struct {
		half   int // half of size
		repeat int
	}{{1, 200}, {2, 409}, {2, 409}, {1, 200}} {
		body, key := strings.Repeat("x", row.half), fmt.Sprint("Idempotency-Key: ", i)
		if a := serve(h, request("POST", "/", token, body, key)); a.StatusCode != 200 || len(a.body) != row.half*size/2 {
			t.Errorf("%d: %d with %d bytes, want 200 with %d", i, a.StatusCode, len(a.body), row.half*size/2)
		}
		if a := serve(h, request("POST", "/", token, body, key)); a.StatusCode != row.repeat {
			t.Errorf("%d: repeat %d, want %d", i, a.StatusCode, row.repeat)
		}
	}
	if n := strings.Count(log.String(), "IdempotencyOptions.MaxBodies"); n != 1 {
		t.Errorf("%d lines name MaxBodies, want one: %s", n, log)
	}
}

// TestNotRetained: a response that the handler says is secret reaches its client
// and no repeat.
func TestNotRetained(t *testing.T) {
	for name, runner := range map[string]*idem.Runner{"lease": replies(), "joined": runnerOf(newJoiner(), idem.Options{Join: true})} {
		ring, log, runs := newKeyring(), newLogged(), 0
		token := ring.issue(t)
		h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runner}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			middleware.NotRetained(r.Context())
			w.WriteHeader(201)
			fmt.Fprint(w, "the secret")
		}))
		first := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		again := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		if first.StatusCode != 201 || first.body != "the secret" || again.StatusCode != 409 || again.problem(t).OriginalStatus != 201 || runs != 1 || log.String() != "" {
			t.Errorf("%s: %d %s, then %d %s with %d runs and the log %q", name, first.StatusCode, first.body, again.StatusCode, again.body, runs, log)
		}
	}
}

// TestStreamLostAtItsEnd: a stream that was sent stays as it was sent when its
// claim turns out to be another's.
func TestStreamLostAtItsEnd(t *testing.T) {
	ring := newKeyring()
	faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
	faulty.Next(idemtest.Settle, idemtest.Lose)
	h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(faulty)}}, events(2, 0, func(*http.Request, error) {}))
	if a := serve(h, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a")); a.StatusCode != 201 || a.body != eventText(2) {
		t.Errorf("got %d %q, want the stream alone", a.StatusCode, a.body)
	}
}

// TestStreamsOfAProxy: what httputil.ReverseProxy passes on is whole, with and
// without a length.
func TestStreamsOfAProxy(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, body)
	}))
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		for _, path := range []string{"/length", "/chunked", "/events"} {
			t.Run(protocol+path, func(t *testing.T) {
				srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, httputil.NewSingleHostReverseProxy(target)))
				if a := do(t, client, keyedRequest(t, srv.URL+path, token, "a")); a.StatusCode != 200 || a.body != body {
					t.Errorf("%d with %d bytes, want 200 with %d", a.StatusCode, len(a.body), len(body))
				}
			})
		}
	}
}

// TestStreamDeadline: each write moves the deadlines of a response that streams.
func TestStreamDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		under := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Timeout: 30 * time.Second}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, has := r.Context().Deadline(); !has {
				t.Error("got no deadline before the response streams, want one")
			}
			events(10, 29*time.Second, func(_ *http.Request, err error) {
				if err != nil {
					t.Errorf("the context ended: %v", err)
				}
				if left := time.Until(under.deadline); left <= time.Second {
					t.Errorf("the write deadline is %v after the context's, want 7.5s", left-time.Second)
				}
			})(w, r)
			if end, has := r.Context().Deadline(); has {
				t.Errorf("got the deadline %v for a response that streams, want none", end)
			}
		}))
		h.ServeHTTP(under, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a"))
		if got := under.Body.String(); got != eventText(10) {
			t.Errorf("got %q, want 10 events", got)
		}
		if left := time.Until(under.deadline); left != 30*time.Second {
			t.Errorf("the write deadline is in %v, want one Timeout", left)
		}
	})
}

// TestCutStreams: a response whose context ends before its handler may be cut
// short. It looks whole neither to its client nor to a repeat.
func TestCutStreams(t *testing.T) {
	for name, store := range map[string]func() idem.Store{
		"nothing is written for a Timeout": func() idem.Store { return idem.NewMemory(idem.MemoryOptions{}) },
		"the claim is lost": func() idem.Store {
			faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
			faulty.Always(idemtest.Extend, idemtest.Lose)
			return faulty
		},
	} {
		for _, protocol := range protocols {
			inBubble(t, protocol+"/"+name, func(t *testing.T) {
				ring, log := newKeyring(), newLogged()
				token := ring.issue(t)
				client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store()), Timeout: 30 * time.Second}},
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						derived, cancel := context.WithTimeout(r.Context(), time.Hour)
						defer cancel()
						events(1, 0, func(*http.Request, error) {})(w, r)
						begin := time.Now()
						<-derived.Done()
						if after := time.Since(begin); after > 30*time.Second || derived.Err() != r.Context().Err() {
							t.Errorf("ended after %v with %v and %v, want at most 30s and one error", after, derived.Err(), r.Context().Err())
						}
					})), nil)
				if first, _ := outcomeOf(t, client, keyedRequest(t, "http://api.example/", token, "a")); first != (outcome{}) {
					t.Errorf("first: %v, want a response that breaks off", first)
				}
				if again, _ := outcomeOf(t, client, keyedRequest(t, "http://api.example/", token, "a")); again != (outcome{409, "idempotency_response_not_retained", ""}) {
					t.Errorf("repeat: %v, want 409", again)
				}
				if !strings.Contains(log.String(), "its context ended before the handler") {
					t.Errorf("log %q, want why", log)
				}
			})
		}
	}
}

// TestDiscardedResponse: a handler whose response cannot be sent is told by its
// writes, and its client gets the refusal.
func TestDiscardedResponse(t *testing.T) {
	refused := newJoiner()
	refused.commit = func(_, undo func()) error { undo(); return errors.New("reset") }
	lost := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
	lost.Always(idemtest.Extend, idemtest.Lose)
	for want, runner := range map[outcome]*idem.Runner{
		{503, "idempotency_store_unavailable", ""}: runnerOf(refused, idem.Options{Join: true}),
		{409, "idempotency_in_progress", ""}:       runnerOf(lost, idem.Options{Lease: 3 * time.Second}),
	} {
		synctest.Test(t, func(t *testing.T) {
			ring := newKeyring()
			writes := 0
			h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(5 * time.Second) // the claim is lost
				w.Header().Set("Content-Type", "text/event-stream")
				for writes = range 1000 {
					_, err := fmt.Fprint(w, "data\n\n")
					if errors.Join(err, http.NewResponseController(w).Flush()) != nil {
						return
					}
				}
			}))
			a := serve(h, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a"))
			if got := (outcome{a.StatusCode, a.problem(t).Code, ""}); got != want || writes != 0 {
				t.Errorf("%v after %d writes, want %v after the first", got, writes, want)
			}
		})
	}
}

// TestStreamWaitsForTheStore: what the handler wrote last reaches the client
// also when the store is slow to save the response.
func TestStreamWaitsForTheStore(t *testing.T) {
	for _, protocol := range protocols {
		inBubble(t, protocol, func(t *testing.T) {
			ring := newKeyring()
			client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(slowSettle{idem.NewMemory(idem.MemoryOptions{})}), Timeout: 10 * time.Second}},
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					events(1, 0, func(*http.Request, error) {})(w, r)
					fmt.Fprint(w, "the end")
					time.Sleep(9 * time.Second)
				})), nil)
			if a := do(t, client, keyedRequest(t, "http://api.example/", ring.issue(t), "a")); a.body != eventText(1)+"the end" {
				t.Errorf("got %q", a.body)
			}
		})
	}
}

type slowSettle struct{ idem.Store }

func (s slowSettle) Settle(ctx context.Context, k idem.Key, c idem.ClaimToken, o idem.Settlement) error {
	time.Sleep(5 * time.Second)
	return s.Store.Settle(ctx, k, c, o)
}

// TestWriteDeadlineEndsAWrite: a write deadline that another goroutine sets ends
// a write that waits for the client.
func TestWriteDeadlineEndsAWrite(t *testing.T) {
	inBubble(t, "HTTP/1.1", func(t *testing.T) {
		ring := newKeyring()
		took := make(chan time.Duration, 1)
		client := listenInBubble(t, "HTTP/1.1", keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			_ = control.SetWriteDeadline(time.Time{})
			events(1, 0, func(*http.Request, error) {})(w, r)
			time.AfterFunc(time.Second, func() { _ = control.SetWriteDeadline(time.Now()) })
			begin := time.Now()
			_, _ = w.Write(make([]byte, 1<<20))
			took <- time.Since(begin)
		})), nil)
		res, err := client.Do(keyedRequest(t, "http://api.example/", ring.issue(t), "a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, len(eventText(1)))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = res.Body.Close()
		if took := <-took; took != time.Second {
			t.Errorf("the write took %v, want 1s", took)
		}
	})
}

// TestStreamWriteDeadlineOfTheHandler: one that the handler has set stays.
func TestStreamWriteDeadlineOfTheHandler(t *testing.T) {
	ring := newKeyring()
	own := time.Now().Add(time.Hour)
	h := keyed(ring, middleware.Options{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(own)
		events(2, 0, func(*http.Request, error) {})(w, r)
	}))
	w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(w, request("POST", "/", ring.issue(t), "{}", "Idempotency-Key: a"))
	if !w.deadline.Equal(own) {
		t.Errorf("the write deadline is %v, want %v", w.deadline, own)
	}
}

// TestSlowReader: a client that reads slowly gets all of a stream, and of a
// joined response that is held back whole. What it takes is not the handler's
// time.
func TestSlowReader(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB
	for _, joined := range []bool{false, true} {
		for _, protocol := range protocols {
			inBubble(t, fmt.Sprintf("%s, joined %t", protocol, joined), func(t *testing.T) {
				ring := newKeyring()
				o := middleware.IdempotencyOptions{Runner: replies(), MaxResponse: 100 << 10, Timeout: 30 * time.Second}
				if joined {
					o.Runner = runnerOf(newJoiner(), idem.Options{Join: true})
				}
				client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Idempotency: o},
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, err := io.WriteString(w, body[:90<<10])
						_, err2 := io.WriteString(w, body[90<<10:])
						time.Sleep(20 * time.Second)
						if err := errors.Join(err, err2, r.Context().Err()); err != nil {
							t.Error(err)
						}
					})), func(srv *http.Server) { srv.WriteTimeout = 5 * time.Second })
				res, err := client.Do(keyedRequest(t, "http://api.example/", ring.issue(t), "a"))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				var got strings.Builder
				for {
					time.Sleep(14 * time.Second)
					if _, err := io.CopyN(&got, res.Body, 20<<10); err == io.EOF {
						break
					} else if err != nil {
						t.Fatalf("after %d bytes: %v", got.Len(), err)
					}
				}
				if got.String() != body {
					t.Errorf("got %d bytes, want %d", got.Len(), len(body))
				}
			})
		}
	}
}

// TestClientThatLeavesAStream: a stream that is kept goes on for at most
// Timeout; one that is not kept ends at once, as without a key.
func TestClientThatLeavesAStream(t *testing.T) {
	rows := []struct {
		name        string
		maxResponse int
		events      int
		lives       time.Duration // of the context, after the client has left; 0: the handler ends first
		err         error
		repeat      int
	}{
		{"kept, and ends in time", 0, 4, 0, nil, 201},
		{"kept, and goes on", 0, 1000, 30 * time.Second, context.DeadlineExceeded, 409},
		{"not kept", 8, 1000, 0, context.Canceled, 409},
	}
	for _, protocol := range protocols {
		for _, row := range rows {
			inBubble(t, protocol+"/"+row.name, func(t *testing.T) {
				ring := newKeyring()
				token := ring.issue(t)
				var left time.Time
				ended := make(chan struct{})
				client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{MaxResponse: row.maxResponse, Timeout: 30 * time.Second}},
					events(row.events, 5*time.Second, func(r *http.Request, err error) {
						// A write may tell it before the context does.
						if (err == nil) != (row.err == nil) || r.Context().Err() != row.err || row.lives > 0 && time.Since(left) != row.lives {
							t.Errorf("ended %v after the client had left, with %v, want %v and %v", time.Since(left), err, row.lives, row.err)
						}
						close(ended)
					})), nil)
				ctx, leave := context.WithCancel(t.Context())
				res, err := client.Do(keyedRequest(t, "http://api.example/", token, "a").WithContext(ctx))
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(res.Body)
				for range 4 { // two events
					if _, err := lines.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				left = time.Now()
				leave()
				_ = res.Body.Close()
				<-ended
				again := do(t, client, keyedRequest(t, "http://api.example/", token, "a"))
				if again.StatusCode != row.repeat || row.repeat == 201 && !strings.HasPrefix(again.body, eventText(min(row.events, 8))) {
					t.Errorf("repeat: %d %q, want %d", again.StatusCode, again.body, row.repeat)
				}
			})
		}
	}
}

// TestDuplicatesOfAStream: the claim of a stream is renewed as long as it runs.
// A duplicate waits for it, or gets 409.
func TestDuplicatesOfAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		token := ring.issue(t)
		var runs atomic.Int64
		stream := func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			events(20, 5*time.Second, func(_ *http.Request, err error) {
				if err != nil {
					t.Errorf("the context ended: %v", err)
				}
			})(w, r)
		}
		// A store of another type than Memory has leases.
		store := struct{ idem.Store }{idem.NewMemory(idem.MemoryOptions{})}
		h := func() http.Handler { // a process
			return keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: idem.NewRunner(store, idem.Options{Lease: 6 * time.Second})}}, http.HandlerFunc(stream))
		}
		here, there := h(), h()
		first := make(chan answer)
		go func() { first <- serve(here, request("POST", "/", token, "{}", "Idempotency-Key: a")) }()
		for range 2 { // each request waits for 10 s
			time.Sleep(21 * time.Second)
			for _, process := range []http.Handler{here, there} {
				if a := serve(process, request("POST", "/", token, "{}", "Idempotency-Key: a")); a.StatusCode != 409 || a.problem(t).Code != "idempotency_in_progress" {
					t.Errorf("during the stream: %d %s, want 409", a.StatusCode, a.body)
				}
			}
		}
		time.Sleep(12 * time.Second)
		waited := serve(there, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		a := <-first
		if a.body != eventText(20) || waited.StatusCode != a.StatusCode || waited.body != a.body || runs.Load() != 1 {
			t.Errorf("first %d %q, the one that waited %d %q, %d runs; want the whole stream twice and one run", a.StatusCode, a.body, waited.StatusCode, waited.body, runs.Load())
		}
	})
}

// TestJoinedStreams: the rows of a stream are committed before its first byte
// leaves, and stay when the handler fails later.
func TestJoinedStreams(t *testing.T) {
	stream := func(status int, end func()) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			insert(r.Context(), "row")
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(status)
			fmt.Fprint(w, "one")
			streams := http.NewResponseController(w).Flush() == nil
			time.Sleep(20 * time.Second)
			fmt.Fprint(w, " two")
			time.Sleep(20 * time.Second)
			if err := r.Context().Err(); err != nil && status == 200 && streams {
				t.Errorf("the context ended: %v", err)
			}
			end()
		}
	}
	rows := []struct {
		name   string
		handle http.HandlerFunc
		commit func(do, undo func()) error
		first  string // status and body
		rows   int
		repeat string // code, "" for another run
	}{
		{"200", stream(200, func() {}), nil, "200 one two", 1, "idempotency_response_not_retained"},
		{"404", stream(404, func() {}), nil, "404 one two", 0, "idempotency_response_not_retained"},
		{"500", stream(500, func() {}), nil, "500 one two", 0, ""},
		{"fails later", stream(200, func() { panic(http.ErrAbortHandler) }), nil, "aborted 200 one two", 1, "idempotency_response_not_retained"},
		{"is not committed", stream(200, func() {}), func(_, undo func()) error { undo(); return errors.New("reset") }, "503 idempotency_store_unavailable", 0, ""},
		{"may be committed", stream(200, func() {}), func(do, _ func()) error { do(); return idem.ErrCommitUnknown }, "503 idempotency_commit_unknown", 1, "idempotency_response_not_retained"},
		{"is not committed, and panics", stream(200, func() { panic("boom") }), func(_, undo func()) error { undo(); return errors.New("reset") }, "aborted 200 ", 0, ""},
	}
	for _, row := range rows {
		inBubble(t, row.name, func(t *testing.T) {
			ring, store, log := newKeyring(), newJoiner(), newLogged()
			token := ring.issue(t)
			store.commit = row.commit
			w := httptest.NewRecorder()
			store.ending = func() {
				if w.Flushed || w.Body.Len() > 0 {
					t.Error("the client saw the response before the transaction had ended")
				}
			}
			h := keyed(ring, middleware.Options{Hooks: log.hooks(), Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store, idem.Options{Join: true})}}, row.handle)
			func() {
				defer func() {
					if recover() == http.ErrAbortHandler {
						row.first = strings.TrimPrefix(row.first, "aborted ")
					}
				}()
				h.ServeHTTP(w, request("POST", "/", token, "{}", "Idempotency-Key: a"))
			}()
			got := fmt.Sprint(w.Code, " ", w.Body.String())
			if w.Header().Get("Content-Type") == "application/problem+json" {
				got = fmt.Sprint(w.Code, " ", answer{w.Result(), w.Body.String()}.problem(t).Code)
			}
			if got != row.first || len(store.committed()) != row.rows {
				t.Errorf("first: %s with rows %q, want %s and %d", got, store.committed(), row.first, row.rows)
			}
			store.commit, store.ending = nil, nil
			if row.repeat == "" {
				return
			}
			if a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")); a.StatusCode != 409 || a.problem(t).Code != row.repeat {
				t.Errorf("repeat: %d %s, want %s", a.StatusCode, a.body, row.repeat)
			}
			if !strings.Contains(log.String(), "without idem.Options.Join it is retained") {
				t.Errorf("log %q, want why the response is not retained", log.String())
			}
		})
	}
}
