package keyed

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// TestPause: the deadline waits while the response is written, however long,
// and begins anew after that.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := idem.NewRunner(idem.NewMemory(idem.MemoryOptions{}), idem.Options{})
		_, execution, err := runner.Begin(t.Context(), idem.Request{Owner: "org"})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("POST", "/", nil)
		c := new(Context)
		c.start(&Request{Stage: &Stage{Timeout: time.Minute}, R: r, Execution: execution})
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
		_ = execution.Settle(r.Context(), idem.Settlement{Outcome: idem.NotStarted})
	})
}
