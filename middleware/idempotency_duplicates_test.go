package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestConcurrentDuplicates: 200 clients send the same create at once. It runs
// once, and all of them get its response, or are told to come back for it.
func TestConcurrentDuplicates(t *testing.T) {
	const clients = 200
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		for _, waiting := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s waiting %t", protocol, waiting), func(t *testing.T) {
				var runs atomic.Int64
				wait := time.Minute
				if !waiting {
					wait = -1
				}
				o := middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Wait: wait})}}
				srv, client := listen(t, protocol, keyed(ring, o, onlyPost(numbered(&runs, func(*http.Request) { <-time.After(200 * time.Millisecond) }))))
				ask := func() answer {
					return do(t, client, newRequest(t, "POST", srv.URL, token, strings.NewReader("{}")))
				}
				client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
				client.Transport = withKey{client.Transport, "same"}

				do(t, client, newRequest(t, "GET", srv.URL, token, nil)) // a connection for HTTP/2 to share

				answers := make([]answer, clients)
				var wg sync.WaitGroup
				for i := range answers {
					wg.Go(func() { answers[i] = ask() })
				}
				wg.Wait()
				ids, statuses := map[string]bool{}, map[int]int{}
				for _, a := range answers {
					ids[wantID(t, a.Response)] = true
					statuses[a.StatusCode]++
					switch {
					case a.StatusCode == 201 && (a.body != `{"id":"task_1"}` || a.Header.Get("Location") != "/tasks/1"):
						t.Errorf("got %s at %s, want task_1", a.body, a.Header.Get("Location"))
					case a.StatusCode == 409 && (a.problem(t).Code != "idempotency_in_progress" || a.Header.Get("Retry-After") != "1"):
						t.Errorf("got %s, Retry-After %q", a.body, a.Header.Get("Retry-After"))
					}
				}
				if runs.Load() != 1 || len(ids) != clients {
					t.Errorf("%d runs and %d request ids, want 1 and %d", runs.Load(), len(ids), clients)
				}
				if waiting && statuses[201] != clients || statuses[201]+statuses[409] != clients {
					t.Errorf("statuses %v of %d", statuses, clients)
				}
				if a := ask(); a.StatusCode != 201 || a.Header.Get("Idempotent-Replayed") != "true" || a.body != `{"id":"task_1"}` {
					t.Errorf("afterwards: %d %s, want the replay", a.StatusCode, a.body)
				}
			})
		}
	}
}

func onlyPost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			next.ServeHTTP(w, r)
		}
	})
}

// withKey adds an Idempotency-Key to each request.
type withKey struct {
	http.RoundTripper
	key string
}

func (t withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Idempotency-Key", t.key)
	return t.RoundTripper.RoundTrip(r)
}

// TestWaitsEnd: a repeat that waits is answered when its time is over or the
// server drains, and while the first request still runs.
func TestWaitsEnd(t *testing.T) {
	rows := []struct {
		name string
		wait time.Duration
		end  time.Duration // when the server drains
		want time.Duration // how long the repeat took
	}{
		{"not waiting", -1, time.Hour, 0},
		{"waited in vain", 3 * time.Second, time.Hour, 3 * time.Second},
		{"the default", 0, time.Hour, 10 * time.Second},
		{"draining", time.Minute, 2 * time.Second, 2 * time.Second},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				draining := make(chan struct{})
				time.AfterFunc(row.end, func() { close(draining) })
				var runs atomic.Int64
				ring := newKeyring()
				h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies(idem.Options{Wait: row.wait, Draining: draining})}}, numbered(&runs, func(*http.Request) { time.Sleep(20 * time.Second) }))
				token := ring.issue(t)
				go serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
				synctest.Wait()
				begun := time.Now()
				a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
				if took := time.Since(begun); a.StatusCode != 409 || a.problem(t).Code != "idempotency_in_progress" || took != row.want {
					t.Errorf("%d after %v, want 409 after %v\n%s", a.StatusCode, took, row.want, a.body)
				}
				time.Sleep(21 * time.Second)
				if a := serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a")); a.StatusCode != 201 || runs.Load() != 1 {
					t.Errorf("afterwards: %d with %d runs, want the replay", a.StatusCode, runs.Load())
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// TestReuseInFlight: another request under the same key is wrong for good, so
// it is told so at once and not put off.
func TestReuseInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := newKeyring()
		h := keyed(ring, middleware.Options{}, numbered(new(atomic.Int64), func(*http.Request) { time.Sleep(time.Second) }))
		token := ring.issue(t)
		go serve(h, request("POST", "/", token, "{}", "Idempotency-Key: a"))
		synctest.Wait()
		begun := time.Now()
		a := serve(h, request("POST", "/", token, "[]", "Idempotency-Key: a"))
		if a.StatusCode != 422 || time.Since(begun) != 0 {
			t.Errorf("%d after %v, want 422 at once", a.StatusCode, time.Since(begun))
		}
		time.Sleep(time.Second)
	})
}

// TestDisconnect: the client that sent a create leaves, by closing its
// connection or by taking back its stream. The create is finished and kept, and
// whoever repeats it gets its response.
func TestDisconnect(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			var runs atomic.Int64
			entered, outer := make(chan struct{}), make(chan context.Context, 2)
			// Not the store in memory itself, which never looks at a context.
			store := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
			h := keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runnerOf(store)}}, numbered(&runs, func(r *http.Request) {
				close(entered)
				<-(<-outer).Done() // the server knows that the client is gone
				if err := r.Context().Err(); err != nil {
					t.Errorf("the handler's context is done: %v", err)
				}
				if deadline, ok := r.Context().Deadline(); !ok || time.Until(deadline) > 30*time.Second {
					t.Errorf("the handler's deadline is %v", deadline)
				}
				if _, ok := middleware.PrincipalFrom(r.Context()); !ok || middleware.RequestIDFrom(r.Context()) == "" {
					t.Error("the handler's context has lost its values")
				}
			}))
			srv, client := listen(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				outer <- r.Context()
				h.ServeHTTP(w, r)
			}))
			if protocol == "HTTP/2" {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-entered
					cancel()
				}()
				if _, err := client.Do(keyedRequest(t, srv.URL, token, "a").WithContext(ctx)); !errors.Is(err, context.Canceled) {
					t.Errorf("first: %v", err)
				}
			} else {
				c := dial(t, srv)
				c.send("POST / HTTP/1.1\r\nHost: " + srv.Listener.Addr().String() + "\r\nAuthorization: Bearer " + token + "\r\nIdempotency-Key: a\r\nContent-Length: 2\r\n\r\n{}")
				<-entered
				c.Close()
			}
			a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
			if a.StatusCode != 201 || a.body != `{"id":"task_1"}` || a.Header.Get("Idempotent-Replayed") != "true" || runs.Load() != 1 {
				t.Errorf("repeat: %d %s with %d runs, want the replay of the only run", a.StatusCode, a.body, runs.Load())
			}
		})
	}
}

// TestWaiterLeaves: a repeat whose client leaves gives up its place at once.
func TestWaiterLeaves(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	entered, release := make(chan struct{}), make(chan struct{})
	runner := replies(idem.Options{})
	srv := start(t, keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}}, numbered(new(atomic.Int64), func(*http.Request) {
		close(entered)
		<-release
	})))
	head := "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\nIdempotency-Key: a\r\nContent-Length: 2\r\n\r\n{}"
	first, waiter := dial(t, srv), dial(t, srv)
	first.send(head)
	<-entered
	waiter.send(head)
	for _, want := range []int{1, 0} {
		waitUntil(t, "the number of waiters is right", func() bool { return runner.Stats().Waiters == want })
		waiter.Close()
	}
	close(release)
	if a := first.next("POST"); a.StatusCode != 201 {
		t.Errorf("the first: %d %s", a.StatusCode, a.body)
	}
}

// waitUntil polls for what happens soon; it fails the test when it never does.
func waitUntil(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !happened(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", hangs, what)
		}
	}
}

// TestTimeoutHandlerOutside: the client is told 503 in time, and the create
// goes on to its end, which a repeat gets.
func TestTimeoutHandlerOutside(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		inBubble(t, protocol, func(t *testing.T) {
			var runs atomic.Int64
			release := make(chan struct{})
			g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
			inner := middleware.Chain(g.AnyKey, g.Idempotent)(numbered(&runs, func(*http.Request) { <-release }))
			client := listenInBubble(t, protocol, middleware.Chain(
				g.RequestID, g.Recover, g.Authenticate,
				func(next http.Handler) http.Handler {
					slow, fast := http.TimeoutHandler(next, 20*time.Millisecond, "late"), http.TimeoutHandler(next, time.Minute, "late")
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Slow") != "" {
							slow.ServeHTTP(w, r)
						} else {
							fast.ServeHTTP(w, r)
						}
					})
				},
			)(inner), nil)
			late := keyedRequest(t, "http://api.example.com", token, "a")
			late.Header.Set("Slow", "1")
			a := do(t, client, late)
			if wantID(t, a.Response); a.StatusCode != 503 || a.body != "late" {
				t.Errorf("first: %d %s, want the 503 of http.TimeoutHandler", a.StatusCode, a.body)
			}
			close(release)
			a = do(t, client, keyedRequest(t, "http://api.example.com", token, "a"))
			if a.StatusCode != 201 || a.body != `{"id":"task_1"}` || a.Header.Get("Idempotent-Replayed") != "true" || runs.Load() != 1 {
				t.Errorf("repeat: %d %s with %d runs, want the replay", a.StatusCode, a.body, runs.Load())
			}
		})
	}
}

// TestTransportResends: http.Transport by itself sends a request with an
// Idempotency-Key again when the connection it had kept dies under it. The user
// sees one success, and the create runs once.
func TestTransportResends(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	var runs, arrived atomic.Int64
	resent := make(chan struct{})
	h := keyed(ring, middleware.Options{}, numbered(&runs, func(r *http.Request) {
		if arrived.Load() == 2 { // the second request on the connection
			r.Context().Value(connKey{}).(net.Conn).Close()
			<-resent
		}
	}))
	srv := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) == 3 {
			close(resent)
		}
		h.ServeHTTP(w, r)
	}), func(srv *httptest.Server) {
		srv.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		}
	})
	do(t, srv.Client(), keyedRequest(t, srv.URL, token, "first"))
	a := do(t, srv.Client(), keyedRequest(t, srv.URL, token, "second"))
	if a.StatusCode != 201 || a.body != `{"id":"task_2"}` || runs.Load() != 2 || arrived.Load() != 3 {
		t.Errorf("%d %s after %d requests with %d runs, want task_2 after 3 requests with 2 runs", a.StatusCode, a.body, arrived.Load(), runs.Load())
	}
}

type connKey struct{}

// TestServerTimeouts: the server's own timeouts are shorter than waiting and
// running take, and cut neither off.
func TestServerTimeouts(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, protocol := range protocols {
		inBubble(t, protocol, func(t *testing.T) {
			var runs atomic.Int64
			entered := make(chan struct{})
			client := listenInBubble(t, protocol, keyed(ring, middleware.Options{}, numbered(&runs, func(r *http.Request) {
				close(entered)
				time.Sleep(600 * time.Millisecond)
			})), func(srv *http.Server) {
				srv.ReadTimeout, srv.WriteTimeout = 250*time.Millisecond, 250*time.Millisecond
			})
			first := make(chan answer)
			go func() { first <- do(t, client, keyedRequest(t, "http://api.example.com", token, "a")) }()
			<-entered
			repeat := do(t, client, keyedRequest(t, "http://api.example.com", token, "a"))
			for _, a := range []answer{<-first, repeat} {
				if a.StatusCode != 201 || a.body != `{"id":"task_1"}` {
					t.Errorf("%d %s, want task_1", a.StatusCode, a.body)
				}
			}
		})
	}
}

// TestServerTimeoutsAndSlowStore: neither does the time that a store takes.
func TestServerTimeoutsAndSlowStore(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	for _, row := range []struct {
		name string
		op   idemtest.Op
		want int
	}{{"Begin", idemtest.Begin, 503}, {"Settle", idemtest.Settle, 201}} {
		inBubble(t, row.name, func(t *testing.T) {
			faulty := idemtest.NewFaulty(idem.NewMemory(idem.MemoryOptions{}))
			faulty.Always(row.op, idemtest.Hang)
			runner := runnerOf(faulty, idem.Options{Wait: -time.Hour, Timeout: 600 * time.Millisecond})
			o := middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner, Timeout: 10 * time.Millisecond}}
			client := listenInBubble(t, "HTTP/1.1", keyed(ring, o, numbered(new(atomic.Int64), nil)), func(srv *http.Server) {
				srv.ReadTimeout, srv.WriteTimeout = 250*time.Millisecond, 250*time.Millisecond
			})
			if a := do(t, client, keyedRequest(t, "http://api.example.com", token, "a")); a.StatusCode != row.want {
				t.Errorf("%d %s, want %d", a.StatusCode, a.body, row.want)
			}
			faulty.Always(row.op, idemtest.None)
			_ = runner.WaitSettled(t.Context())
		})
	}
}

// TestShutdown: http.Server.Shutdown waits for a create whose client is gone,
// and the waits of repeats end when it begins.
func TestShutdown(t *testing.T) {
	ring := newKeyring()
	token := ring.issue(t)
	entered, release, draining := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	runner := replies(idem.Options{Draining: draining})
	srv := start(t, keyed(ring, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}}, numbered(new(atomic.Int64), func(*http.Request) {
		close(entered)
		<-release
		finished.Store(true)
	})), func(srv *httptest.Server) {
		srv.Config.RegisterOnShutdown(sync.OnceFunc(func() { close(draining) }))
	})
	c := dial(t, srv)
	c.send("POST / HTTP/1.1\r\nHost: " + srv.Listener.Addr().String() + "\r\nAuthorization: Bearer " + token + "\r\nIdempotency-Key: a\r\nContent-Length: 2\r\n\r\n{}")
	<-entered
	c.Close()

	repeat := make(chan answer)
	go func() { repeat <- do(t, srv.Client(), keyedRequest(t, srv.URL, token, "a")) }()
	waitUntil(t, "the repeat waits", func() bool { return runner.Stats().Waiters > 0 })
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := srv.Config.Shutdown(short); err != context.DeadlineExceeded {
		t.Errorf("Shutdown: %v while the handler runs", err)
	}
	if a := <-repeat; a.StatusCode != 409 || a.problem(t).Code != "idempotency_in_progress" {
		t.Errorf("the repeat got %d %s, want 409 before the handler ended", a.StatusCode, a.body)
	}
	close(release)
	if err := srv.Config.Shutdown(t.Context()); err != nil || !finished.Load() {
		t.Errorf("Shutdown: %v, handler finished: %t", err, finished.Load())
	}
	if err := runner.WaitSettled(t.Context()); err != nil {
		t.Errorf("WaitSettled: %v", err)
	}
}

// An http.TimeoutHandler answers while the handler inside goes on.
func TestLateHandlers(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		middleware.FreeKey(r.Context())
		w.Header().Set("Svc-Request-Id", "late")
		middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "late"})
	}
	ring := newKeyring()
	token := ring.issue(t)
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Millisecond, "timed out") }
	newAPI := func(h http.Handler) http.Handler {
		api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: replies()}})
		api.Handle("POST /api/v1/x", middleware.AnyKey(), h)
		return api
	}
	for name, h := range map[string]http.Handler{
		"outside the API": middleware.New(nil, middleware.Options{}).RequestID(timeout(newAPI(http.HandlerFunc(late)))),
		"in a route":      newAPI(timeout(http.HandlerFunc(late))),
	} {
		srv := httptest.NewServer(h)
		for i := range 40 {
			lines := []string{"X-Nothing: 1"}
			if i%2 == 0 {
				lines = []string{fmt.Sprintf("Idempotency-Key: %d", i)}
			}
			got := do(t, srv.Client(), request("POST", srv.URL+"/api/v1/x", token, "{}", lines...))
			if ids := got.Header["Svc-Request-Id"]; got.StatusCode != 503 || len(ids) != 1 || ids[0] == "late" {
				t.Fatalf("%s: got %d with ids %q", name, got.StatusCode, ids)
			}
		}
		srv.Close()
	}
}
