package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// TestMultipartReuse: a repeat with a new boundary is another request, and the
// refusal says so.
func TestMultipartReuse(t *testing.T) {
	ring, token := oneKey(t)
	h := keyed(ring, middleware.Options{}, numbered(new(atomic.Int64), nil))
	ask := func(boundary string) answer {
		return serve(h, request("POST", "/", token, "--"+boundary+"--\r\n", "Idempotency-Key: a",
			"Content-Type: Multipart/form-data; boundary="+boundary))
	}
	if a := ask("one"); a.StatusCode != 201 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if a := ask("one"); a.StatusCode != 201 || !a.replayed() {
		t.Errorf("same boundary: %d, want the replay", a.StatusCode)
	}
	if a := ask("two"); a.StatusCode != 422 || !strings.Contains(a.problem(t).Detail, "boundary") {
		t.Errorf("other boundary: %d %s, want 422 that names it", a.StatusCode, a.body)
	}
}

// TestConcurrentDuplicates: 200 clients send the same create at once. It runs
// once, and all of them get its response, or are told to come back for it.
func TestConcurrentDuplicates(t *testing.T) {
	const clients = 200
	ring, token := oneKey(t)
	for _, wait := range []time.Duration{time.Minute, -1} {
		overBoth(t, func(t *testing.T, protocol string) {
			var runs, answered atomic.Int64
			runner := replies(idem.Options{Wait: wait})
			mux := http.NewServeMux()
			mux.Handle("POST /", keyed(ring, with(keyedOptions{Runner: runner}), numbered(&runs, func(*http.Request) {
				waitUntil(t, "the others wait or are answered", func() bool {
					return runner.Stats().Waiters+int(answered.Load()) == clients-1
				})
			})))
			srv, client := listen(t, protocol, mux)
			client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
			do(t, client, get(t, srv, "/", "")) // a connection for HTTP/2 to share
			ask := func() answer {
				defer answered.Add(1)
				return do(t, client, keyedRequest(t, srv.URL, token, "same"))
			}
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
			if want := map[bool]int{true: clients, false: 1}[wait > 0]; statuses[201] != want ||
				statuses[201]+statuses[409] != clients {
				t.Errorf("statuses %v of %d, want %d times 201", statuses, clients, want)
			}
			if a := ask(); a.StatusCode != 201 || !a.replayed() || a.body != `{"id":"task_1"}` {
				t.Errorf("afterwards: %d %s, want the replay", a.StatusCode, a.body)
			}
		})
	}
}

// TestWaiterLeaves: a repeat whose client leaves gives up its place at once.
func TestWaiterLeaves(t *testing.T) {
	ring, token := oneKey(t)
	entered, release := make(chan struct{}), make(chan struct{})
	runner := replies(idem.Options{})
	srv := start(t, keyed(ring, with(keyedOptions{Runner: runner}), numbered(new(atomic.Int64), func(*http.Request) {
		close(entered)
		<-release
	})))
	head := wirePost(srv, token)
	first, waiter := dial(t, srv), dial(t, srv)
	first.send(head)
	<-entered
	waiter.send(head)
	for _, want := range []int{1, 0} {
		waitUntil(t, "the number of waiters is right", func() bool { return runner.Stats().Waiters == want })
		waiter.Close()
	}
	close(release)
	wantAnswer(t, "the first", first.next("POST"), 201)
}

// TestTransportResends: http.Transport by itself sends a request with an
// Idempotency-Key again when the connection it had kept dies under it. The user
// sees one success, and the create runs once.
func TestTransportResends(t *testing.T) {
	ring, token := oneKey(t)
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
		t.Errorf("%d %s after %d requests with %d runs, want task_2 after 3 requests with 2 runs", a.StatusCode,
			a.body, arrived.Load(), runs.Load())
	}
}

type connKey struct{}

// TestServerTimeouts: the server's own timeouts are shorter than waiting and
// running take, and cut neither off.
func TestServerTimeouts(t *testing.T) {
	ring, token := oneKey(t)
	bothInBubbles(t, func(t *testing.T, protocol string) {
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
			wantAnswer(t, "one task", a, 201, `{"id":"task_1"}`)
		}
	})
}

// TestShutdown: http.Server.Shutdown waits for a create whose client is gone,
// and the waits of repeats end when it begins.
func TestShutdown(t *testing.T) {
	ring, token := oneKey(t)
	entered, release, draining := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	runner := replies(idem.Options{Draining: draining})
	srv := start(t, keyed(ring, with(keyedOptions{Runner: runner}), numbered(new(atomic.Int64), func(*http.Request) {
		close(entered)
		<-release
		finished.Store(true)
	})), func(srv *httptest.Server) {
		srv.Config.RegisterOnShutdown(sync.OnceFunc(func() { close(draining) }))
	})
	c := dial(t, srv)
	c.send(wirePost(srv, token))
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

// TestRefusalsAreNotRecorded: what a stage refuses under a key leaves the key
// free.
func TestRefusalsAreNotRecorded(t *testing.T) {
	for _, f := range []fault{noKey, badKey, revokedKey, expiredKey, wrongScope, overLimit, unknownPath, wrongMethod,
		keyStoreDown, rateStoreDown, replyStoreDown} {
		inBubble(t, string(f), func(t *testing.T) {
			w := newWorld(t, nil)
			refused, _, _ := w.try(t, []fault{f})
			if refused.StatusCode < 400 {
				t.Fatalf("%d %s", refused.StatusCode, refused.body)
			}
			w.outage()
			if after := refused.Header.Get("Retry-After"); after != "" {
				seconds, err := strconv.Atoi(after)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(seconds) * time.Second)
			}
			a := serve(w.api, w.post(`{"title":"one"}`))
			time.Sleep(time.Hour)
			again := serve(w.api, w.post(`{"title":"one"}`))
			if a.StatusCode != 201 || w.runs.Load() != 1 || a.replayed() || again.body != a.body || !again.replayed() {
				t.Errorf("%d, then %d, with %d runs, want a create and its replay", a.StatusCode, again.StatusCode, w.runs.Load())
			}
		})
	}
}

// TestStoreFaults: whatever the store does wrong, the client has an answer in
// bounded time, and no request runs twice.
func TestStoreFaults(t *testing.T) {
	const timeout = 2 * time.Second
	created, unavailable := outcome{201, "", `{"id":"task_1"}`}, outcome{503, "idempotency_store_unavailable", ""}
	rows := []struct {
		name    string
		op      idemtest.Op
		fault   idemtest.Fault
		first   outcome
		atMost  time.Duration // the first response takes
		during  outcome       // a repeat while the fault lasts
		runs    int64         // by then
		mended  outcome       // a repeat when the store is well again
		allRuns int64
	}{
		{"Begin fails", idemtest.Begin, idemtest.Fail, unavailable, 0, unavailable, 0, created, 1},
		{"the answer of Begin is lost", idemtest.Begin, idemtest.LoseAnswer, unavailable, 0, unavailable, 0, created, 1},
		{"Begin hangs", idemtest.Begin, idemtest.Hang, unavailable, timeout, unavailable, 0, created, 1},
		{"Begin stalls", idemtest.Begin, idemtest.Stall, unavailable, timeout, unavailable, 0, created, 1},
		{"the answer of Begin stalls", idemtest.Begin, idemtest.StallAnswer, unavailable, timeout, unavailable, 0,
			created, 1},
		{"Begin panics", idemtest.Begin, idemtest.Panic, unavailable, 0, unavailable, 0, created, 1},
		{"Settle fails", idemtest.Settle, idemtest.Fail, created, timeout, created, 1, created, 1},
		{"the answer of Settle is lost", idemtest.Settle, idemtest.LoseAnswer, created, timeout, created, 1, created, 1},
		{"Settle hangs", idemtest.Settle, idemtest.Hang, created, timeout, created, 1, created, 1},
		{"Settle stalls", idemtest.Settle, idemtest.Stall, created, timeout, created, 1, created, 1},
		{"Settle panics", idemtest.Settle, idemtest.Panic, created, timeout, created, 1, created, 1},
		{"Extend fails", idemtest.Extend, idemtest.Fail, created, 0, created, 1, created, 1},
	}
	for _, row := range rows {
		inBubble(t, row.name, func(t *testing.T) {
			faulty := idemtest.NewFaulty(&idem.Memory{})
			var runs atomic.Int64
			runner := idem.NewRunner(faulty, idem.Options{Timeout: timeout, Logger: quiet().Logger})
			s := newSite(t, keyedOptions{Runner: runner}, numbered(&runs, nil))
			ask := func() outcome { return s.post("a").outcome(t) }
			faulty.Always(row.op, row.fault)
			begun := time.Now()
			if got := ask(); got != row.first || time.Since(begun) > row.atMost {
				t.Errorf("first: %v after %v, want %v within %v", got, time.Since(begun), row.first, row.atMost)
			}
			if got := ask(); got != row.during || runs.Load() != row.runs {
				t.Errorf("repeat: %v with %d runs, want %v with %d", got, runs.Load(), row.during, row.runs)
			}
			faulty.Always(row.op, idemtest.None)
			faulty.Release()
			if got := ask(); got != row.mended || runs.Load() != row.allRuns {
				t.Errorf("when mended: %v with %d runs, want %v with %d", got, runs.Load(), row.mended, row.allRuns)
			}
			if err := runner.WaitSettled(t.Context()); err != nil {
				t.Error(err)
			}
			if got := ask(); got != row.mended || runs.Load() != row.allRuns {
				t.Errorf("afterwards: %v with %d runs, want %v with %d", got, runs.Load(), row.mended, row.allRuns)
			}
			if s := runner.Stats(); s.Executions+s.Waiters+s.Unsaved != 0 {
				t.Errorf("left over: %+v", s)
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestLostClaim: where a second attempt may have taken the claim over, its
// response is the one that counts, and the client of the first is sent to where
// it will be. Where none may, nobody knows. The first attempt is told by its
// context.
func TestLostClaim(t *testing.T) {
	for name, end := range map[string]http.HandlerFunc{"201": steps("201"), "panic": steps("panic"),
		"a stream": steps("Content-Type: text/event-stream", "201", "more")} {
		for reexecute, want := range map[bool]string{
			true: "idempotency_in_progress true", false: "idempotency_outcome_unknown false",
		} {
			inBubble(t, fmt.Sprintf("%s, reexecute %t", name, reexecute), func(t *testing.T) {
				faulty := idemtest.NewFaulty(&idem.Memory{})
				faulty.Always(idemtest.Extend, idemtest.Lose)
				faulty.Next(idemtest.Settle, idemtest.Lose)
				runner := runnerOf(faulty, idem.Options{Reexecute: reexecute})
				s := newSite(t, keyedOptions{Runner: runner}, func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					if cause := context.Cause(r.Context()); !errors.Is(cause, idem.ErrLost) {
						t.Errorf("cause %v, want ErrLost", cause)
					}
					end(w, r)
					_ = http.NewResponseController(w).Flush()
				})
				a := s.post("a")
				if got := a.problem(t).Code + " " + advice(a); a.StatusCode != 409 || got != want {
					t.Errorf("%d %s, want 409 %s", a.StatusCode, got, want)
				}
			})
		}
	}
}

// TestErasedDuringCreate: the record of a create goes while its handler runs. Its
// client is not told to repeat what was done.
func TestErasedDuringCreate(t *testing.T) {
	store, runs := &idem.Memory{}, 0
	s := newSite(t, keyedOptions{Runner: runnerOf(store)}, func(w http.ResponseWriter, r *http.Request) {
		runs++
		if n, err := store.Erase(r.Context(), middleware.CallerFrom(r.Context()).Organization()); n != 1 || err != nil {
			t.Errorf("Erase: got %d, %v, want the claim", n, err)
		}
		w.WriteHeader(201)
	})
	a := s.post("a")
	if got := a.problem(t).Code + " " + advice(a); got != "idempotency_outcome_unknown false" || runs != 1 {
		t.Errorf("%d %s after %d runs", a.StatusCode, got, runs)
	}
}

// TestKeyHeader: a value that package repeat refuses is a 400 that says why, and
// nothing runs. The first request was sent with the key abc.
func TestKeyHeader(t *testing.T) {
	var runs atomic.Int64
	s := newSite(t, keyedOptions{}, numbered(&runs, nil))
	s.post("abc")
	for _, row := range []struct {
		values []string
		status int
		replay bool
	}{
		{[]string{"abc"}, 201, true},
		{[]string{` "abc"`}, 201, true},
		{[]string{"ABC"}, 201, false},
		{[]string{""}, 400, false},
		{[]string{"abc", "abc"}, 400, false},
		{[]string{strings.Repeat("a", 1<<20)}, 400, false},
		{[]string{"a\r\nSet-Cookie: a=b"}, 400, false},
		{[]string{`"abc";p=1`}, 400, false},
	} {
		runs.Store(1)
		r := request("POST", "/", s.token, "{}")
		r.Header["Idempotency-Key"] = row.values
		a := serve(s, r)
		if a.StatusCode != row.status || a.replayed() != row.replay || (runs.Load() == 1) != (row.replay ||
			row.status == 400) {
			t.Errorf("%.40q: %d, replayed %t, %d runs", row.values, a.StatusCode, a.replayed(), runs.Load())
		}
		if a.StatusCode != 400 {
			continue
		}
		p := a.problem(t)
		if p.Code != "idempotency_key_invalid" || !strings.HasPrefix(p.Detail, "The Idempotency-Key header ") ||
			!strings.HasSuffix(p.Detail, ".") || len(a.body) > 1000 {
			t.Errorf("%.40q: %.400s", row.values, a.body)
		}
	}
	if text := s.log.String(); text != "" {
		t.Errorf("log: %.200s", text)
	}
}

// TestKeyBelongsTo: what makes the same Idempotency-Key another key (a run of
// its own), and what makes the request under it another request (422).
func TestKeyBelongsTo(t *testing.T) {
	ring := newKeyring()
	grant := func(organization string, e keystore.Environment) string {
		token, _ := ring.grant(t, keystore.Key{Organization: organization, Environment: e})
		return token
	}
	token := grant("org_1", keystore.Production)
	ask := func(method, target, token, body string, lines ...string) *http.Request {
		return request(method, target, token, body, append(lines, "Content-Type: application/json", "Idempotency-Key: a")...)
	}
	same := func(lines ...string) *http.Request { return ask("POST", "/a?b=c", token, "{}", lines...) }
	by := func(token string) *http.Request { return ask("POST", "/a?b=c", token, "{}") }
	to := func(target string) *http.Request { return ask("POST", target, token, "{}") }
	typed := same()
	typed.Header.Set("Content-Type", "application/json; charset=utf-8")
	rewritten := same()
	rewritten.URL.RawQuery = "project=two"
	const replay, run, reused = "replay", "run", "reused"
	for _, row := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"the same", same(), replay},
		{"another key of the organization", by(grant("org_1", keystore.Production)), replay},
		{"other headers", same("User-Agent: other", "Accept: */*"), replay},
		{"the host in capitals, with the default port", to("http://EXAMPLE.com:80/a?b=c"), replay},
		{"another name of the host", to("http://www.example.com/a?b=c"), replay},
		{"another organization", by(grant("org_2", keystore.Production)), run},
		{"sandbox", by(grant("org_1", keystore.Sandbox)), run},
		{"an organization that reads alike", by(grant("org_1production", keystore.Production)), run},
		{"another project", same("Project: p"), run},
		{"another host", to("http://other/a?b=c"), reused},
		{"another range", same("Range: bytes=0-1"), reused},
		{"another method", ask("PATCH", "/a?b=c", token, "{}"), reused},
		{"another path", to("/b?b=c"), reused},
		{"the path escaped", to("/%61?b=c"), reused},
		{"another query", to("/a?b=d"), reused},
		{"a query that middleware has rewritten", rewritten, reused},
		{"another content type", typed, reused},
		{"another body", ask("POST", "/a?b=c", token, "{ }"), reused},
	} {
		var runs atomic.Int64
		h := keyed(ring, with(keyedOptions{
			Methods:       []string{"POST", "PATCH"},
			Partition:     func(r *http.Request) string { return r.Header.Get("Project") },
			CanonicalHost: func(host string) string { return strings.TrimPrefix(host, "www.") },
		}), numbered(&runs, nil))
		serve(h, same())
		a, got := serve(h, row.r), ""
		switch n := runs.Load(); {
		case a.StatusCode == 201 && a.replayed() && n == 1:
			got = replay
		case a.StatusCode == 422 && a.problem(t).Code == "idempotency_key_reused" && n == 1:
			got = reused
		case a.StatusCode == 201 && n == 2:
			got = run
		}
		if got != row.want {
			t.Errorf("%s: got %q (%d %s), want %q", row.name, got, a.StatusCode, a.body, row.want)
		}
	}
}

// TestPartitionOfTheBody: Partition may read the body and ask for the caller,
// and the handler has the body all the same.
func TestPartitionOfTheBody(t *testing.T) {
	ring, token := oneKey(t, scope.TasksWrite)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h := keyed(ring, with(keyedOptions{Partition: func(r *http.Request) string {
		if got := middleware.CallerFrom(r.Context()).Organization(); got != "org_1" {
			t.Errorf("Partition got the caller of %q", got)
		}
		body, _ := io.ReadAll(r.Body)
		return string(body)
	}}), echo)
	for _, body := range []string{"one", "two"} {
		res := serve(h, request("POST", "/a", token, body, "Idempotency-Key: k"))
		wantAnswer(t, body, res, 200, body)
	}
}

// TestRetryAcrossADeploy: what a deploy may change of a route does not make a
// retry another request.
func TestRetryAcrossADeploy(t *testing.T) {
	ring, token := oneKey(t, scope.TasksWrite, scope.TasksRead, scope.TasksCancel)
	runner, runs := replies(), 0
	for i, deploy := range []struct {
		pattern string
		need    middleware.Requirement
	}{
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead)},
		{"POST /api/v1/tasks/{task}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksRead, scope.TasksWrite)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.Require(scope.TasksWrite, scope.TasksRead, scope.TasksCancel)},
		{"POST /api/v1/tasks/{id}/cancel", middleware.RequireAny(scope.TasksCancel)},
		{"POST /api/v1/tasks/{rest...}", middleware.AnyCaller()},
	} {
		api := middleware.NewAPI(ring.keys, with(keyedOptions{Runner: runner}))
		api.HandleFunc(deploy.pattern, deploy.need, func(w http.ResponseWriter, r *http.Request) {
			runs++
			w.WriteHeader(http.StatusAccepted)
		})
		a := serve(api, request("POST", "/api/v1/tasks/7/cancel", token, "{}", "Idempotency-Key: a"))
		if a.StatusCode != 202 || runs != 1 || (a.replayed()) != (i > 0) {
			t.Errorf("%s for %v: %d %s with %d runs, want the replay", deploy.pattern, deploy.need, a.StatusCode, a.body, runs)
		}
	}
}

// One path can be two routes. A reply does not get from one to the other.
func TestRepliesStayWithTheirRoute(t *testing.T) {
	ring := newKeyring()
	tasks, chat, both := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.ChatWrite),
		ring.issue(t, scope.TasksWrite, scope.ChatWrite)
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	hosts := middleware.NewAPI(ring.keys, with(keyedOptions{Runner: replies()}))
	hosts.Handle("POST a.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of tasks"))
	hosts.Handle("POST b.example/api/v1/x", middleware.Require(scope.ChatWrite), says("of chat"))
	hosts.Handle("POST c.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of c"))

	g := middleware.New(ring.keys, with(keyedOptions{Runner: replies()}))
	prefixes := http.NewServeMux()
	for name, need := range map[string]scope.Name{"tasks": scope.TasksWrite, "chat": scope.ChatWrite} {
		pieces := middleware.Chain(g.Authenticate, g.Enforce(middleware.Require(need)), g.Idempotent)
		prefixes.Handle("/"+name+"/", http.StripPrefix("/"+name, pieces(says("of "+name))))
	}
	// A router that sets no Pattern.
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mount := "/" + strings.Split(r.URL.Path, "/")[1]
		stages := middleware.Chain(g.Authenticate, g.Enforce(middleware.AnyCaller()), g.Idempotent)
		http.StripPrefix(mount, stages(says("of "+mount[1:]))).ServeHTTP(w, r)
	})
	for _, row := range []struct {
		name         string
		h            http.Handler
		first, again string
		token        string
	}{
		{"another prefix, without patterns", plain, "/tasks/new", "/chat/new", tasks},
		{"another host and scope", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", chat},
		{"another host, both scopes", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", both},
		{"another host, the same scope", hosts, "http://a.example/api/v1/x", "http://c.example/api/v1/x", tasks},
		{"another prefix", prefixes, "/tasks/new", "/chat/new", chat},
	} {
		line := "Idempotency-Key: " + row.name
		if got := serve(row.h, request("POST", row.first, tasks, "{}", line)); got.body != "of tasks" {
			t.Errorf("%s: the first request got %d %s", row.name, got.StatusCode, got.body)
		}
		if got := serve(row.h, request("POST", row.again, row.token, "{}", line)); got.StatusCode != 422 ||
			got.problem(t).Code != "idempotency_key_reused" {
			t.Errorf("%s: got %d %s, want 422 idempotency_key_reused", row.name, got.StatusCode, got.body)
		}
	}
}

// TestRetryBetweenStages: whoever stands outside Idempotency and calls it again
// for the same request gets the replay.
func TestRetryBetweenStages(t *testing.T) {
	ring, token := oneKey(t)
	var runs atomic.Int64
	g := middleware.New(ring.keys, middleware.Options{Hooks: quiet(), Idempotency: keyedOptions{Runner: replies()}})
	again := foreign(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), r)
		r.Body = io.NopCloser(strings.NewReader("{}"))
		next.ServeHTTP(w, r)
	})
	h := middleware.Chain(g.RequestID, anyCaller(g), again, g.Idempotent)(numbered(&runs, nil))
	srv, client := listen(t, "HTTP/1.1", h)
	a := do(t, client, keyedRequest(t, srv.URL, token, "a"))
	if runs.Load() != 1 || a.StatusCode != 201 || !a.replayed() {
		t.Errorf("ran %d times, got %d, replayed %q", runs.Load(), a.StatusCode, a.Header.Get("Idempotent-Replayed"))
	}
}

// TestWriteDeadline: a server's WriteTimeout does not cut off a keyed request
// that waits for another one, runs, and has its outcome begun and saved in the
// store, each for as long as it may.
func TestWriteDeadline(t *testing.T) {
	for _, row := range []struct {
		name          string
		wait          time.Duration // for another request of the key
		timeout       time.Duration
		server, after time.Duration // WriteTimeout, and the deadline of the request; 0: none
	}{
		{"waits", 7 * time.Second, 11 * time.Second, time.Second, (7 + 11 + 2*3 + 1) * time.Second},
		{"does not wait", -1, 11 * time.Second, time.Second, (11 + 2*3 + 1) * time.Second},
		{"no WriteTimeout", 7 * time.Second, 11 * time.Second, 0, 0},
		{"a Timeout without end", 7 * time.Second, math.MaxInt64, time.Second, 0},
		{"a sum without end", -1, math.MaxInt64 - 6*time.Second, time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, keyedOptions{
				Runner: replies(idem.Options{Wait: row.wait, Timeout: 3 * time.Second}), Timeout: row.timeout,
			}, numbered(new(atomic.Int64), nil))
			r := post(s.token, "a")
			server := &http.Server{WriteTimeout: row.server}
			r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server))
			w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
			s.ServeHTTP(w, r)
			var want time.Time
			if row.after > 0 {
				want = time.Now().Add(row.after)
			}
			if w.Code != http.StatusCreated || !w.deadline.Equal(want) {
				t.Errorf("%s: got %d and the deadline %v, want 201 and %v", row.name, w.Code, w.deadline, want)
			}
		})
	}
}

// What a sandbox key does is on another account than production's, so it takes no
// execution and no room from it, and goes with the organization.
func TestAccountOfAClaim(t *testing.T) {
	ring := newKeyring()
	store := &claims{Store: &idem.Memory{}}
	h := keyed(ring, with(keyedOptions{Runner: runnerOf(store)}), sayOK)
	for _, e := range []keystore.Environment{keystore.Production, keystore.Sandbox} {
		token, _ := ring.grant(t, keystore.Key{Environment: e})
		serve(h, post(token, "a"))
	}
	if a, b := store.seen[0], store.seen[1]; a.Tenant == b.Tenant || a.Organization != "org_1" ||
		b.Organization != "org_1" {
		t.Errorf("got the tenants %q and %q of %q and %q", a.Tenant, b.Tenant, a.Organization, b.Organization)
	}
}

// claims is a store that remembers what it was asked for.
type claims struct {
	idem.Store
	seen []idem.Claim
}

func (c *claims) Begin(ctx context.Context, claim idem.Claim) (idem.Record, error) {
	c.seen = append(c.seen, claim)
	return c.Store.Begin(ctx, claim)
}

// The context of a joined request keeps an Issuer, whose keys would not be in its
// transaction, from writing: it says what to do. Elsewhere it writes.
func TestIssuerInAJoinedRequest(t *testing.T) {
	ring, token := oneKey(t)
	var err error
	h := keyed(ring, with(keyedOptions{Runner: joining(newJoiner())}), func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		_, _, err = ring.issuer.Issue(ctx, keystore.Key{Organization: "org_1", Name: "new", Environment: keystore.Sandbox})
	})
	serve(h, post(token, "one"))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "without Join") {
		t.Errorf("in a joined request: got %v, want an error that says what to do", err)
	}
	if serve(h, request("POST", "/", token, "")); err != nil {
		t.Errorf("in a request without a key: got %v", err)
	}
}
