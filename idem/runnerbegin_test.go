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

func TestMismatchInFlight(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		r := newRunner(s, idem.Options{})
		e := mustRun(t, r, request)
		for _, r := range []*idem.Runner{r, newRunner(s, idem.Options{})} {
			if got := <-begin(t.Context(), r, other); got.err != idem.ErrMismatch || got.after != 0 {
				t.Errorf("got error %v after %v, want ErrMismatch at once", got.err, got.after)
			}
		}
		// Also where another waits already for the process that has it.
		r = newRunner(s, idem.Options{})
		waiting := begin(t.Context(), r, request)
		time.Sleep(time.Second)
		if got := <-begin(t.Context(), r, other); got.err != idem.ErrMismatch || got.after != 0 {
			t.Errorf("beside one who waits: got error %v after %v, want ErrMismatch at once", got.err, got.after)
		}
		defer func() { <-waiting }()
		mustSettle(t, e, answer("created"))
		mustReplay(t, r, request, "created")
	})
}

// Until the store answers, the fingerprint of the key's first request is not
// known in this process.
func TestMismatchIsForTheStoreToSay(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {

		// The first caller has the key's first request. Those that differ get
		// ErrMismatch when the claim is granted, not when it is settled.
		f.Next(idemtest.Begin, idemtest.StallAnswer)
		first := begin(t.Context(), r, request)
		synctest.Wait()
		differs := begin(t.Context(), r, other)
		synctest.Wait()
		f.Release()
		got := <-first
		if d := <-differs; d.err != idem.ErrMismatch {
			t.Errorf("the one who differs from the first request: got %v, error %v, want ErrMismatch", d.record.State, d.err)
		}
		mustSettle(t, got.e, answer("created"))

		// The first caller differs from the key's first request. Those that do
		// not differ get the answer.
		f.Next(idemtest.Begin, idemtest.StallAnswer)
		first = begin(t.Context(), r, other)
		synctest.Wait()
		same := begin(t.Context(), r, request)
		synctest.Wait()
		f.Release()
		if d := <-first; d.err != idem.ErrMismatch {
			t.Errorf("the first caller, who differs: got %v, error %v, want ErrMismatch", d.record.State, d.err)
		}
		if s := <-same; s.record.State != idem.Done || string(s.record.Payload) != "created" {
			t.Errorf("the one who is the same: got %v, error %v, want the answer", s.record.State, s.err)
		}
		mustBeIdle(t, r)
	})
}

// When a request frees its key, those who wait for it run it one after the
// other until one has an answer.
func TestWaitersStartOver(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		r := newRunner(s, idem.Options{})
		e := mustRun(t, r, request)
		results := make(chan result)
		for range 20 {
			go func() { results <- <-begin(t.Context(), r, request) }()
		}
		synctest.Wait()
		mustSettle(t, e, freed)
		runs := 0
		for range 20 {
			got := <-results
			switch {
			case got.e != nil && runs < 3:
				runs++
				mustSettle(t, got.e, freed)
			case got.e != nil:
				runs++
				mustSettle(t, got.e, answer("created"))
			case got.record.State != idem.Done:
				t.Errorf("got %v, error %v, want the answer", got.record.State, got.err)
			}
		}
		if runs != 4 {
			t.Errorf("got %d runs, want 4: three that freed the key and one that answered", runs)
		}
		mustBeIdle(t, r)
	})
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
