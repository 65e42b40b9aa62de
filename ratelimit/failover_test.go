package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
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

// moody is a store that does what it is told to.
type moody struct {
	ratelimit.Store
	calls atomic.Int64
	mood  atomic.Pointer[func(ctx context.Context) error] // nil: answer
}

func newMoody() *moody { return &moody{Store: ratelimit.NewMemorySize(1000)} }

func (m *moody) be(mood func(ctx context.Context) error) {
	m.mood.Store(&mood)
}

func (m *moody) recover() { m.mood.Store(nil) }

func (m *moody) Take(ctx context.Context, takes []ratelimit.Take) (ratelimit.Decision, error) {
	m.calls.Add(1)
	if mood := m.mood.Load(); mood != nil {
		if err := (*mood)(ctx); err != nil {
			return ratelimit.Decision{}, err
		}
	}
	return m.Store.Take(ctx, takes)
}

func refusing(context.Context) error { return errRefused }

// deaf returns when the test is over and not before.
func deaf(t *testing.T) func(context.Context) error {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	return func(context.Context) error { <-end; return errRefused }
}

// mode gives a policy of 2 per hour with this failure mode.
func mode(name string, m ratelimit.FailureMode) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse("2-H"), OnFailure: m}
}

var discard = slog.New(slog.DiscardHandler)

func TestFailoverBudget(t *testing.T) {
	for name, mood := range map[string]func(t *testing.T) func(context.Context) error{
		"deaf to its context": deaf,
		"waits for its context": func(*testing.T) func(context.Context) error {
			return func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMoody()
				store.be(mood(t))
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
				if n := f.Fallbacks(); n != 3 {
					t.Errorf("%d fallbacks, want 3", n)
				}
			})
		})
	}
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
		t.Run(tt.name, func(t *testing.T) {
			store := newMoody()
			store.be(refusing)
			fallback := ratelimit.NewMemorySize(1000)
			f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Local: fallback, Logger: discard})
			var takes []ratelimit.Take
			for _, p := range tt.policies {
				takes = append(takes, ratelimit.Take{Policy: p, Bucket: "org", Cost: 1})
			}
			if tt.refused {
				// Before the breaker opens and after.
				for range 10 {
					_, err := f.Take(context.Background(), takes)
					if !errors.Is(err, ratelimit.ErrUnavailable) {
						t.Fatalf("error %v, want ErrUnavailable", err)
					}
				}
				if got := take(t, fallback, ratelimit.Take{Policy: local, Bucket: "org"}).States[0].Remaining; got != 2 {
					t.Errorf("a refusal charged the local bucket: %d of 2 remain", got)
				}
				return
			}
			for i, want := range tt.allowed {
				d := take(t, f, takes...)
				if d.Allowed != want || d.Takes != len(takes) {
					t.Errorf("call %d: %+v, want Allowed %v", i, d, want)
				}
				if !want && tt.policies[d.Index].OnFailure != ratelimit.Local {
					t.Errorf("call %d: denied by %s", i, tt.policies[d.Index].Name)
				}
			}
		})
	}
}

// The error of a refusal names the cause, first the store's and then the breaker's.
func TestFailoverCause(t *testing.T) {
	store := newMoody()
	store.be(refusing)
	f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Failures: 1, Logger: discard})
	closed := []ratelimit.Take{{Policy: mode("closed", ratelimit.Closed), Bucket: "org", Cost: 1}}
	if _, err := f.Take(context.Background(), closed); !errors.Is(err, errRefused) {
		t.Errorf("error %v, want the store's in it", err)
	}
	if _, err := f.Take(context.Background(), closed); err == nil || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("error %v, want it to say that the store is left alone", err)
	}
}

func TestFailoverBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newMoody()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := &ratelimit.Policy{Name: "open", Limit: ratelimit.MustParse("2-H"), OnFailure: ratelimit.Open}
		calls := func(n int) (reached int64) {
			before := store.calls.Load()
			for range n {
				if _, err := f.Take(t.Context(), []ratelimit.Take{{Policy: p, Bucket: "org", Cost: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			return store.calls.Load() - before
		}

		// Failures that are not in a row do not open it.
		for range 10 {
			store.be(refusing)
			calls(4)
			store.recover()
			calls(1)
		}
		if f.Down() || log.Len() > 0 {
			t.Errorf("open after 4 failures in a row; log %q", log.String())
		}

		store.be(refusing)
		if n := calls(1000); n != 5 || !f.Down() {
			t.Errorf("%d calls of a store that fails, want 5; down %v", n, f.Down())
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

		// Back again: however many ask at that moment, one is the probe.
		gate := make(chan struct{})
		store.be(func(context.Context) error { <-gate; return nil })
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
		if f.Down() {
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

// Calls that have returned make room for more.
func TestFailoverKeepsCalling(t *testing.T) {
	store := newMoody()
	f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
	p := policy("live", "1000000-S")
	for range 3000 {
		takeOne(t, f, p, "org")
	}
	if n := store.calls.Load(); n != 3000 || f.Fallbacks() != 0 {
		t.Errorf("%d of 3000 calls reached the store, %d did not", n, f.Fallbacks())
	}
}

// A store that never returns does not gather goroutines: not from a crowd that
// arrives before the breaker opens, and not from a day of probes.
func TestFailoverGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMoody()
		store.be(deaf(t))
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("open", ratelimit.Open)
		before := runtime.NumGoroutine()
		var wg sync.WaitGroup
		for range 5000 {
			wg.Go(func() { takeOne(t, f, p, "org") })
		}
		wg.Wait()
		crowd := runtime.NumGoroutine() - before
		if crowd > 1100 {
			t.Errorf("%d goroutines hang after a crowd of 5000", crowd)
		}
		for range 24 * 60 * 60 {
			time.Sleep(time.Second)
			takeOne(t, f, p, "org")
		}
		if more := runtime.NumGoroutine() - before - crowd; more < 5 || more > 20 {
			t.Errorf("%d probes hang after a day, want a dozen or so", more)
		}
	})
}

// A probe that hung and came back makes room for the next one at the usual pace.
func TestFailoverRecoversFromHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMoody()
		store.be(func(context.Context) error { time.Sleep(10 * time.Second); return errRefused })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("open", ratelimit.Open)
		for range 100 {
			takeOne(t, f, p, "org")
			time.Sleep(time.Second)
		}
		store.recover()
		time.Sleep(20 * time.Second)
		takeOne(t, f, p, "org")
		if f.Down() {
			t.Error("still open 20 s after the store recovered")
		}
	})
}

func TestFailoverCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMoody()
		store.be(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		takes := []ratelimit.Take{{Policy: mode("local", ratelimit.Local), Bucket: "org", Cost: 1}}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			began := time.Now()
			if _, err := f.Take(ctx, takes); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrUnavailable) {
				t.Fatalf("error %v, want the caller's own", err)
			}
			if took := time.Since(began); took != 10*time.Millisecond {
				t.Errorf("took %v, want 10 ms", took)
			}
			cancel()
		}
		if f.Down() || f.Fallbacks() != 0 {
			t.Errorf("down %v after callers left, %d fallbacks", f.Down(), f.Fallbacks())
		}

		// A caller who leaves during the probe does not leave the breaker without one.
		store.be(refusing)
		for range 5 {
			takeOne(t, f, takes[0].Policy, "other")
		}
		time.Sleep(time.Second)
		store.be(deaf(t))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		f.Take(ctx, takes)
		store.recover()
		time.Sleep(2 * time.Second)
		takeOne(t, f, takes[0].Policy, "other")
		if f.Down() {
			t.Error("no probe after one whose caller left")
		}
	})
}

func TestFailoverErrCostIsAnAnswer(t *testing.T) {
	store := newMoody()
	store.be(func(context.Context) error { return ratelimit.ErrCost }) // its plan is not ours
	f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
	takes := []ratelimit.Take{{Policy: mode("open", ratelimit.Open), Bucket: "org", Cost: 1}}
	for range 10 {
		if _, err := f.Take(context.Background(), takes); !errors.Is(err, ratelimit.ErrCost) {
			t.Fatalf("error %v, want ErrCost", err)
		}
	}
	if f.Down() {
		t.Error("ErrCost opened the breaker")
	}

	// While it is open, too, in every mode.
	store.be(refusing)
	for range 10 {
		f.Take(context.Background(), takes)
	}
	for _, m := range []ratelimit.FailureMode{ratelimit.Local, ratelimit.Open, ratelimit.Closed} {
		takes[0] = ratelimit.Take{Policy: mode("p", m), Bucket: "org", Cost: 3}
		if _, err := f.Take(context.Background(), takes); !errors.Is(err, ratelimit.ErrCost) {
			t.Errorf("mode %d: error %v, want ErrCost", m, err)
		}
	}
}

func TestFailoverPanic(t *testing.T) {
	store := newMoody()
	store.be(func(context.Context) error { panic("index out of range") })
	f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
	if d := takeOne(t, f, mode("local", ratelimit.Local), "org"); !d.Allowed {
		t.Errorf("%+v, want it decided locally", d)
	}
	_, err := f.Take(context.Background(), []ratelimit.Take{{Policy: mode("closed", ratelimit.Closed), Cost: 1}})
	if !errors.Is(err, ratelimit.ErrUnavailable) || !strings.Contains(err.Error(), "index out of range") {
		t.Errorf("error %v, want ErrUnavailable and the panic", err)
	}
}

// A store that is late works on takes of its own: the caller has reused the slice.
func TestFailoverCopiesTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMoody()
		store.be(func(context.Context) error { time.Sleep(time.Second); return nil })
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		p := mode("local", ratelimit.Local)
		takes := []ratelimit.Take{{Policy: p, Bucket: "org", Cost: 1}}
		f.Take(t.Context(), takes)
		takes[0] = ratelimit.Take{}
		time.Sleep(2 * time.Second)
		if got := take(t, store.Store, ratelimit.Take{Policy: p, Bucket: "org"}).States[0].Remaining; got != 1 {
			t.Errorf("%d of 2 remain after a late charge of 1", got)
		}
	})
}

func TestNewFailoverPanics(t *testing.T) {
	for name, build := range map[string]func(){
		"nil":      func() { ratelimit.NewFailover(nil, ratelimit.FailoverOptions{}) },
		"budget":   func() { ratelimit.NewFailover(newMoody(), ratelimit.FailoverOptions{Budget: -1}) },
		"failures": func() { ratelimit.NewFailover(newMoody(), ratelimit.FailoverOptions{Failures: -1}) },
		"cooldown": func() { ratelimit.NewFailover(newMoody(), ratelimit.FailoverOptions{Cooldown: -1}) },
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
