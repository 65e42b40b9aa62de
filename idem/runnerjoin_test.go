package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// joiner is a Store with transactions: a Memory whose claims have no lease to
// speak of, and a list of committed rows. Its faults are functions that run
// before Join and Settle of a transaction do their work.
type joiner struct {
	*idem.Memory
	onJoin   func(ctx context.Context) error
	onSettle func(s idem.Settlement) error
	timeout  time.Duration // of the last Join

	mu   sync.Mutex
	open int
	rows []string
}

type transaction struct {
	store *joiner
	claim idem.Claim
	row   string
}

type transactionKey struct{}

func (j *joiner) Join(ctx context.Context, c idem.Claim, timeout time.Duration) (idem.Record, idem.Transaction, error) {
	j.mu.Lock()
	j.timeout = timeout
	j.mu.Unlock()
	if j.onJoin != nil {
		if err := j.onJoin(ctx); err != nil {
			return idem.Record{}, nil, err
		}
	}
	c.Lease = c.Retention
	record, err := j.Memory.Begin(context.WithoutCancel(ctx), c)
	if record.State == idem.InProgress {
		record.Fingerprint, record.RetryAfter = [32]byte{}, 0
	}
	if err != nil || record.State != idem.Claimed {
		return record, nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open++
	return record, &transaction{store: j, claim: c}, nil
}

func (x *transaction) Context(parent context.Context) context.Context {
	return context.WithValue(parent, transactionKey{}, x)
}

func (x *transaction) Settle(ctx context.Context, s idem.Settlement) error {
	j := x.store
	j.mu.Lock()
	j.open--
	j.mu.Unlock()
	if j.onSettle != nil {
		if err := j.onSettle(s); err != nil {
			j.Memory.Settle(ctx, x.claim.Key, x.claim.Token, freed)
			return err
		}
	}
	if err := j.Memory.Settle(ctx, x.claim.Key, x.claim.Token, s); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.Outcome == idem.OutcomeDone && !s.RollBack && x.row != "" {
		j.rows = append(j.rows, x.row)
	}
	return nil
}

func newJoiner() *joiner { return &joiner{Memory: newMemory()} }

func (j *joiner) mustBeClosed(t *testing.T, rows int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.open != 0 || len(j.rows) != rows {
		t.Errorf("got %d open transactions and the rows %q, want none and %d rows", j.open, j.rows, rows)
	}
}

var joining = idem.Options{Join: true}

// write writes a row in the transaction of the context.
func write(ctx context.Context, row string) { ctx.Value(transactionKey{}).(*transaction).row = row }

func TestJoined(t *testing.T) {
	refused := answer("refused")
	refused.RollBack = true
	for _, test := range []struct {
		name       string
		settlement idem.Settlement
		rows       int
		then       idem.State
	}{
		{"commit", answer("created"), 1, idem.Done},
		{"record alone", refused, 0, idem.Done},
		{"roll back", freed, 0, idem.Claimed},
		{"no unknown outcome", unknown, 0, idem.Claimed},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoiner()
				r := newRunner(j, joining)
				e := mustRun(t, r, request)
				write(e.Context(t.Context()), "task")
				waiting := begin(t.Context(), r, request)
				time.Sleep(9 * time.Second)
				mustSettle(t, e, test.settlement)
				if err := e.Settle(t.Context(), test.settlement); err != idem.ErrSettled {
					t.Errorf("Settle again: got error %v, want ErrSettled", err)
				}
				got := <-waiting
				if got.record.State != test.then || got.after != 9*time.Second {
					t.Errorf("the one who waits: got %v, error %v after %v, want %v after 9s",
						got.record.State, got.err, got.after, test.then)
				}
				if got.e != nil {
					mustSettle(t, got.e, freed)
				}
				j.mustBeClosed(t, test.rows)
				mustBeIdle(t, r)
			})
		})
	}
}

func TestCommitUnknown(t *testing.T) {
	for name, fail := range map[string]func(idem.Settlement) error{
		"said so":             func(idem.Settlement) error { return idem.ErrCommitUnknown },
		"hangs":               func(idem.Settlement) error { time.Sleep(time.Minute); return nil },
		"panicked":            func(idem.Settlement) error { panic("connection lost") },
		"ended its goroutine": func(idem.Settlement) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJoiner()
				j.onSettle = fail
				r := newRunner(j, joining)
				e := mustRun(t, r, request)
				start := time.Now()
				if err := e.Settle(t.Context(), answer("created")); !errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("got error %v, want ErrCommitUnknown", err)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("Settle took %v, want at most 2s", took)
				}
				mustBeIdle(t, r) // nothing goes on in the background
				time.Sleep(time.Minute)
			})
		})
	}
}

// Times that are meant to have no end do not make a Join fail.
func TestJoinWithoutEnd(t *testing.T) {
	for _, o := range []idem.Options{
		{Join: true, Wait: math.MaxInt64}, {Join: true, Timeout: math.MaxInt64},
		{Join: true, Wait: math.MaxInt64, Timeout: math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJoiner()
			j.onJoin = func(ctx context.Context) error { time.Sleep(time.Hour); return ctx.Err() }
			r := idem.NewRunner(j, o)
			mustSettle(t, mustRun(t, r, request), answer("created"))
			mustBeIdle(t, r)
		})
	}
}

// Another process cannot read the fingerprint of what a transaction holds, so
// whoever asks first there decides nothing for the others: a request that differs
// waits, and gets ErrMismatch when the transaction ends, and the same one its reply.
func TestJoinedElsewhere(t *testing.T) {
	for _, first := range []idem.Claim{request, other} {
		synctest.Test(t, func(t *testing.T) {
			j := newJoiner()
			e := mustRun(t, newRunner(j, joining), request)
			r := newRunner(j, joining)
			begun := map[[32]byte]<-chan result{first.Fingerprint: begin(t.Context(), r, first)}
			synctest.Wait() // so that it is the one who polls
			for _, c := range []idem.Claim{request, other} {
				if c != first {
					begun[c.Fingerprint] = begin(t.Context(), r, c)
				}
			}
			time.Sleep(3 * time.Second)
			mustSettle(t, e, answer("created"))
			if got := <-begun[request.Fingerprint]; got.record.State != idem.Done || got.after < 3*time.Second {
				t.Errorf("the same request: got %v, error %v after %v, want done after 3s", got.record.State, got.err, got.after)
			}
			if got := <-begun[other.Fingerprint]; got.err != idem.ErrMismatch || got.after < 3*time.Second {
				t.Errorf("another request: got %v, error %v after %v, want ErrMismatch after 3s",
					got.record.State, got.err, got.after)
			}
			mustBeIdle(t, r)
		})
	}
}

// Join may have to wait for its turn, longer than a call may last. When the
// first caller leaves meanwhile, those that wait for it start over, and a
// transaction that comes too late is rolled back.
func TestJoinWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiner()
		j.onJoin = func(context.Context) error { time.Sleep(8 * time.Second); return nil } // heeds no context
		r := newRunner(j, joining)
		ctx, cancel := context.WithCancel(t.Context())
		leaves := begin(ctx, r, request)
		synctest.Wait()
		stays := begin(t.Context(), r, request)
		time.Sleep(time.Second)
		cancel()
		if got := <-leaves; !errors.Is(got.err, context.Canceled) || got.e != nil || got.after != time.Second {
			t.Errorf("the one who leaves: got error %v after %v, want context.Canceled after 1s", got.err, got.after)
		}
		got := <-stays
		for got.e == nil && got.err == nil && got.record.State == idem.InProgress {
			got = <-begin(t.Context(), r, request)
		}
		if got.e == nil {
			t.Fatalf("the one who stays: got %v, error %v, want an execution", got.record.State, got.err)
		}
		mustSettle(t, got.e, answer("created"))
		mustRest(t, r)
		j.mustBeClosed(t, 0)
	})
}

// A Join that found no turn says nothing about the database, so the others go
// on asking, however many there are. Its time is the wait, and the database's
// the timeout.
func TestNoTurnIsNoOutage(t *testing.T) {
	for _, test := range []struct{ wait, all, database time.Duration }{
		{0, 12 * time.Second, 2 * time.Second},
		{time.Second, 3 * time.Second, 2 * time.Second},
		{-1, 2 * time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJoiner()
			var left time.Duration
			j.onJoin = func(ctx context.Context) error {
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				return fmt.Errorf("%w: %w", idem.ErrNoTurn, context.DeadlineExceeded)
			}
			r := newRunner(j, idem.Options{Join: true, Wait: test.wait})
			for i := range 20 {
				if got := <-begin(t.Context(), r, numberedRequest(i)); !errors.Is(got.err, idem.ErrNoTurn) {
					t.Fatalf("number %d: got error %v, want ErrNoTurn", i, got.err)
				}
			}
			if left != test.all || j.timeout != test.database {
				t.Errorf("with Wait %v a Join has %v, and the database %v of them, want %v and %v",
					test.wait, left, j.timeout, test.all, test.database)
			}
			j.onJoin = nil
			mustSettle(t, mustRun(t, r, request), freed)
			mustBeIdle(t, r)
		})
	}
}

// More Joins than may be open wait for the others, not for the database.
func TestTooManyJoinsAreNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoiner()
		j.onJoin = func(ctx context.Context) error { time.Sleep(time.Hour); return nil }
		r := newRunner(j, idem.Options{Join: true, ExecutionsPerTenant: 2000})
		var waiting []<-chan result
		for i := range 1025 {
			waiting = append(waiting, begin(t.Context(), r, idem.Claim{Key: idem.NewKey("org", strconv.Itoa(i))}))
		}
		refused := 0
		for _, c := range waiting {
			if got := <-c; errors.Is(got.err, idem.ErrNoTurn) {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d of 1025 Joins got ErrNoTurn, want 1", refused)
		}
		time.Sleep(time.Hour)
	})
}
