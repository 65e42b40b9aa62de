package idem_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// prompt is a Store that honors contexts.
type prompt struct{ idem.Store }

func (prompt) HonorsContext() {}

// callers is a Store that notes whether a Runner calls it in the goroutine of
// its own caller.
type callers struct {
	idem.Store
	direct, elsewhere int
}

func (c *callers) note() {
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "TestGoroutineOfCalls") {
			c.direct++
			return
		}
		if !more {
			c.elsewhere++
			return
		}
	}
}

func (c *callers) Begin(ctx context.Context, claim idem.Claim) (idem.Record, error) {
	c.note()
	return c.Store.Begin(ctx, claim)
}

func (c *callers) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, s idem.Settlement) error {
	c.note()
	return c.Store.Settle(ctx, key, token, s)
}

// A Prompt store is called in the goroutine of the request, more often than
// there may be open calls. Any other one is not.
func TestGoroutineOfCalls(t *testing.T) {
	const requests = 1100
	for _, isPrompt := range []bool{true, false} {
		c := &callers{Store: newMemory()}
		var s idem.Store = c
		if isPrompt {
			s = prompt{c}
		}
		r := newRunner(s, idem.Options{Timeout: time.Minute})
		for i := range requests {
			mustSettle(t, mustRun(t, r, numberedRequest(i)), answer("created"))
		}
		if isPrompt && c.elsewhere > 0 || !isPrompt && c.direct > 0 {
			t.Errorf("prompt %t: %d calls in the goroutine of the request, %d in others", isPrompt, c.direct, c.elsewhere)
		}
		mustBeIdle(t, r)
	}
}

// Whatever becomes of the calls of a Prompt store, a request runs only with its
// claim, and nothing of it is left.
func TestPromptStoreFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault idemtest.Fault
		after time.Duration // when Begin gives up
	}{
		{"error", idemtest.Fail, 0},
		{"answer lost", idemtest.LoseAnswer, 0},
		{"hangs", idemtest.Hang, 2 * time.Second},
		{"panics", idemtest.Panic, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := idemtest.NewFaulty(newMemory())
				r := newRunner(prompt{f}, idem.Options{})
				f.Next(idemtest.Begin, test.fault)
				got := <-begin(t.Context(), r, request)
				if got.err == nil || got.e != nil || got.after != test.after {
					t.Errorf("got an execution %t, error %v after %v, want an error after %v", got.e != nil, got.err, got.after, test.after)
				}
				again := <-begin(t.Context(), r, request)
				if again.e == nil || again.after > time.Second {
					t.Fatalf("the repeat: got %v, error %v after %v, want an execution within 1s", again.record.State, again.err, again.after)
				}
				f.Next(idemtest.Settle, test.fault)
				again.e.Settle(t.Context(), answer("created"))
				if err := r.WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
				mustReplay(t, r, request, "created")
				mustBeIdle(t, r)
			})
		})
	}
}

// The client of a request that is being claimed may leave. Its claim is made,
// and its answer is saved.
func TestPromptStoreOfOneWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(prompt{newMemory()}, idem.Options{})
		ctx, leave := context.WithCancel(t.Context())
		_, e, err := r.Begin(ctx, request)
		if e == nil {
			t.Fatalf("got error %v, want an execution", err)
		}
		leave()
		if err := e.Settle(ctx, answer("created")); err != nil {
			t.Error(err)
		}
		mustReplay(t, r, request, "created")
	})
}

// A Prompt store whose Join hangs is left behind all the same.
func TestPromptSaysNothingOfJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hangingJoiner{Store: prompt{newMemory()}, release: make(chan struct{})}
		r := newRunner(s, idem.Options{Join: true, Timeout: time.Second, Wait: noWait})
		start := time.Now()
		mustRefuse(t, r, request, context.DeadlineExceeded)
		if after := time.Since(start); after != time.Second {
			t.Errorf("gave up after %v, want 1s", after)
		}
		close(s.release)
	})
}

type hangingJoiner struct {
	idem.Store
	release chan struct{}
}

func (*hangingJoiner) HonorsContext() {}

func (s *hangingJoiner) Join(context.Context, idem.Claim) (idem.Record, idem.Transaction, error) {
	<-s.release
	return idem.Record{}, nil, context.Canceled
}
