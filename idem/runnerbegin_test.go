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
// when the first one left meanwhile, unless that ended a Join: each of them would
// have to wait as long for the same.
func TestWaitersShareTheError(t *testing.T) {
	for _, join := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := &stub{Store: newMemory(), begin: func(context.Context, idem.Claim) (idem.Record, error) {
				asked++
				time.Sleep(2 * time.Second)
				return idem.Record{}, idemtest.ErrInjected
			}}
			s.join = func(ctx context.Context, c idem.Claim) (idem.Record, idem.Transaction, error) {
				record, err := s.begin(ctx, c)
				return record, nil, err
			}
			r := newRunner(s, idem.Options{Join: join, Timeout: time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			waiting := []<-chan result{begin(ctx, r, request)}
			synctest.Wait()
			for range 10 {
				waiting = append(waiting, begin(t.Context(), r, request))
			}
			if time.Sleep(time.Second); !join {
				cancel()
			}
			for _, c := range waiting {
				if got := <-c; !errors.Is(got.err, idemtest.ErrInjected) || got.after != 2*time.Second {
					t.Errorf("joined %t: got %v, error %v after %v, want the error of the first after 2s",
						join, got.record.State, got.err, got.after)
				}
			}
			if cancel(); asked != 1 {
				t.Errorf("joined %t: the store was asked %d times, want once", join, asked)
			}
			mustRest(t, r)
		})
	}
}
