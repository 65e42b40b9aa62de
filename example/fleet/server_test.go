package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestRates(t *testing.T) {
	for _, row := range []struct {
		args          string
		full, sandbox int // requests until the first refusal; 0: not reached in 10
	}{
		{"-rate 3-H", 3, 0},
		{"-rate 3-H -sandbox-rate 2-H", 3, 2},
		{"-sandbox-rate 2-H", 0, 2},
	} {
		srv := start(t, strings.Fields(row.args)...)
		admitted := func(secrets ...string) int {
			for n := range 10 {
				got := srv.must(t, secrets[n%len(secrets)], "GET", "/api/v1/account", "")
				if got.StatusCode == http.StatusTooManyRequests {
					wantProblem(t, row.args, got, 429, "rate_limited")
					if got.Header.Get("Retry-After") == "" {
						t.Errorf("%q: a 429 has no Retry-After", row.args)
					}
					return n
				}
			}
			return 0
		}
		// The limit is the organization's and not the key's: full and none
		// spend the same.
		if got := admitted(srv.keys.Full, srv.keys.None); got != row.full {
			t.Errorf("%q: production was refused after %d requests, want %d", row.args, got, row.full)
		}
		if got := admitted(srv.keys.Sandbox); got != row.sandbox {
			t.Errorf("%q: the sandbox was refused after %d requests, want %d", row.args, got, row.sandbox)
		}
		if got := admitted(srv.keys.Other); got != row.full {
			t.Errorf("%q: the other organization was refused after %d requests, want %d", row.args, got, row.full)
		}
	}
}

func TestLatencyDelaysCreatingAlone(t *testing.T) {
	const latency = 50 * time.Millisecond
	srv := start(t, "-latency", latency.String())
	began := time.Now()
	srv.create(t, srv.keys.Full, "x")
	if took := time.Since(began); took < latency {
		t.Errorf("creating took %v, want at least %v", took, latency)
	}

	synctest.Test(t, func(t *testing.T) {
		tasks := &tasks{store: &memoryTasks{}, latency: time.Minute, logger: slog.New(slog.DiscardHandler)}
		began := time.Now()
		for _, request := range []struct {
			h      http.HandlerFunc
			method string
		}{{tasks.list, "GET"}, {tasks.create, "POST"}, {tasks.find, "GET"}, {tasks.cancel, "POST"}} {
			request.h(httptest.NewRecorder(), httptest.NewRequest(request.method, "/", strings.NewReader("{}")))
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("requests that create nothing took %v", took)
		}
	})
}

// gatedTasks hold each create at a gate.
type gatedTasks struct {
	memoryTasks
	entered chan struct{}
	gate    chan struct{}
	made    atomic.Int32
}

func (g *gatedTasks) Create(ctx context.Context, tenant, title string) (task, error) {
	g.entered <- struct{}{}
	select {
	case <-g.gate:
	case <-ctx.Done():
		return task{}, ctx.Err()
	}
	g.made.Add(1)
	return g.memoryTasks.Create(ctx, tenant, title)
}

// watchedLimits tell of each request that came as far as its rate limit, just
// before it runs or waits for one that does.
type watchedLimits struct {
	ratelimit.Store
	passed chan struct{}
}

func (l watchedLimits) Take(ctx context.Context, takes []ratelimit.Charge) (ratelimit.Decision, error) {
	d, err := l.Store.Take(ctx, takes)
	l.passed <- struct{}{}
	return d, err
}

// gatedStores hold creates, and tell of requests.
func gatedStores() (stores, *gatedTasks, watchedLimits) {
	s := memoryStores()
	tasks := &gatedTasks{entered: make(chan struct{}, 16), gate: make(chan struct{})}
	limits := watchedLimits{s.limits, make(chan struct{}, 16)}
	s.tasks, s.limits = tasks, limits
	return s, tasks, limits
}

// createAside creates a task in the background.
func (srv *running) createAside(ctx context.Context, key string) <-chan reply {
	c := make(chan reply, 1)
	go func() {
		got, err := srv.do(ctx, srv.keys.Full, "POST", "/api/v1/tasks", `{"title": "slow"}`, "Idempotency-Key", key)
		if err != nil {
			got.text = fmt.Sprint("error: ", err)
		}
		c <- got
	}()
	return c
}

func TestAClientThatLeavesGetsItsTaskWithTheRetry(t *testing.T) {
	s, gated, limits := gatedStores()
	srv := startWith(t, s)
	ctx, leave := context.WithCancel(t.Context())
	left := srv.createAside(ctx, "k")
	<-gated.entered
	leave()
	if got := <-left; !strings.HasPrefix(got.text, "error: ") {
		t.Fatalf("the client that left got %s", got.text)
	}
	retry := srv.createAside(t.Context(), "k")
	<-limits.passed
	<-limits.passed
	close(gated.gate)
	got := <-retry
	if got.Response == nil || got.StatusCode != http.StatusCreated || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the retry: got %v %s, want the replay of a 201", got.Response, got.text)
	}
	if n := gated.made.Load(); n != 1 {
		t.Errorf("%d tasks were made, want 1", n)
	}
}

func TestShutdownWaitsForWhatWasBegun(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		leaves bool // the client does not wait for its response
	}{{"client waits", false}, {"client has left", true}} {
		t.Run(row.name, func(t *testing.T) {
			s, gated, limits := gatedStores()
			srv := startWith(t, s)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			first := srv.createAside(ctx, "k")
			<-gated.entered
			if row.leaves {
				leave()
				<-first
			}
			duplicate := srv.createAside(t.Context(), "k")
			<-limits.passed
			<-limits.passed
			srv.end()
			if got := <-duplicate; got.Response == nil || got.StatusCode != http.StatusConflict ||
				got.Header.Get("Retry-After") == "" {
				t.Errorf("a duplicate at shutdown: got %v %s, want 409", got.Response, got.text)
			}
			address, _ := url.Parse(srv.base)
			for { // until the listener is closed
				conn, err := net.Dial("tcp", address.Host)
				if err != nil {
					break
				}
				conn.Close()
			}
			select {
			case <-srv.ended:
				t.Fatalf("the server ended, with %v, while a create was running", srv.err)
			default:
			}
			close(gated.gate)
			if !row.leaves {
				if got := <-first; got.Response == nil || got.StatusCode != http.StatusCreated {
					t.Errorf("got %v %s, want 201", got.Response, got.text)
				}
			}
			<-srv.ended
			if n := gated.made.Load(); srv.err != nil || n != 1 {
				t.Errorf("got %v and %d tasks, want a clean end and 1", srv.err, n)
			}
		})
	}
}

// A lateStore saves nothing while it is broken.
type lateStore struct {
	idem.Store
	calls         atomic.Int32
	broken, saved atomic.Bool
}

func (s *lateStore) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, settlement idem.Settlement) error {
	s.calls.Add(1)
	if s.broken.Load() {
		return errBroken
	}
	err := s.Store.Settle(ctx, key, token, settlement)
	s.saved.Store(err == nil)
	return err
}

func TestShutdownWaitsForRepliesThatAreNotSavedYet(t *testing.T) {
	t.Parallel()
	s := memoryStores()
	late := &lateStore{Store: s.replies}
	late.broken.Store(true)
	s.replies = late
	srv := startWith(t, s)
	if got := <-srv.createAside(t.Context(), "k"); got.Response == nil || got.StatusCode != http.StatusCreated {
		t.Fatalf("got %v %s, want 201", got.Response, got.text)
	}
	srv.end()
	for before := late.calls.Load(); late.calls.Load() < before+2; { // until saving was tried again
		<-time.After(10 * time.Millisecond)
	}
	select {
	case <-srv.ended:
		t.Fatalf("the server ended, with %v, before the reply was saved", srv.err)
	default:
	}
	late.broken.Store(false)
	<-srv.ended
	if srv.err != nil || !late.saved.Load() {
		t.Errorf("got %v, and the reply saved: %v", srv.err, late.saved.Load())
	}
}

func TestABodyThatEndsEarly(t *testing.T) {
	srv := start(t)
	for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(srv.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%sContent-Length: "+
			"100\r\n\r\n{\"title\": \"x\"}", srv.keys.Full, key)
		conn.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		text, _ := io.ReadAll(resp.Body)
		wantProblem(t, key, reply{resp, string(text)}, 400, "bad_request")
	}
	if got := srv.must(t, srv.keys.Full, "GET", "/api/v1/tasks", ""); got.text != "{\"tasks\":[]}\n" {
		t.Errorf("half a request made a task: %s", got.text)
	}
}
