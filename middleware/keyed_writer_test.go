package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// responses are the ways in which a handler can answer.
var responses = []struct {
	name   string
	handle http.HandlerFunc
}{
	{"nothing at all", steps()},
	{"implicit 200", steps("hello")},
	{"status alone", steps("202")},
	{"204 with a body", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(204)
		if _, err := w.Write([]byte("illegal")); err != http.ErrBodyNotAllowed {
			panic(fmt.Sprintf("Write after 204: %v", err))
		}
	}},
	{"two WriteHeaders", steps("201", "500", "first wins")},
	{"header after WriteHeader", steps("X-Early: 1", "201", "X-Early: 2", "X-Late: 1")},
	{"header after WriteHeader, by the map in hand", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Early"] = []string{"1"}
		w.WriteHeader(201)
		h["X-Early"][0] = "2"
		h["X-Late"] = []string{"1"}
		h.Set("Content-Type", "text/late")
	}},
	{"header after Write, by the map in hand", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		fmt.Fprint(w, "body")
		h["X-Late"] = []string{"1"}
	}},
	{"103, then 200", steps("Link: </style.css>; rel=preload", "103", "X-After: 1", "hello")},
	{"declared trailer", steps("Trailer: X-Sum, X-Count", "hello", "X-Sum: abc", "X-Count: 5")},
	{"undeclared trailer", steps("hello", http.TrailerPrefix+"X-Sum: abc")},
	{"Content-Encoding", steps("Content-Encoding: br", "\x1b\x03\x00\xff")},
	{"Content-Length, small", steps("Content-Length: 5", "hello")},
	{"Content-Length, large", steps("Content-Length: 100000", strings.Repeat("0123456789", 10_000))},
	{"large without a length", func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			_, _ = io.WriteString(w, strings.Repeat("\x00\xff0123456\n", 100))
		}
	}},
	{"304", steps(`Etag: "a"`, "304")},
	{"cookies", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		fmt.Fprint(w, "hello")
	}},
	{"redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusSeeOther)
	}},
	{"500", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", 500) }},
	{"503 with Retry-After", steps("Retry-After: 7", "503")},
	{"lists", func(w http.ResponseWriter, r *http.Request) {
		for _, page := range []string{"<b>; rel=next", "<a>; rel=prev", "<b>; rel=next"} {
			w.Header().Add("Link", page)
		}
		w.Header()["Vary"] = []string{"Accept", "Accept-Language"}
		w.Header().Set("Empty", "")
		fmt.Fprint(w, "hello")
	}},
	{"name that is not canonical", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["x-lower"] = []string{"1"}
		w.Header()["location"] = []string{"/a"}
		w.WriteHeader(201)
	}},
	{"type decided by several writes", steps(strings.Split("<!DOCTYPE html><p>", "")...)},
	{"no Content-Type on purpose", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "hello")
	}},
	{"empty write", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(nil) }},
	{"copied", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, strings.NewReader("hello")) }},
	{"a long copy", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("0123456789", 10_000))})
	}},
	{"a copy that fails", func(w http.ResponseWriter, r *http.Request) {
		src := io.MultiReader(strings.NewReader("hello"), iotest.ErrReader(io.ErrNoProgress))
		if n, err := io.Copy(w, src); n != 5 || err != io.ErrNoProgress {
			panic(fmt.Sprintf("copied %d, %v", n, err))
		}
	}},
	{"a copy that fails at once", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, iotest.ErrReader(io.ErrNoProgress))
		w.WriteHeader(502) // nothing was sent yet
	}},
	{"a date of its own", steps("Date: Mon, 01 Jan 2001 00:00:00 GMT", "201")},
}

// TestResponsesAndReplays compares the first response, the replay and one
// without an Idempotency-Key with what the same handler answers without any
// middleware.
func TestResponsesAndReplays(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		row, _ := strconv.Atoi(r.Header.Get("Row"))
		responses[row].handle(w, r)
	})
	for _, protocol := range protocols {
		for mode, runner := range map[string]*idem.Runner{"lease": replies(), "joined": joining(newJoiner())} {
			ring, token := oneKey(t)
			o := with(keyedOptions{Runner: runner})
			o.NoShouldRetry = true
			bareServer, bareClient := listen(t, protocol, handler)
			srv, client := listen(t, protocol, keyed(ring, o, handler))
			for i, row := range responses {
				t.Run(protocol+" "+mode+" "+row.name, func(t *testing.T) {
					look := func(client *http.Client, url string, lines ...string) (s sight) {
						s.ask(client, request("POST", url, token, "{}", append(lines, fmt.Sprint("Row: ", i))...))
						return s
					}
					key := "Idempotency-Key: " + row.name
					bare, first, again := look(bareClient, bareServer.URL), look(client, srv.URL, key), look(client, srv.URL, key)
					id, other := first.ids, again.ids
					if first.ids, again.ids = nil, nil; len(id) != 1 || len(other) != 1 || id[0] == other[0] {
						t.Errorf("Svc-Request-Id: first %q, replay %q, want two different ids", id, other)
					}
					if !reflect.DeepEqual(first, bare) {
						t.Errorf("first response:\n got %+v\nwant %+v", first, bare)
					}
					unkeyed := look(client, srv.URL)
					if unkeyed.ids = nil; !reflect.DeepEqual(unkeyed, bare) {
						t.Errorf("without a key:\n got %+v\nwant %+v", unkeyed, bare)
					}
					replayed := again.Header["Idempotent-Replayed"]
					if mode == "joined" && bare.Status >= 500 {
						if replayed != nil {
							t.Errorf("a rolled back %d was replayed", bare.Status)
						}
						return
					}
					want := bare
					want.Header = bare.Header.Clone()
					delete(want.Header, "Set-Cookie")
					delete(want.Header, "Trailer")
					want.Header["Idempotent-Replayed"], want.Header["Svc-Original-Request-Id"] = []string{"true"}, id
					want.Informed = nil
					if strings.HasSuffix(row.name, "trailer") { // without trailers the length is known
						want.Trailer, want.Length, want.Coding = nil, int64(len(bare.Body)), nil
						want.Header.Set("Content-Length", fmt.Sprint(len(bare.Body)))
					}
					if !reflect.DeepEqual(again, want) {
						t.Errorf("replay:\n got %+v\nwant %+v", again, want)
					}
				})
			}
		}
	}
}

// TestDeclaredLength: what a handler writes beyond its Content-Length is not
// sent, and a body that falls short of it looks whole neither to the first
// client nor to a repeat.
func TestDeclaredLength(t *testing.T) {
	beyond := func(within string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(within)))
			_, err := fmt.Fprint(w, within)
			if n, more := fmt.Fprint(w, "more"); n != 0 || err != nil || more != http.ErrContentLength {
				panic(fmt.Sprintf("Write within and beyond the length: %v, %d %v", err, n, more))
			}
		}
	}
	short := steps("Content-Length: 9", "Location: /a", "201", "hello")
	ring, token := oneKey(t)
	for _, row := range []struct {
		name          string
		handle        http.HandlerFunc
		first, repeat outcome
	}{
		{"beyond", beyond("hello"), outcome{200, "", "hello"}, outcome{200, "", "hello"}},
		{"beyond nothing", beyond(""), outcome{200, "", ""}, outcome{200, "", ""}},
		{"no number", steps("Content-Length: five", "hello"), outcome{200, "", "hello"}, outcome{200, "", "hello"}},
		{"short", short, outcome{}, notRetained},
	} {
		srv, client := listen(t, "HTTP/1.1", keyed(ring, with(keyedOptions{}), row.handle))
		first, _ := outcomeOf(t, client, keyedRequest(t, srv.URL, token, "a"))
		repeat := do(t, client, keyedRequest(t, srv.URL, token, "a"))
		if first != row.first || repeat.outcome(t) != row.repeat {
			t.Errorf("%s: %v, then %v, want %v and %v", row.name, first, repeat.outcome(t), row.first, row.repeat)
		}
		if row.repeat.status != 409 {
			continue
		}
		if p := repeat.problem(t); p.OriginalStatus != 201 || p.OriginalLocation != "/a" {
			t.Errorf("%s: %s, want 409 that says 201 and /a", row.name, repeat.body)
		}
	}
}

// TestRecorderAbilities: the handler of a keyed request can do what concerns
// the connection, and nothing that leads past the recorder.
func TestRecorderAbilities(t *testing.T) {
	ring, token := oneKey(t)
	overBoth(t, func(t *testing.T, protocol string) {
		srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
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
		}))
		for _, replayed := range []string{"", "true"} {
			if a := do(t, client, keyedRequest(t, srv.URL, token, "a")); a.StatusCode != 201 ||
				a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%d, replayed %q, want 201 and %q", a.StatusCode, a.Header.Get("Idempotent-Replayed"), replayed)
			}
		}
	})
}

// TestAbortLeavesNoHeader: of a handler that was interrupted nothing is left
// for whoever outside answers in its place.
func TestAbortLeavesNoHeader(t *testing.T) {
	ring, token := oneKey(t)
	inner := keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Content-Length", "5")
		w.Header()["Vary"][0] = "changed in place"
		w.WriteHeader(http.StatusCreated)
		panic(http.ErrAbortHandler)
	})
	got := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			_ = recover()
			w.WriteHeader(http.StatusBadGateway)
		}()
		w.Header().Set("Vary", "Origin")
		inner.ServeHTTP(w, r)
	}), keyedRequest(t, "/x", token, "a"))
	if h := got.Header; got.StatusCode != 502 || h.Get("Set-Cookie")+h.Get("Content-Length") != "" ||
		h.Get("Vary") != "Origin" || h.Get("Svc-Request-Id") == "" {
		t.Errorf("%d with %v", got.StatusCode, got.Header)
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
	inner := keyed(ring, o, func(w http.ResponseWriter, r *http.Request) {
		late.Go(func() {
			for !over.Load() {
				w.WriteHeader(http.StatusAccepted)
				writes.Add(1)
			}
		})
		outer.WriteHeader(http.StatusTeapot)
	})
	got := serve(middleware.New(nil, o).RequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = w
		inner.ServeHTTP(w, r)
	})), keyedRequest(t, "/x", ring.issue(t), "a"))
	over.Store(true)
	late.Wait()
	wantAnswer(t, "past the stage", got, http.StatusTeapot)
}

type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// TestWritesAroundTheReturn: a goroutine of the handler writes while the
// handler returns. Whatever of it is in the response, the replay has the same.
func TestWritesAroundTheReturn(t *testing.T) {
	chunk := strings.Repeat("x", 64)
	for _, joined := range []bool{false, true} {
		runner := replies()
		if joined {
			runner = joining(newJoiner())
		}
		var late sync.WaitGroup
		s := newSite(t, keyedOptions{Runner: runner, MaxResponse: 16 << 10}, func(w http.ResponseWriter, r *http.Request) {
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
		})
		for round := range 300 {
			key := "Idempotency-Key: " + strconv.Itoa(round)
			first := serve(s, request("POST", "/", s.token, "{}", key))
			again := serve(s, request("POST", "/", s.token, "{}", key))
			late.Wait()
			third := serve(s, request("POST", "/", s.token, "{}", key))
			if first.StatusCode != 200 || again.StatusCode != 200 || first.body != again.body || again.body != third.body {
				t.Fatalf("joined %t, round %d: %d with %d bytes, then %d with %d, then %d with %d", joined, round,
					first.StatusCode, len(first.body), again.StatusCode, len(again.body), third.StatusCode,
					len(third.body))
			}
		}
	}
}

// TestLateGoroutine: a goroutine that outlives its handler may use all that the
// handler had. It finds the context ended, and changes nothing.
func TestLateGoroutine(t *testing.T) {
	ring, token := oneKey(t)
	for name, end := range map[string]func(){"return": func() {}, "panic": func() { panic("boom") },
		"abort": func() { panic(http.ErrAbortHandler) }} {
		for _, protocol := range protocols {
			var runs atomic.Int64
			ended, late := make(chan struct{}), make(chan struct{}, 4)
			srv, client := listen(t, protocol, keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				ctx := r.Context()
				for range cap(late) {
					go func() {
						defer func() { late <- struct{}{} }()
						<-ctx.Done()
						<-ended
						middleware.ExecutionFrom(ctx).Free()
						if err := context.Cause(ctx); err != context.Canceled {
							t.Errorf("%s: the context ended with %v", name, err)
						}
						if who := middleware.CallerFrom(ctx); who.Organization() != "org_1" ||
							middleware.ExecutionFrom(ctx).Attempt() != 1 {
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
			}))
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

func (brokenHeader) Header() http.Header { panic("the stream is closed") }

// A goroutine that still uses the header map when the response is saved does
// not race with sending it.
func TestHeaderAfterTheReturn(t *testing.T) {
	var header http.Header
	stop, stopped := make(chan struct{}), make(chan struct{})
	store := tapped{Store: &idem.Memory{}, settles: func(idem.Settlement) {
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
	s := newSite(t, keyedOptions{Runner: runnerOf(store)}, func(w http.ResponseWriter, r *http.Request) {
		header = w.Header()
		header["Trailer:X-Sum"] = []string{"1"}
		w.WriteHeader(http.StatusCreated)
	})
	wantAnswer(t, "beside a late header", s.post("a"), http.StatusCreated)
	close(stop)
	<-stopped
}
