package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

var errRefused = errors.New("connection refused")

// faulty is a store that fails as the test says.
type faulty struct {
	ratelimit.Store
	calls atomic.Int64
	fault atomic.Pointer[func(ctx context.Context) error] // nil: none
}

func newFaulty() *faulty { return &faulty{Store: ratelimit.NewMemorySize(1000)} }

func (f *faulty) fail(fault func(ctx context.Context) error) { f.fault.Store(&fault) }

func (f *faulty) mend() { f.fault.Store(nil) }

func (f *faulty) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	f.calls.Add(1)
	if fault := f.fault.Load(); fault != nil {
		if err := (*fault)(ctx); err != nil {
			return ratelimit.Decision{}, err
		}
	}
	return f.Store.Take(ctx, charges)
}

func refuse(context.Context) error { return errRefused }

// hang ignores its context and returns when the test is over.
func hang(t *testing.T) func(context.Context) error {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func(context.Context) error { <-end; return errRefused }
}

// mode returns a policy of 2 per hour with this failure mode.
func mode(name string, m ratelimit.FailureMode) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse("2-H"), OnFailure: m}
}

var discard = slog.New(slog.DiscardHandler)

func TestFailoverBudget(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T) func(context.Context) error{
		"ignores its context": hang,
		"waits for its context": func(*testing.T) func(context.Context) error {
			return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newFaulty()
				store.fail(fault(t))
				f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
				p := mode("local", ratelimit.Local)
				for i, want := range []bool{true, true, false} {
					began := time.Now()
					d := takeOne(t, f, p, "org")
					if took := time.Since(began); took != 50*time.Millisecond {
						t.Errorf("take %d took %v, want the budget of 50 ms", i, took)
					}
					if d.Allowed != want {
						t.Errorf("take %d: Allowed %v, want 2 metered locally", i, d.Allowed)
					}
				}
				if n := fallbacks(f); n != 3 {
					t.Errorf("%d fallbacks, want 3", n)
				}
			})
		})
	}
}

// What the store decides is the decision. Then its context is cancelled, since
// nobody waits for it any more.
func TestFailoverPassesDecisionsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := newFaulty(), policy("live", "2-H")
		var bounded context.Context
		store.fail(func(ctx context.Context) error { bounded = ctx; return nil })
		f, alone := ratelimit.NewFailover(store, ratelimit.FailoverOptions{}), ratelimit.NewMemory()
		for i := range 3 {
			if got, want := takeOne(t, f, p, "org"), takeOne(t, alone, p, "org"); got != want {
				t.Errorf("call %d: got %+v, want the store's %+v", i, got, want)
			}
			if err := bounded.Err(); err != context.Canceled {
				t.Errorf("call %d: the store's context says %v after the call, want that it is cancelled", i, err)
			}
		}
	})
}

func TestFailoverModes(t *testing.T) {
	local, local2, open, closed := mode("local", ratelimit.Local), mode("local2", ratelimit.Local), mode("open", ratelimit.Open), mode("closed", ratelimit.Closed)
	unknown := mode("unknown", 7)
	for _, tt := range []struct {
		name     string
		policies []*ratelimit.Policy
		allowed  []bool // call after call
		refused  bool
	}{
		{"local", []*ratelimit.Policy{local}, []bool{true, true, false}, false},
		{"open", []*ratelimit.Policy{open}, []bool{true, true, true, true}, false},
		{"closed", []*ratelimit.Policy{closed}, nil, true},
		{"unknown", []*ratelimit.Policy{unknown}, nil, true},
		{"local and open", []*ratelimit.Policy{open, local}, []bool{true, true, false}, false},
		{"two local", []*ratelimit.Policy{local2, open, local}, []bool{true, true, false}, false},
		{"closed wins over local", []*ratelimit.Policy{local, closed}, nil, true},
		{"closed wins over open", []*ratelimit.Policy{closed, open}, nil, true},
	} {
		test := func(t *testing.T) {
			store := newFaulty()
			store.fail(refuse)
			fallback := ratelimit.NewMemory()
			f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
			f.Count(fallback)
			var charges []ratelimit.Charge
			for _, p := range tt.policies {
				charges = append(charges, ratelimit.Charge{Policy: p, Bucket: "org", Cost: 1})
			}
			if tt.refused {
				// Before the breaker opens and after.
				for range 10 {
					_, err := f.Take(context.Background(), charges)
					if err == nil || !strings.HasPrefix(err.Error(), "ratelimit: store unavailable: policy ") {
						t.Fatalf("error %v, want it to say that the store is unavailable", err)
					}
				}
				if got := take(t, fallback, ratelimit.Charge{Policy: local, Bucket: "org"}).States[0].Remaining; got != 2 {
					t.Errorf("a refusal charged the local bucket: %d of 2 remain", got)
				}
				return
			}
			for i, want := range tt.allowed {
				d := take(t, f, charges...)
				if d.Allowed != want {
					t.Errorf("call %d: %+v, want Allowed %v", i, d, want)
				}
				if !want && tt.policies[d.Limiting].OnFailure != ratelimit.Local {
					t.Errorf("call %d: denied by %s", i, tt.policies[d.Limiting].Name)
				}
			}
		}
		t.Run(tt.name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// The error of a refusal names the cause, first the store's and then the
// breaker's.
func TestFailoverCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(refuse)
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		closed := []ratelimit.Charge{{Policy: mode("closed", ratelimit.Closed), Bucket: "org", Cost: 1}}
		for range 5 {
			if _, err := f.Take(context.Background(), closed); !errors.Is(err, errRefused) {
				t.Errorf("error %v, want the store's in it", err)
			}
		}
		if _, err := f.Take(context.Background(), closed); err == nil || !strings.Contains(err.Error(), "not called after failures in a row") {
			t.Errorf("error %v, want it to say that the store is not called", err)
		}
	})
}

func TestFailoverBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := &ratelimit.Policy{Name: "open", Limit: ratelimit.MustParse("2-H"), OnFailure: ratelimit.Open}
		calls := func(n int) (reached int64) {
			before := store.calls.Load()
			for range n {
				if _, err := f.Take(t.Context(), []ratelimit.Charge{{Policy: p, Bucket: "org", Cost: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			return store.calls.Load() - before
		}

		// Failures that are not in a row do not open it.
		for range 10 {
			store.fail(refuse)
			calls(4)
			store.mend()
			calls(1)
		}
		if isDown(f) || log.Len() > 0 {
			t.Errorf("open after 4 failures in a row; log %q", log.String())
		}

		store.fail(refuse)
		if n := calls(1000); n != 5 || !isDown(f) {
			t.Errorf("%d calls of a store that fails, want 5; down %v", n, isDown(f))
		}
		for range 3 {
			time.Sleep(999 * time.Millisecond)
			if n := calls(10); n != 0 {
				t.Errorf("%d calls before the cooldown was over, want none", n)
			}
			time.Sleep(time.Millisecond)
			if n := calls(10); n != 1 {
				t.Errorf("%d calls after the cooldown, want the probe", n)
			}
		}

		// However many callers come when the cooldown is over, one is the
		// probe.
		gate := make(chan struct{})
		store.fail(func(context.Context) error { <-gate; return nil })
		time.Sleep(time.Second)
		before := store.calls.Load()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { takeOne(t, f, p, "org") })
		}
		synctest.Wait()
		if n := store.calls.Load() - before; n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
		close(gate)
		wg.Wait()
		if isDown(f) {
			t.Error("open after a probe that succeeded")
		}
		if n := calls(10); n != 10 {
			t.Errorf("%d of 10 calls reached a store that is back", n)
		}

		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "connection refused") ||
			!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "after=4") {
			t.Errorf("the log is %q, want a line when it opened and one when it closed", lines)
		}
	})
}

// Without a Logger the lines go to slog.Default.
func TestFailoverDefaultLogger(t *testing.T) {
	var lines bytes.Buffer
	// SetDefault also changes package log, and does not change it back.
	defer log.SetOutput(log.Writer())
	defer log.SetFlags(log.Flags())
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	store := newFaulty()
	store.fail(refuse)
	f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
	for range 5 {
		takeOne(t, f, mode("open", ratelimit.Open), "org")
	}
	if !strings.Contains(lines.String(), "rate limit store fails") {
		t.Errorf("the default log is %q, want a warning", lines.String())
	}
}

// Calls that have returned do not count against the most that may run.
func TestFailoverKeepsCalling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
		p := policy("live", "1000000-S")
		for range 3000 {
			takeOne(t, f, p, "org")
		}
		if n := store.calls.Load(); n != 3000 || fallbacks(f) != 0 {
			t.Errorf("%d of 3000 calls reached the store, %d did not", n, fallbacks(f))
		}
	})
}

// A store that never returns holds a bounded number of goroutines: after a
// crowd that arrives before the breaker opens, and after a day of probes.
func TestFailoverGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(hang(t))
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("open", ratelimit.Open)
		var wg sync.WaitGroup
		for range 5000 {
			wg.Go(func() { takeOne(t, f, p, "org") })
		}
		wg.Wait()
		synctest.Wait()
		crowd := goroutines()
		if calls := store.calls.Load(); crowd != 1024 || calls != 1024 {
			t.Errorf("%d goroutines hang in %d calls after 5000 callers at once, want 1024 of both", crowd, calls)
		}
		for range 24 * 60 * 60 {
			time.Sleep(time.Second)
			takeOne(t, f, p, "org")
		}
		synctest.Wait()
		if more := goroutines() - crowd; more < 5 || more > 20 {
			t.Errorf("%d probes hang after a day, want a dozen or so", more)
		}
	})
}

// goroutines counts those that package ratelimit has started in the bubble of
// the test. runtime.NumGoroutine would also count what earlier tests leave to
// the scheduler.
func goroutines() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, "synctest bubble") && strings.Contains(stack, "created by github.com/sallyport-go/sallyport/ratelimit.") {
			n++
		}
	}
	return n
}

// Each probe that hangs doubles the time until the next one, sixteen times.
func TestFailoverDoublesTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(refuse)
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("open", ratelimit.Open)
		for range 5 {
			takeOne(t, f, p, "org")
		}
		store.fail(hang(t))
		for hung := range 20 {
			before := store.calls.Load()
			time.Sleep(time.Second<<min(hung, 16) - 1)
			takeOne(t, f, p, "org")
			early := store.calls.Load() - before
			time.Sleep(time.Nanosecond)
			takeOne(t, f, p, "org")
			if late := store.calls.Load() - before; early != 0 || late != 1 {
				t.Errorf("while %d probes hang: %d calls before %v and %d then, want none and the probe", hung, early, time.Second<<min(hung, 16), late)
			}
		}
	})
}

// When hung probes have returned, the next one starts after the usual cooldown.
func TestFailoverRecoversFromHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(func(context.Context) error { time.Sleep(10 * time.Second); return errRefused })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("open", ratelimit.Open)
		for range 100 {
			takeOne(t, f, p, "org")
			time.Sleep(time.Second)
		}
		store.mend()
		time.Sleep(20 * time.Second)
		takeOne(t, f, p, "org")
		if isDown(f) {
			t.Error("still open 20 s after the store recovered")
		}
	})
}

// While a client connects for the first time, calls over budget do not open the
// breaker, so the store decides as soon as it can. Errors do, and so does a
// store that does not answer within the cooldown.
func TestFailoverFirstConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		options := ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		p := mode("open", ratelimit.Open)
		crowd := func(f *ratelimit.Failover) {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() { takeOne(t, f, p, "org") })
			}
			wg.Wait()
		}

		store := newFaulty()
		connected := make(chan struct{})
		store.fail(func(context.Context) error { <-connected; return nil })
		f := ratelimit.NewFailover(store, options)
		for range 19 { // 950 ms
			crowd(f)
		}
		if isDown(f) || fallbacks(f) != 19*20 {
			t.Errorf("after %d fallbacks during the first connection: down %v, want 380 and up", fallbacks(f), isDown(f))
		}
		close(connected)
		if crowd(f); fallbacks(f) != 19*20 {
			t.Errorf("%d fallbacks when the client is connected", fallbacks(f)-19*20)
		}
		// From the first answer on, calls over budget are failures.
		store.fail(hang(t))
		if crowd(f); !isDown(f) {
			t.Error("up after calls over budget of a store that had answered")
		}
		if line := log.String(); !strings.Contains(line, "raise FailoverOptions.Budget") {
			t.Errorf("the log is %q, want it to say what to do if the store is only slow", line)
		}

		// A client that is refused connections tries again until the budget
		// ends, and says only now and then why.
		log.Reset()
		store = newFaulty()
		f = ratelimit.NewFailover(store, options)
		crowd(f)
		store.fail(func(context.Context) error { return errors.New("connection refused") })
		takeOne(t, f, p, "org")
		store.fail(hang(t))
		if crowd(f); !isDown(f) {
			t.Error("up after errors and calls over budget")
		}
		if line := log.String(); !strings.Contains(line, "connection refused") || strings.Contains(line, "raise") {
			t.Errorf("the log is %q, want the store's own error and no advice", line)
		}

		store = newFaulty()
		store.fail(hang(t))
		f = ratelimit.NewFailover(store, options)
		for range 20 { // a second
			takeOne(t, f, p, "org")
		}
		if isDown(f) {
			t.Error("down within the first second")
		}
		for range 4 { // the last call of the second was the first failure
			takeOne(t, f, p, "org")
		}
		if !isDown(f) {
			t.Error("up after more than a second without an answer")
		}

		store = newFaulty()
		store.fail(refuse)
		f = ratelimit.NewFailover(store, options)
		if crowd(f); !isDown(f) {
			t.Error("up after errors at once")
		}
	})
}

func TestFailoverCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		charges := []ratelimit.Charge{{Policy: mode("local", ratelimit.Local), Bucket: "org", Cost: 1}}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			began := time.Now()
			if _, err := f.Take(ctx, charges); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "unavailable") {
				t.Fatalf("error %v, want the caller's own", err)
			}
			if took := time.Since(began); took != 10*time.Millisecond {
				t.Errorf("took %v, want 10 ms", took)
			}
			cancel()
		}
		if isDown(f) || fallbacks(f) != 0 {
			t.Errorf("down %v after callers left, %d fallbacks", isDown(f), fallbacks(f))
		}

		// A caller who leaves during the probe does not leave the breaker
		// without one.
		store.fail(refuse)
		for range 5 {
			takeOne(t, f, charges[0].Policy, "other")
		}
		time.Sleep(time.Second)
		store.fail(hang(t))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		f.Take(ctx, charges)
		store.mend()
		time.Sleep(2 * time.Second)
		takeOne(t, f, charges[0].Policy, "other")
		if isDown(f) {
			t.Error("no probe after one whose caller left")
		}
	})
}

func TestFailoverErrCostIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(func(context.Context) error { return ratelimit.ErrCost }) // its plan is not ours
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		charges := []ratelimit.Charge{{Policy: mode("open", ratelimit.Open), Bucket: "org", Cost: 1}}
		for range 10 {
			if _, err := f.Take(context.Background(), charges); !errors.Is(err, ratelimit.ErrCost) {
				t.Fatalf("error %v, want ErrCost", err)
			}
		}
		if isDown(f) {
			t.Error("ErrCost opened the breaker")
		}

		// Also while the breaker is open, in every mode.
		store.fail(refuse)
		for range 10 {
			f.Take(context.Background(), charges)
		}
		for _, m := range []ratelimit.FailureMode{ratelimit.Local, ratelimit.Open, ratelimit.Closed} {
			charges[0] = ratelimit.Charge{Policy: mode("p", m), Bucket: "org", Cost: 3}
			if _, err := f.Take(context.Background(), charges); !errors.Is(err, ratelimit.ErrCost) {
				t.Errorf("mode %d: error %v, want ErrCost", m, err)
			}
		}
	})
}

func TestFailoverPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(func(context.Context) error { panic("index out of range") })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		if d := takeOne(t, f, mode("local", ratelimit.Local), "org"); !d.Allowed {
			t.Errorf("%+v, want it decided locally", d)
		}
		_, err := f.Take(context.Background(), []ratelimit.Charge{{Policy: mode("closed", ratelimit.Closed), Cost: 1}})
		if want := `ratelimit: store unavailable: policy "closed": ratelimit: store panicked: index out of range`; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

// A late store has its own copy of the charges: the caller has reused the
// slice.
func TestFailoverCopiesTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		store.fail(func(context.Context) error { time.Sleep(time.Second); return nil })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("local", ratelimit.Local)
		charges := []ratelimit.Charge{{Policy: p, Bucket: "org", Cost: 1}}
		f.Take(t.Context(), charges)
		charges[0] = ratelimit.Charge{}
		time.Sleep(2 * time.Second)
		if got := take(t, store.Store, ratelimit.Charge{Policy: p, Bucket: "org"}).States[0].Remaining; got != 1 {
			t.Errorf("%d of 2 remain after a late charge of 1", got)
		}
	})
}

func TestNewFailoverPanics(t *testing.T) {
	for name, build := range map[string]func(){
		"nil":    func() { ratelimit.NewFailover(nil, ratelimit.FailoverOptions{}) },
		"nil *T": func() { ratelimit.NewFailover((*ratelimit.Memory)(nil), ratelimit.FailoverOptions{}) },
		"budget": func() { ratelimit.NewFailover(newFaulty(), ratelimit.FailoverOptions{Budget: -1}) },
	} {
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.HasPrefix(v, "ratelimit: NewFailover: ") {
					t.Errorf("%s: panics with %q", name, v)
				}
			}()
			build()
		}()
	}
}

// TestFailoverOptions: each option has an effect.
func TestFailoverOptions(t *testing.T) {
	seen := func(set func(*ratelimit.FailoverOptions)) (text string) {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			o := ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			set(&o)
			s := newFaulty()
			s.fail(func(context.Context) error { time.Sleep(2010 * time.Millisecond); return errRefused })
			f := ratelimit.NewFailover(s, o)
			begun := time.Now()
			for range 60 {
				d, err := f.Take(t.Context(), []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.MustParse("1-H")}, Bucket: "a", Cost: 1}})
				text += fmt.Sprintln(time.Since(begun), d.Allowed, err, s.calls.Load())
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(time.Minute) // until all calls have ended
			text += log.String()
		})
		return text
	}
	everyOption(t, seen, map[string]func(*ratelimit.FailoverOptions){
		"Budget": func(o *ratelimit.FailoverOptions) { o.Budget = time.Second },
		"Logger": func(o *ratelimit.FailoverOptions) { o.Logger = slog.New(slog.DiscardHandler) },
	})
}

// everyOption fails for a row that changes nothing of what is seen, and for a
// field without a row.
func everyOption[O any](t *testing.T, seen func(set func(*O)) string, rows map[string]func(*O)) {
	t.Helper()
	usual := seen(func(*O) {})
	if again := seen(func(*O) {}); again != usual {
		t.Fatalf("without a change: got %s and %s", usual, again)
	}
	fields := reflect.TypeFor[O]()
	for _, field := range reflect.VisibleFields(fields) {
		set := rows[field.Name]
		if set == nil {
			t.Errorf("no row says what %s.%s does", fields, field.Name)
		} else if seen(set) == usual {
			t.Errorf("%s.%s has no effect", fields, field.Name)
		}
	}
	if len(rows) > fields.NumField() {
		t.Errorf("%d rows for %d fields", len(rows), fields.NumField())
	}
}

// isDown and fallbacks are the two figures of Stats.
func isDown(s interface{ Stats() (bool, int64) }) bool {
	down, _ := s.Stats()
	return down
}

func fallbacks(s interface{ Stats() (bool, int64) }) int64 {
	_, n := s.Stats()
	return n
}
