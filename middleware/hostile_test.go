package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// One path can be two routes. A reply does not get from one to the other.
func TestRepliesStayWithTheirRoute(t *testing.T) {
	ring := newKeyring()
	tasks, chat, both := ring.issue(t, scope.TasksWrite), ring.issue(t, scope.ChatWrite), ring.issue(t, scope.TasksWrite, scope.ChatWrite)
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	hosts := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
	hosts.Handle("POST a.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of tasks"))
	hosts.Handle("POST b.example/api/v1/x", middleware.Require(scope.ChatWrite), says("of chat"))
	hosts.Handle("POST c.example/api/v1/x", middleware.Require(scope.TasksWrite), says("of c"))

	stage := middleware.Idempotency(replies(), middleware.IdempotencyOptions{})
	prefixes := http.NewServeMux()
	for name, need := range map[string]scope.Name{"tasks": scope.TasksWrite, "chat": scope.ChatWrite} {
		pieces := middleware.Chain(middleware.Authenticate(ring.keys, middleware.AuthOptions{}), middleware.RequireScope(middleware.Require(need), middleware.ScopeOptions{}), stage)
		prefixes.Handle("/"+name+"/", http.StripPrefix("/"+name, pieces(says("of "+name))))
	}
	for _, row := range []struct {
		name         string
		h            http.Handler
		first, again string
		token        string
	}{
		{"another host and scope", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", chat},
		{"another host, both scopes", hosts, "http://a.example/api/v1/x", "http://b.example/api/v1/x", both},
		{"another host, the same scope", hosts, "http://a.example/api/v1/x", "http://c.example/api/v1/x", tasks},
		{"another prefix", prefixes, "/tasks/new", "/chat/new", chat},
	} {
		line := "Idempotency-Key: " + row.name
		if got := serve(row.h, request("POST", row.first, tasks, "{}", line)); got.body != "of tasks" {
			t.Errorf("%s: the first request got %d %s", row.name, got.StatusCode, got.body)
		}
		if got := serve(row.h, request("POST", row.again, row.token, "{}", line)); got.StatusCode != 422 || got.problem(t).Code != "idempotency_key_reused" {
			t.Errorf("%s: got %d %s, want 422 idempotency_key_reused", row.name, got.StatusCode, got.body)
		}
	}
}

// Many may wait, and none of them keeps a large body meanwhile.
func TestWaitersKeepNoLargeBody(t *testing.T) {
	ring := newKeyring()
	runner := idem.NewRunner(replies(), idem.Options{})
	api := middleware.NewAPI(ring.keys, middleware.Options{Idempotency: middleware.IdempotencyOptions{Runner: runner}})
	started, release := make(chan struct{}), make(chan struct{})
	refuse := true
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
		if refuse {
			w.WriteHeader(http.StatusTooManyRequests) // frees the key
		}
	})
	token := ring.issue(t)
	srv := httptest.NewServer(api)
	defer srv.Close()
	const waiters = 100
	body := bytes.Repeat([]byte("x"), 1<<20)
	codes := make(chan string, waiters+1)
	send := func() {
		r, _ := http.NewRequest("POST", srv.URL+"/api/v1/x", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Idempotency-Key", "k")
		res, err := srv.Client().Do(r)
		if err != nil {
			codes <- err.Error()
			return
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		codes <- fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After"))
	}
	var all sync.WaitGroup
	all.Go(send)
	<-started
	runtime.GC()
	before := heap()
	for range waiters {
		all.Go(send)
	}
	for runner.Stats().Waiters < waiters {
		runtime.Gosched()
	}
	runtime.GC()
	runtime.GC() // pools need two
	if grown := int64(heap()) - int64(before); grown > waiters<<20/4 {
		t.Errorf("%d waiters with a body of 1 MiB hold %d MiB", waiters, grown>>20)
	}
	close(release)
	all.Wait()
	for range waiters + 1 {
		if got := <-codes; got != "429 " && got != "409 1" {
			t.Errorf("got %q, want the first request's 429, or 409 with Retry-After: 1 for those who cannot run any more", got)
		}
	}
}

// An http.TimeoutHandler answers while the handler inside goes on.
func TestLateHandlers(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		middleware.NotStarted(r.Context())
		w.Header().Set("Svc-Request-Id", "late")
		middleware.WriteProblem(w, r, middleware.Problem{Status: 503, Code: "late"})
	}
	ring := newKeyring()
	token := ring.issue(t)
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Millisecond, "timed out") }
	newAPI := func(h http.Handler) http.Handler {
		api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
		api.Handle("POST /api/v1/x", middleware.AnyKey(), h)
		return api
	}
	for name, h := range map[string]http.Handler{
		"outside the API": middleware.RequestID(middleware.RequestIDOptions{})(timeout(newAPI(http.HandlerFunc(late)))),
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

func TestNoOtherIDInTrailers(t *testing.T) {
	for _, protocol := range []string{"h1", "h2"} {
		for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
			for name, trail := range map[string]func(http.Header){
				"prefix":   func(h http.Header) { h.Set(http.TrailerPrefix+"Svc-Request-Id", "spoofed") },
				"declared": func(h http.Header) { h.Set("Svc-Request-Id", "spoofed") },
			} {
				ring := newKeyring()
				api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
				api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(w http.ResponseWriter, _ *http.Request) {
					if name == "declared" {
						w.Header().Set("Trailer", "Svc-Request-Id")
					}
					_, _ = io.WriteString(w, "body")
					trail(w.Header())
				})
				srv := httptest.NewUnstartedServer(api)
				srv.EnableHTTP2 = protocol == "h2"
				srv.StartTLS()
				got := do(t, srv.Client(), request("POST", srv.URL+"/api/v1/x", ring.issue(t), "{}", line))
				srv.Close()
				ids := got.Header["Svc-Request-Id"]
				if len(ids) != 1 {
					t.Fatalf("%s, %s, %s: got ids %q", protocol, line, name, ids)
				}
				for _, id := range got.Trailer["Svc-Request-Id"] {
					if id != ids[0] {
						t.Errorf("%s, %s, %s: the trailer has id %q, the header %q", protocol, line, name, id, ids[0])
					}
				}
			}
		}
	}
}

// A key is not in the log even if the handler took it out of its request before
// it panicked with it.
func TestPanicWithARemovedKey(t *testing.T) {
	ring, log := newKeyring(), newLogged()
	api := middleware.NewAPI(ring.keys, middleware.Options{Hooks: log.hooks(), Replies: replies()})
	api.HandleFunc("POST /api/v1/x", middleware.AnyKey(), func(_ http.ResponseWriter, r *http.Request) {
		out := r.Header.Clone()
		r.Header.Del("Authorization")
		panic(fmt.Sprint(out))
	})
	token := ring.issue(t)
	for _, line := range []string{"X-Nothing: 1", "Idempotency-Key: 1"} {
		if got := serve(api, request("POST", "/api/v1/x", token, "{}", line)); got.StatusCode != 500 {
			t.Errorf("%s: got %d", line, got.StatusCode)
		}
	}
	if text := log.String(); strings.Contains(text, token) || !strings.Contains(text, "[secret]") {
		t.Errorf("the log holds the key: %s", text)
	}
}

// A failing store is no way to fill the log.
func TestFaultsAreLoggedOnceASecond(t *testing.T) {
	log := newLogged()
	h := middleware.Authenticate(brokenKeys{}, middleware.AuthOptions{Hooks: log.hooks()})(http.NotFoundHandler())
	token := newKeyring().issue(t)
	for range 100 {
		serve(h, request("GET", "/", token, ""))
	}
	if n := strings.Count(log.String(), "does not answer"); n < 1 || n > 3 {
		t.Errorf("100 failures in an instant have %d lines", n)
	}
}

type brokenKeys struct{}

func (brokenKeys) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errors.New("no route to host")
}

func TestConfigurationThatWouldFailOpen(t *testing.T) {
	for _, methods := range [][]string{{"post"}, {""}, {"PO ST"}} {
		mustPanic(t, fmt.Sprint(methods), func() {
			middleware.Idempotency(replies(), middleware.IdempotencyOptions{Methods: methods})
		})
	}
	for _, header := range []string{"Location", "set-cookie", "Content-Length", "Transfer-Encoding", "Trailer", "two words", "Retry-After"} {
		mustPanic(t, header, func() { middleware.RequestID(middleware.RequestIDOptions{Header: header}) })
	}
	ring := newKeyring()
	api := middleware.NewAPI(ring.keys, middleware.Options{Replies: replies()})
	api.HandleFunc("POST\t /api/v1/x", middleware.AnyKey(), func(http.ResponseWriter, *http.Request) {})
	if routes := api.Routes(); len(routes) != 1 || routes[0].Method != "POST" || !routes[0].Idempotent {
		t.Errorf("a tab in the pattern: got %+v", routes)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if p := recover(); p == nil || !strings.HasPrefix(fmt.Sprint(p), "middleware: ") {
			t.Errorf("%s: got panic %v, want one of this package", what, p)
		}
	}()
	f()
}

// A hook that only flushes, or begins with the body, does not make a refusal a 200.
func TestHookWithoutAStatus(t *testing.T) {
	for name, hook := range map[string]func(http.ResponseWriter, *http.Request, middleware.Problem){
		"flush": func(w http.ResponseWriter, _ *http.Request, _ middleware.Problem) {
			_ = http.NewResponseController(w).Flush()
		},
		"body": func(w http.ResponseWriter, _ *http.Request, _ middleware.Problem) { _, _ = io.WriteString(w, "no") },
	} {
		api := middleware.NewAPI(newKeyring().keys, middleware.Options{Hooks: &middleware.Hooks{Problem: hook}})
		if got := serve(api, request("GET", "/api/v1/x", "", "")); got.StatusCode != 401 {
			t.Errorf("%s: got %d, want 401", name, got.StatusCode)
		}
	}
}
