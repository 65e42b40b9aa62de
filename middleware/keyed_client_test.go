package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestStreamDeadline: each write moves the deadlines of a response that streams.
func TestStreamDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		s := newSite(t, keyedOptions{Timeout: 30 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
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
		})
		s.ServeHTTP(under, request("POST", "/", s.token, "{}", "Idempotency-Key: a"))
		if got := under.Body.String(); got != eventText(10) {
			t.Errorf("got %q, want 10 events", got)
		}
		if left := time.Until(under.deadline); left != 30*time.Second {
			t.Errorf("the write deadline is in %v, want one Timeout", left)
		}
	})
}

// TestStreamWaitsForTheStore: what the handler wrote last reaches the client
// also when the store is slow to save the response.
func TestStreamWaitsForTheStore(t *testing.T) {
	slow := tapped{Store: &idem.Memory{}, settles: func(idem.Settlement) { time.Sleep(5 * time.Second) }}
	bothInBubbles(t, func(t *testing.T, protocol string) {
		ring := newKeyring()
		client := listenInBubble(t, protocol,
			keyed(ring, with(keyedOptions{Runner: runnerOf(slow), Timeout: 10 * time.Second}),
				func(w http.ResponseWriter, r *http.Request) {
					events(1, 0, func(*http.Request, error) {})(w, r)
					fmt.Fprint(w, "the end")
					time.Sleep(9 * time.Second)
				}), nil)
		if a := do(t, client, keyedRequest(t, "http://api.example/", ring.issue(t), "a")); a.body != eventText(1)+"the end" {
			t.Errorf("got %q", a.body)
		}
	})
}

// TestWriteDeadlineEndsAWrite: a write deadline that another goroutine sets ends
// a write that waits for the client.
func TestWriteDeadlineEndsAWrite(t *testing.T) {
	inBubble(t, "HTTP/1.1", func(t *testing.T) {
		ring := newKeyring()
		took := make(chan time.Duration, 1)
		client := listenInBubble(t, "HTTP/1.1",
			keyed(ring, middleware.Options{}, func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				_ = control.SetWriteDeadline(time.Time{})
				events(1, 0, func(*http.Request, error) {})(w, r)
				time.AfterFunc(time.Second, func() { _ = control.SetWriteDeadline(time.Now()) })
				begin := time.Now()
				_, _ = w.Write(make([]byte, 1<<20))
				took <- time.Since(begin)
			}), nil)
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

// TestSlowReader: a client that reads slowly gets all of a stream, and of a
// joined response that is held back whole. What it takes is not the handler's
// time.
func TestSlowReader(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB
	for _, joined := range []bool{false, true} {
		for _, protocol := range protocols {
			inBubble(t, fmt.Sprintf("%s, joined %t", protocol, joined), func(t *testing.T) {
				ring := newKeyring()
				o := keyedOptions{Runner: replies(), MaxResponse: 100 << 10, Timeout: 30 * time.Second}
				if joined {
					o.Runner = joining(newJoiner())
				}
				client := listenInBubble(t, protocol, keyed(ring, middleware.Options{Idempotency: o},
					func(w http.ResponseWriter, r *http.Request) {
						_, err := io.WriteString(w, body[:90<<10])
						_, err2 := io.WriteString(w, body[90<<10:])
						time.Sleep(20 * time.Second)
						if err := errors.Join(err, err2, r.Context().Err()); err != nil {
							t.Error(err)
						}
					}), func(srv *http.Server) { srv.WriteTimeout = 5 * time.Second })
				res, err := client.Do(keyedRequest(t, "http://api.example/", ring.issue(t), "a"))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				var got strings.Builder
				for {
					time.Sleep(33 * time.Second)
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
				ring, token := oneKey(t)
				var left time.Time
				ended := make(chan struct{})
				client := listenInBubble(t, protocol,
					keyed(ring, with(keyedOptions{MaxResponse: row.maxResponse, Timeout: 30 * time.Second}),
						events(row.events, 5*time.Second, func(r *http.Request, err error) {
							// A write may tell it before the context does.
							if (err == nil) != (row.err == nil) || r.Context().Err() != row.err || row.lives > 0 &&
								time.Since(left) != row.lives {
								t.Errorf("ended %v after the client had left, with %v, want %v and %v", time.Since(left),
									err, row.lives, row.err)
							}
							close(ended)
						})), nil)
				ctx, leave := context.WithCancel(t.Context())
				begun := time.Now()
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
				if left = time.Now(); left.Sub(begun) != 5*time.Second {
					t.Errorf("the second event was there after %v, want 5s", left.Sub(begun))
				}
				leave()
				_ = res.Body.Close()
				<-ended
				again := do(t, client, keyedRequest(t, "http://api.example/", token, "a"))
				if again.StatusCode != row.repeat || row.repeat == 201 &&
					!strings.HasPrefix(again.body, eventText(min(row.events, 8))) {
					t.Errorf("repeat: %d %q, want %d", again.StatusCode, again.body, row.repeat)
				}
			})
		}
	}
}

// TestWriteErrors: the handler of a stream that is recorded does not see that
// its client has left, as long as its context lives. One of a stream that is not
// recorded does.
func TestWriteErrors(t *testing.T) {
	for _, limit := range []int{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, keyedOptions{MaxResponse: limit, Timeout: 30 * time.Second},
				func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					write := func() error {
						n, err := io.WriteString(w, "0123456789abcdef")
						if flush := http.NewResponseController(w).Flush(); err == nil && (n != 16 ||
							!errors.Is(flush, http.ErrNotSupported)) {
							t.Errorf("wrote %d bytes, and Flush returned %v", n, flush)
						}
						return err
					}
					begin, recorded := time.Now(), limit == 0
					if first, again := write(), write(); (first == nil) != recorded || (again == nil) != recorded {
						t.Errorf("MaxResponse %d: got %v, then %v", limit, first, again)
					}
					if !recorded {
						return
					}
					time.Sleep(29 * time.Second)
					if err := errors.Join(write(), r.Context().Err()); err != nil {
						t.Errorf("within Timeout: %v", err)
					}
					<-r.Context().Done()
					if after := time.Since(begin); after != 30*time.Second || write() == nil {
						t.Errorf("the context ended after %v, want 30s and an error", after)
					}
				})
			aborts(s, new(gone), post(s.token, "a"))
		})
	}
}

// gone is a writer whose client has left. It cannot flush.
type gone struct{ discard }

func (*gone) Write(p []byte) (int, error) { return 0, errors.New("broken pipe") }

type outsideKey struct{}

// withHandlerContext runs f in a handler under a claim, in a bubble, and
// returns the handler's context.
func withHandlerContext(t *testing.T, joined bool, f func(ctx context.Context)) (kept context.Context, token string) {
	t.Helper()
	ring := newKeyring()
	token = ring.issue(t, scope.TasksWrite)
	o := keyedOptions{Runner: replies(), Timeout: time.Minute}
	if joined {
		o.Runner = joining(newJoiner())
	}
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: o})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, r *http.Request) {
			kept = r.Context()
			f(kept)
		})
	r := request("POST", "/api/v1/tasks", token, "", "Idempotency-Key: key")
	r = r.WithContext(context.WithValue(r.Context(), outsideKey{}, "outside"))
	serve(api, r)
	return kept, token
}

func TestHandlerContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ctx, token := withHandlerContext(t, false, func(ctx context.Context) {
			if end, ok := ctx.Deadline(); !ok || end.Sub(begin) != time.Minute {
				t.Errorf("got the deadline %v, %v, want one in a minute", end, ok)
			}
			if got := ctx.Value(outsideKey{}); got != "outside" {
				t.Errorf("got the value %v, want that of the context outside", got)
			}
			if got := middleware.ExecutionFrom(ctx).Attempt(); got != 1 {
				t.Errorf("got attempt %d, want 1", got)
			}
			before := runtime.NumGoroutine()
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			if end, _ := child.Deadline(); end.Sub(begin) != time.Minute {
				t.Errorf("a context made of it has the deadline %v, want one in a minute", end)
			}
			if n := runtime.NumGoroutine() - before; n > 0 { // those of an earlier test may end
				t.Errorf("a context made of it took %d goroutines, want none", n)
			}
			if ctx.Err() != nil || child.Err() != nil {
				t.Errorf("got %v and %v, want no end yet", ctx.Err(), child.Err())
			}
			for _, c := range []context.Context{ctx, child} {
				<-c.Done()
				if c.Err() != context.DeadlineExceeded {
					t.Errorf("got %v, want the deadline to be exceeded", c.Err())
				}
				if after := time.Since(begin); after != time.Minute {
					t.Errorf("it ended after %v, want a minute", after)
				}
			}
		})
		if text := fmt.Sprintf("%v %+v %#v %s", ctx, ctx, ctx, ctx); strings.Contains(text, token) {
			t.Errorf("the context prints the API key: %s", text)
		}
	})
}

// A goroutine that outlives its handler finds the context cancelled, whether or
// not the handler had looked at it.
func TestHandlerContextEnds(t *testing.T) {
	for _, joined := range []bool{false, true} {
		for _, looked := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ctx, _ := withHandlerContext(t, joined, func(ctx context.Context) {
					middleware.ExecutionFrom(ctx).Free() // or else it would be looked at to commit
					if looked {
						ctx.Done()
					}
				})
				select {
				case <-ctx.Done():
				default:
					t.Errorf("joined %t, looked at %t: the context has not ended", joined, looked)
				}
				if ctx.Err() != context.Canceled {
					t.Errorf("joined %t, looked at %t: got %v, want context.Canceled", joined, looked, ctx.Err())
				}
			})
		}
	}
}

// A context that somebody keeps does not keep the bodies of its request.
func TestKeptContextKeepsNoBodies(t *testing.T) {
	var kept []context.Context
	s := newSite(t, keyedOptions{MaxResponse: 1}, func(w http.ResponseWriter, r *http.Request) {
		kept = append(kept, context.WithoutCancel(r.Context()))
		_, _ = io.WriteString(w, strings.Repeat("b", 1<<20))
	})
	body, before := strings.Repeat("a", 1<<20), heap()
	for i := range 20 {
		r := request("POST", "/x", s.token, body, "Idempotency-Key: "+strconv.Itoa(i))
		s.ServeHTTP(new(discard), r)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("20 contexts keep %d bytes of 40 MiB", grown)
	}
	runtime.KeepAlive(kept)
}

// The context of a transaction is made before the handler runs, whether or not
// the handler asks for it.
func TestJoinedContextIsMadeFirst(t *testing.T) {
	store := newJoiner()
	s := newSite(t, keyedOptions{Runner: joining(store)}, func(w http.ResponseWriter, r *http.Request) {
		if store.contexts != 1 {
			t.Errorf("the context was made %d times", store.contexts)
		}
	})
	s.post("a")
}
