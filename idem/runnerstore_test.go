package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// Whatever becomes of a Begin, nothing runs, nothing of it is left in the
// process, and the key is free soon after. What becomes of a Settle is saved.
func TestCallsFail(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  idemtest.Fault
		after  time.Duration // when Begin gives up
		honors bool          // whether such a store may honor contexts
	}{
		{"error", idemtest.Fail, 0, true},
		{"answer lost", idemtest.LoseAnswer, 0, true},
		{"hangs", idemtest.Hang, 2 * time.Second, true},
		{"hangs and heeds no context", idemtest.Stall, 2 * time.Second, false},
		{"claims, then hangs", idemtest.StallAnswer, 2 * time.Second, false},
		{"panics", idemtest.Panic, 0, true},
		{"ends its goroutine", idemtest.Exit, 0, false},
	} {
		for _, honors := range []bool{false, true} {
			if honors && !test.honors {
				continue
			}
			t.Run(fmt.Sprintf("%s, honors contexts %t", test.name, honors), func(t *testing.T) {
				faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
					if honors {
						r = newRunner(honoring{&stub{Store: f}}, idem.Options{})
					}
					f.Next(idemtest.Begin, test.fault)
					got := <-begin(t.Context(), r, request)
					if got.err == nil || got.e != nil || got.after != test.after {
						t.Errorf("got an execution %t, error %v after %v, want an error after %v",
							got.e != nil, got.err, got.after, test.after)
					}
					if n := r.Stats().Executions; n != 0 {
						t.Errorf("got %d executions, want 0", n)
					}
					// The repeat finds the key free, at once or as soon as the
					// claim is taken back.
					again := <-begin(t.Context(), r, request)
					if again.e == nil || again.after > time.Second {
						t.Fatalf("the repeat: got %v, error %v after %v, want an execution within 1s",
							again.record.State, again.err, again.after)
					}
					f.Next(idemtest.Settle, test.fault)
					again.e.Settle(t.Context(), answer("created"))
					f.Release()
					mustRest(t, r)
					mustReplay(t, r, request, "created")
					mustBeIdle(t, r)
				})
			})
		}
	}
}

// A full store answers: it is asked each time. ErrFull says that nothing was
// recorded, so there is nothing to take back.
func TestFullStore(t *testing.T) {
	f := idemtest.NewFaulty(&idem.Memory{Budget: 1})
	r := newRunner(f, idem.Options{})
	for range 20 {
		mustRefuse(t, r, request, idem.ErrFull)
	}
	mustBeIdle(t, r)
	if begins, settles := f.Calls(idemtest.Begin), f.Calls(idemtest.Settle); begins != 20 || settles != 0 {
		t.Errorf("got %d calls of Begin and %d of Settle, want 20 and none", begins, settles)
	}
}

// An answer against the contract is an error of the store. It is no refusal,
// and nothing runs. A transaction that comes with it is rolled back.
func TestAnswersAgainstTheContract(t *testing.T) {
	both := []bool{false, true}
	for _, row := range []struct {
		name   string
		answer idem.Record
		joins  []bool
	}{
		{"nothing", idem.Record{}, both},
		{"a state that does not exist", idem.Record{State: 5, Fingerprint: request.Fingerprint}, both},
		{"claimed without an attempt", idem.Record{State: idem.Claimed, Fingerprint: request.Fingerprint}, both},
		{"claimed for another request", idem.Record{State: idem.Claimed, Fingerprint: other.Fingerprint, Attempt: 1}, both},
		{"claimed without a fingerprint", idem.Record{State: idem.Claimed, Attempt: 1}, both},
		{"done, without a fingerprint", idem.Record{State: idem.Done, Payload: []byte("?"), Retained: true}, both},
		{"unknown, without a fingerprint", idem.Record{State: idem.Unknown}, both},
		{"claimed, without a transaction", idem.Record{State: idem.Claimed, Fingerprint: request.Fingerprint, Attempt: 1},
			[]bool{true}},
		{"in progress, with one", idem.Record{State: idem.InProgress}, []bool{true}},
	} {
		for _, join := range row.joins {
			synctest.Test(t, func(t *testing.T) {
				j := newJoiner()
				s := &stub{
					begin: func(context.Context, idem.Claim) (idem.Record, error) { return row.answer, nil },
					join: func(_ context.Context, c idem.Claim) (idem.Record, idem.Transaction, error) {
						if row.answer.State == idem.Claimed {
							return row.answer, nil, nil
						}
						j.open++
						return row.answer, &transaction{store: j, claim: c}, nil
					},
					Store: newMemory(),
				}
				r := newRunner(s, idem.Options{Join: join, Wait: noWait})
				record, e, err := r.Begin(t.Context(), request, nil)
				if e != nil || err == nil || errors.Is(err, idem.ErrMismatch) || errors.Is(err, idem.ErrFull) {
					t.Errorf("%s, joined %t: got %v, an execution %t, error %v, want an error of the store",
						row.name, join, record.State, e != nil, err)
				}
				mustRest(t, r)
				j.mustBeClosed(t, 0)
			})
		}
	}
}

// A store that never returns and heeds no context holds up no request for
// longer than the timeout, and no more goroutines than there are places for
// calls.
func TestStoreThatNeverReturns(t *testing.T) {
	faulty(t, idem.Options{ExecutionsPerTenant: 100_000}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		before := runtime.NumGoroutine()
		f.Always(idemtest.Begin, idemtest.Stall)
		f.Always(idemtest.Settle, idemtest.Stall)
		n := 0
		for range 30 {
			var waiting []<-chan result
			for range 500 {
				n++
				waiting = append(waiting, begin(t.Context(), r, numberedRequest(n)))
			}
			for _, c := range waiting {
				if got := <-c; got.err == nil || got.after > 2*time.Second {
					t.Fatalf("got error %v after %v, want an error within 2s", got.err, got.after)
				}
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := runtime.NumGoroutine() - before; got > 3*1024 {
			t.Errorf("%d requests pinned %d goroutines, want at most 3072", n, got)
		}

		// The store comes back, and with it the Runner.
		f.Always(idemtest.Begin, idemtest.None)
		f.Always(idemtest.Settle, idemtest.None)
		f.Release()
		r.WaitSettled(t.Context())
		mustSettle(t, mustRun(t, r, request), answer("created"))
		mustBeIdle(t, r)
	})
}

// The same holds of renewals and settlements that never return.
func TestStoreThatNeverReturnsFromExtendAndSettle(t *testing.T) {
	const n = 1500
	faulty(t, idem.Options{ExecutionsPerTenant: n}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		before := runtime.NumGoroutine()
		var executions []*idem.Execution
		for i := range n {
			executions = append(executions, mustRun(t, r, numberedRequest(i)))
		}
		bounded := func(kinds int) {
			t.Helper()
			time.Sleep(30 * time.Second)
			// Of each kind, beside the calls, an execution has one that waits.
			if got, most := runtime.NumGoroutine()-before, kinds*(1024+n); got > most {
				t.Errorf("%d kinds of calls pinned %d goroutines, want at most %d", kinds, got, most)
			}
		}
		f.Always(idemtest.Extend, idemtest.Stall)
		bounded(1)
		f.Always(idemtest.Settle, idemtest.Stall)
		for _, e := range executions {
			go e.Settle(t.Context(), answer("created"))
		}
		bounded(2)
		f.Always(idemtest.Extend, idemtest.None)
		f.Always(idemtest.Settle, idemtest.None)
		f.Release()
		mustRest(t, r)
	})
}

// honoring is a Store that honors contexts, but for Join.
type honoring struct{ *stub }

func (honoring) HonorsContext() {}

// A store that honors contexts is called in the goroutine of the request, which
// waits for it, and more often than there may be open calls.
func TestStoreThatHonorsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := idemtest.NewFaulty(newMemory())
		r := newRunner(honoring{&stub{Store: f}}, idem.Options{Lease: 2 * time.Hour})
		f.Next(idemtest.Begin, idemtest.Stall)
		waiting := begin(t.Context(), r, request)
		time.Sleep(time.Hour)
		f.Release()
		got := <-waiting
		if got.e == nil || got.after != time.Hour {
			t.Fatalf("got %v, error %v after %v, want an execution after 1h", got.record.State, got.err, got.after)
		}
		mustSettle(t, got.e, freed)
		for i := range 1100 {
			mustSettle(t, mustRun(t, r, numberedRequest(i)), answer("created"))
		}
		mustBeIdle(t, r)
	})
}

// If its Join hangs, that is left behind all the same.
func TestHonoredContextsSayNothingOfJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &stub{Store: newMemory(), join: func(context.Context, idem.Claim) (idem.Record, idem.Transaction, error) {
			<-release
			return idem.Record{}, nil, context.Canceled
		}}
		r := newRunner(honoring{s}, idem.Options{Join: true, Timeout: time.Second, Wait: noWait})
		start := time.Now()
		mustRefuse(t, r, request, context.DeadlineExceeded)
		if after := time.Since(start); after != time.Second {
			t.Errorf("gave up after %v, want 1s", after)
		}
		close(release)
	})
}

// A Joiner that honors contexts is waited for, and so are its transactions.
func TestJoinerThatHonorsContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &honoringJoiner{&joiner{Memory: newMemory(), onJoin: func(context.Context) error {
			time.Sleep(time.Hour)
			return nil
		}, onSettle: func(idem.Settlement) error {
			time.Sleep(time.Hour)
			return nil
		}}}
		r := newRunner(s, idem.Options{Join: true, Timeout: time.Second, Wait: noWait})
		start := time.Now()
		mustSettle(t, mustRun(t, r, request), answer("created"))
		if after := time.Since(start); after != 2*time.Hour {
			t.Errorf("settled after %v, want 2h", after)
		}
	})
}

type honoringJoiner struct{ *joiner }

func (*honoringJoiner) JoinHonorsContext() {}
