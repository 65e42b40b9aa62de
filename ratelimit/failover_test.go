package ratelimit_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

var errRefused = errors.New("connection refused")

// faulty is a store that fails as the test says.
type faulty struct {
	ratelimit.Store
	calls atomic.Int64
	first atomic.Pointer[ratelimit.Policy]                // of the latest call
	fault atomic.Pointer[func(ctx context.Context) error] // nil: none
}

func newFaulty() *faulty { return &faulty{Store: ratelimit.NewMemorySize(1000)} }

func (f *faulty) fail(fault func(ctx context.Context) error) { f.fault.Store(&fault) }

func (f *faulty) mend() { f.fault.Store(nil) }

func (f *faulty) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	f.calls.Add(1)
	if len(charges) > 0 {
		f.first.Store(charges[0].Policy)
	}
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

// mode returns a policy of 2 per hour with this fallback.
func mode(name string, m ratelimit.Fallback) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse("2-H"), Fallback: m}
}

// failing returns a store with a fault, and a Failover in front of it.
func failing(fault func(context.Context) error) (*faulty, *ratelimit.Failover) {
	store := newFaulty()
	store.fail(fault)
	return store, ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
}

var discard = slog.New(slog.DiscardHandler)

func TestFailoverTimeout(t *testing.T) {
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
				for given, timeout := range map[time.Duration]time.Duration{0: 50 * time.Millisecond, time.Second: time.Second} {
					f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Timeout: given, Logger: discard})
					p := mode("local", ratelimit.Local)
					for i, want := range []bool{true, true, false} {
						began := time.Now()
						d := takeOne(t, f, p, "org")
						if took := time.Since(began); took != timeout {
							t.Errorf("take %d took %v, want the timeout of %v", i, took, timeout)
						}
						if d.Allowed != want {
							t.Errorf("take %d: Allowed %v, want 2 metered locally", i, d.Allowed)
						}
					}
					if n := fallbacks(f); n != 3 {
						t.Errorf("%d fallbacks, want 3", n)
					}
				}
			})
		})
	}
}

func TestFailoverModes(t *testing.T) {
	local, local2 := mode("local", ratelimit.Local), mode("local2", ratelimit.Local)
	open, closed, unknown := mode("open", ratelimit.Open), mode("closed", ratelimit.Closed), mode("unknown", 7)
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
			_, f := failing(refuse)
			fallback := &ratelimit.Memory{}
			f.Count(fallback)
			var charges []ratelimit.Charge
			for _, p := range tt.policies {
				charges = append(charges, ratelimit.Charge{Policy: p, Bucket: "org", Cost: 1})
			}
			if tt.refused {
				// The error names the cause: first the store's, then the breaker's.
				for i := range 10 {
					_, err := f.Take(context.Background(), charges)
					if err == nil || !strings.HasPrefix(err.Error(), "ratelimit: store unavailable: policy ") ||
						errors.Is(err, errRefused) != (i < 5) ||
						strings.Contains(err.Error(), "not called after failures in a row") != (i >= 5) {
						t.Fatalf("call %d: error %v, want it to say that the store is unavailable, and why", i, err)
					}
				}
				if got := left(t, fallback, local, "org"); got != 2 {
					t.Errorf("a refusal charged the local bucket: %d of 2 remain", got)
				}
				if n := f.Stats().Fallbacks; n != 10 {
					t.Errorf("after 10 errors the figure of calls without the store is %d", n)
				}
				return
			}
			for i, want := range tt.allowed {
				d := take(t, f, charges...)
				if d.Allowed != want {
					t.Errorf("call %d: %+v, want Allowed %v", i, d, want)
				}
				if !want && tt.policies[d.Limiting].Fallback != ratelimit.Local {
					t.Errorf("call %d: denied by %s", i, tt.policies[d.Limiting].Name)
				}
			}
		}
		t.Run(tt.name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// Without a Logger the lines go to slog.Default.
func TestFailoverDefaultLogger(t *testing.T) {
	var lines bytes.Buffer
	// SetDefault also changes package log, and does not change it back.
	defer log.SetOutput(log.Writer())
	defer log.SetFlags(log.Flags())
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	synctest.Test(t, func(t *testing.T) { // a call that takes long by chance is no failure at first
		store := newFaulty()
		store.fail(refuse)
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{})
		for range 5 {
			takeOne(t, f, mode("open", ratelimit.Open), "org")
		}
	})
	if !strings.Contains(lines.String(), "the counter store fails") {
		t.Errorf("the default log is %q, want a warning", lines.String())
	}
}

func TestFailoverCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := failing(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		charges := []ratelimit.Charge{{Policy: mode("local", ratelimit.Local), Bucket: "org", Cost: 1}}
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			began := time.Now()
			if _, err := f.Take(ctx, charges); !errors.Is(err, context.DeadlineExceeded) ||
				strings.Contains(err.Error(), "unavailable") {
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
		store, f := failing(func(context.Context) error { return ratelimit.ErrCost }) // its plan is not ours
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
		for _, m := range []ratelimit.Fallback{ratelimit.Local, ratelimit.Open, ratelimit.Closed} {
			charges[0] = ratelimit.Charge{Policy: mode("p", m), Bucket: "org", Cost: 3}
			if _, err := f.Take(context.Background(), charges); !errors.Is(err, ratelimit.ErrCost) {
				t.Errorf("mode %d: error %v, want ErrCost", m, err)
			}
		}
	})
}

// A store that panics, or ends its goroutine, has failed.
func TestFailoverNoReturn(t *testing.T) {
	for why, fault := range map[string]func(context.Context) error{
		"store panicked: index out of range": func(context.Context) error { panic("index out of range") },
		"store ended its goroutine":          func(context.Context) error { runtime.Goexit(); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			_, f := failing(fault)
			if d := takeOne(t, f, mode("local", ratelimit.Local), "org"); !d.Allowed {
				t.Errorf("%s: %+v, want it decided locally", why, d)
			}
			_, err := f.Take(context.Background(), []ratelimit.Charge{{Policy: mode("closed", ratelimit.Closed), Cost: 1}})
			want := `ratelimit: store unavailable: policy "closed": ratelimit: ` + why
			if err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// A late store has its own copy of the charges: the caller has reused the
// slice.
func TestFailoverCopiesTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := failing(func(context.Context) error { time.Sleep(time.Second); return nil })
		p := mode("local", ratelimit.Local)
		charges := []ratelimit.Charge{{Policy: p, Bucket: "org", Cost: 1}}
		f.Take(t.Context(), charges)
		charges[0] = ratelimit.Charge{}
		time.Sleep(2 * time.Second)
		if got := left(t, store.Store, p, "org"); got != 1 {
			t.Errorf("%d of 2 remain after a late charge of 1", got)
		}
	})
}

// isDown and fallbacks are the two figures of Stats.
func isDown(f *ratelimit.Failover) bool { return f.Stats().Down }

func fallbacks(f *ratelimit.Failover) int64 { return f.Stats().Fallbacks }

// Without its store a Failover still keeps every rule, in this process.
func TestSuite(t *testing.T) {
	for name, store := range map[string]func() ratelimit.Store{
		"Memory": func() ratelimit.Store { return &ratelimit.Memory{} },
		"Failover": func() ratelimit.Store {
			return ratelimit.NewFailover(&ratelimit.Memory{}, ratelimit.FailoverOptions{})
		},
		"without its store": func() ratelimit.Store { _, f := failing(refuse); return f },
	} {
		t.Run(name, func(t *testing.T) {
			ratelimittest.Suite{
				New:    func(*testing.T) ratelimit.Store { return store() },
				Bubble: true, Atomic: true, Smooth: true, DenialWritesNothing: true,
			}.Run(t)
		})
	}
}

// A store that is away is asked about once a second without requests, until it
// answers or the Failover is not used any more.
func TestFailoverProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, text := newFaulty(), new(bytes.Buffer)
		o := ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(text, nil))}
		f := ratelimit.NewFailover(s, o)
		away := func(f *ratelimit.Failover) {
			s.fail(refuse)
			for range 5 {
				f.Take(t.Context(), []ratelimit.Charge{{Policy: mode("open", ratelimit.Open), Cost: 1}})
			}
			if !isDown(f) {
				t.Error("after five failures the store is not down, want down")
			}
			s.calls.Store(0)
		}
		away(f)
		time.Sleep(20 * time.Second)
		if n := s.calls.Load(); n < 15 || n > 20 {
			t.Errorf("the store was asked %d times in 20 s, want about one a second", n)
		}
		if name := s.first.Load().Name; name != "probe" {
			t.Errorf("it was asked for a charge of the policy %q, want probe", name)
		}
		s.mend()
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if isDown(f) {
			t.Error("the store answers and is down without requests, want it not down")
		}
		if n := strings.Count(text.String(), "the counter store answers again"); n != 1 ||
			!strings.Contains(text.String(), "after=2") {
			t.Errorf("got the log %q, want one line with after=2…s", text)
		}
		s.calls.Store(0)
		time.Sleep(time.Minute)
		if n := s.calls.Load(); n != 0 {
			t.Errorf("after the outage the store was asked %d times, want 0", n)
		}
		away(f)
		time.Sleep(5 * time.Second)
		if s.calls.Load() == 0 {
			t.Error("in a second outage the store was not asked")
		}
		s.calls.Store(0)
		f = nil
		runtime.GC()
		time.Sleep(time.Minute)
		if n := s.calls.Load(); n > 1 {
			t.Errorf("of a Failover that is not used the store was asked %d times", n)
		}
	})
}
