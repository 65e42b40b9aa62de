package idem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// result is what Begin returned, and when.
type result struct {
	record idem.Record
	e      *idem.Execution
	err    error
	after  time.Duration
}

// begin calls Begin in a goroutine.
func begin(ctx context.Context, r *idem.Runner, req idem.Claim) <-chan result {
	c := make(chan result, 1)
	start := time.Now()
	go func() {
		record, e, err := r.Begin(ctx, req, nil)
		c <- result{record, e, err, time.Since(start)}
	}()
	return c
}

// Callers that wait while the first one asks the store share its error, also
// when the first one left meanwhile: each of them would have to wait as long for
// the same.
func TestWaitersShareTheError(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		f.Always(idemtest.Begin, idemtest.Hang)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := []<-chan result{begin(ctx, r, request)}
		synctest.Wait()
		for range 10 {
			waiting = append(waiting, begin(t.Context(), r, request))
		}
		time.Sleep(time.Second)
		cancel()
		for _, c := range waiting {
			got := <-c
			if !errors.Is(got.err, context.DeadlineExceeded) || got.after != 2*time.Second {
				t.Errorf("got %v, error %v after %v, want a timeout after 2s", got.record.State, got.err, got.after)
			}
		}
		if n := f.Calls(idemtest.Begin); n != 1 {
			t.Errorf("the store was asked %d times, want once", n)
		}
		if err := r.WaitSettled(t.Context()); err != nil {
			t.Error(err)
		}
		mustBeIdle(t, r)
	})
}
