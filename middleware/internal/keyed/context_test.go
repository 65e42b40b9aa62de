package keyed

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// started returns the context of a handler with a minute.
func started(t *testing.T, parent context.Context) *Context {
	t.Helper()
	_, execution, err := idem.NewRunner(&idem.Memory{}, idem.Options{}).Begin(t.Context(), idem.Claim{Tenant: "org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = execution.Settle(context.Background(), idem.Settlement{Outcome: idem.OutcomeFree}) })
	c := new(Context)
	c.start(&Request{Stage: &Stage{Timeout: time.Minute}, Execution: execution,
		R: httptest.NewRequest("POST", "/", nil).WithContext(parent)})
	return c
}

// TestPause: the deadline waits while the response is written, however long,
// and begins anew after that.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, t.Context())
		if at, ok := c.Deadline(); !ok || !at.Equal(time.Now().Add(time.Minute)) || c.Err() != nil {
			t.Errorf("Deadline: %v, %t", at, ok)
		}
		c.pause()
		time.Sleep(10 * time.Minute)
		if _, ok := c.Deadline(); ok || c.Err() != nil {
			t.Errorf("while it waits: a deadline %t, %v", ok, c.Err())
		}
		if err := c.resume(context.Canceled); err != context.Canceled {
			t.Errorf("resume: %v, want what the write returned", err)
		}
		for _, step := range []struct {
			after time.Duration
			want  error
		}{{time.Minute - 1, nil}, {1, context.DeadlineExceeded}} {
			time.Sleep(step.after)
			if synctest.Wait(); c.Err() != step.want {
				t.Errorf("%v later: %v, want %v", step.after, c.Err(), step.want)
			}
		}
		c.end()
	})
}

// watched is a context that counts who waits for its end.
type watched struct {
	context.Context
	done     chan struct{}
	watchers int
}

func (w *watched) Done() <-chan struct{} { return w.done }

func (w *watched) AfterFunc(func()) (stop func() bool) {
	w.watchers++
	return func() bool {
		w.watchers--
		return true
	}
}

// TestStreamLeavesNothing: a stream whose request has a context that lives on,
// as that of a program that calls the handler itself, leaves nothing with it.
func TestStreamLeavesNothing(t *testing.T) {
	parent := &watched{Context: t.Context(), done: make(chan struct{})}
	c := started(t, parent)
	c.whole()
	for i, step := range []func(){func() { c.stream(recorded) }, c.end} {
		if step(); parent.watchers != 1-i {
			t.Errorf("step %d: %d wait for the end of the request's context, want %d", i, parent.watchers, 1-i)
		}
	}
}
