package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

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
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
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
