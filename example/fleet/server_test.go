package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore/issuing"
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
		wantAdmitted := func(whose string, want int, secrets ...string) {
			n := 0
			for ; n < 10; n++ {
				got := srv.must(t, secrets[n%len(secrets)], "GET", "/api/v1/account", "")
				if got.StatusCode == http.StatusTooManyRequests {
					wantProblem(t, row.args, got, 429, "rate_limited")
					break
				}
			}
			if n%10 != want {
				t.Errorf("%q: %s was refused after %d requests, want %d", row.args, whose, n, want)
			}
		}
		// The limit is the organization's and not the key's: full and none
		// spend the same.
		wantAdmitted("production", row.full, srv.keys.Full, srv.keys.None)
		wantAdmitted("the sandbox", row.sandbox, srv.keys.Sandbox)
		wantAdmitted("the other organization", row.full, srv.keys.Other)
	}
}

func TestLatencyDelaysCreatingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memoryStores()
		keys, err := issueKeys(t.Context(), issuing.New(s.keys, issuing.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		srv, _ := newServer(mustParse(t, "-latency", "1m"), s, nil, logger(t))
		for _, row := range []struct {
			method, path, body string
			want               time.Duration
		}{
			{"GET", tasksPath, "", 0},
			{"POST", tasksPath, `{"title": "x"}`, time.Minute},
			{"POST", tasksPath, "{}", 0},
			{"GET", tasksPath + "/x", "", 0},
			{"POST", tasksPath + "/x/cancel", "", 0},
		} {
			r := httptest.NewRequest(row.method, row.path, strings.NewReader(row.body))
			r.Header.Set("Authorization", "Bearer "+keys.Full)
			began := time.Now()
			srv.Handler.ServeHTTP(httptest.NewRecorder(), r)
			if took := time.Since(began); took != row.want {
				t.Errorf("%s %s %s took %v, want %v", row.method, row.path, row.body, took, row.want)
			}
		}
	})
}

// gatedTasks hold each create at a gate.
type gatedTasks struct {
	memoryTasks
	entered, gate chan struct{}
	made          atomic.Int32
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

// When the server is to end, duplicates stop waiting for a create whose client
// has left, and the server waits for it.
func TestShutdownWaitsForWhatWasBegun(t *testing.T) {
	t.Parallel()
	s := memoryStores()
	gated := &gatedTasks{entered: make(chan struct{}, 2), gate: make(chan struct{})}
	limits := watchedLimits{s.limits, make(chan struct{}, 2)}
	s.tasks, s.limits = gated, limits
	srv := startWith(t, s)
	create := func(ctx context.Context) <-chan reply {
		c := make(chan reply, 1)
		go func() {
			got, _ := srv.do(ctx, srv.keys.Full, "POST", tasksPath, `{"title": "slow"}`, "Idempotency-Key", "k")
			c <- got
		}()
		return c
	}
	ctx, leave := context.WithCancel(t.Context())
	first := create(ctx)
	<-gated.entered
	leave()
	if got := <-first; got.Response != nil {
		t.Fatalf("the client that left got %s", got.text)
	}
	duplicate := create(t.Context())
	<-limits.passed
	<-limits.passed
	srv.end()
	if got := <-duplicate; got.Response == nil || got.StatusCode != http.StatusConflict {
		t.Errorf("a duplicate at shutdown: got %v %s, want 409", got.Response, got.text)
	}
	select {
	case <-srv.ended:
		t.Fatalf("the server ended, with %v, while a create was running", srv.err)
	default:
	}
	close(gated.gate)
	<-srv.ended
	if n := gated.made.Load(); srv.err != nil || n != 1 {
		t.Errorf("got %v and %d tasks, want a clean end and 1", srv.err, n)
	}
}
