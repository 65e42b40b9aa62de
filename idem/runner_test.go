package idem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

var quiet = slog.New(slog.DiscardHandler)

// noWait is an Options.Wait for repeats that do not wait.
const noWait = -1

func newMemory() *idem.Memory { return &idem.Memory{Logger: quiet} }

func newRunner(s idem.Store, o idem.Options) *idem.Runner {
	o.Logger = quiet
	return idem.NewRunner(s, o)
}

// request is the request that the tests send again and again; other is another
// one with the same key. The Runner overwrites what is not its caller's to say.
var (
	request = idem.Claim{
		Key: idem.NewKey("organization", "key"), Tenant: "organization", Fingerprint: [32]byte{1},
		Token: idem.ClaimToken{1}, Lease: 1, Retention: 1, Reexecute: true,
	}
	other = idem.Claim{Key: request.Key, Tenant: request.Tenant, Fingerprint: [32]byte{2}}
)

func numberedRequest(n int) idem.Claim {
	return idem.Claim{Key: numbered(uint64(n)), Tenant: request.Tenant, Fingerprint: request.Fingerprint}
}

// stub is a Store, and a Joiner, whose methods are those that a test gives. It is
// for answers, and for a test that looks at calls; a Faulty has the faults.
type stub struct {
	idem.Store
	begin  func(context.Context, idem.Claim) (idem.Record, error)
	settle func(context.Context, idem.ClaimToken) error
	join   func(context.Context, idem.Claim) (idem.Record, idem.Transaction, error)
}

func (s *stub) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	if s.begin != nil {
		return s.begin(ctx, c)
	}
	return s.Store.Begin(ctx, c)
}

func (s *stub) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, o idem.Settlement) error {
	if s.settle != nil {
		return s.settle(ctx, token)
	}
	return s.Store.Settle(ctx, key, token, o)
}

func (s *stub) Join(ctx context.Context, c idem.Claim, _ time.Duration) (idem.Record, idem.Transaction, error) {
	return s.join(ctx, c)
}

func answer(payload string) idem.Settlement {
	return idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(payload)}
}

var (
	freed   = idem.Settlement{Outcome: idem.OutcomeFree, Retention: 24 * time.Hour}
	unknown = idem.Settlement{Outcome: idem.OutcomeUnknown}
)

// mustRun begins the request and wants to run it, for the first time.
func mustRun(t *testing.T, r *idem.Runner, req idem.Claim) *idem.Execution {
	t.Helper()
	return mustRunAs(t, r, req, 1)
}

func mustRunAs(t *testing.T, r *idem.Runner, req idem.Claim, attempt int) *idem.Execution {
	t.Helper()
	record, e, err := r.Begin(t.Context(), req, nil)
	if err != nil || e == nil || record.State != idem.Claimed || record.Attempt != attempt {
		t.Fatalf("Begin: got %v, attempt %d, error %v, want an execution as attempt %d",
			record.State, record.Attempt, err, attempt)
	}
	return e
}

// mustGet begins the request and wants a record of that state.
func mustGet(t *testing.T, r *idem.Runner, req idem.Claim, want idem.State) idem.Record {
	t.Helper()
	record, e, err := r.Begin(t.Context(), req, nil)
	if err != nil || e != nil || record.State != want {
		t.Fatalf("Begin: got %v, an execution %t, error %v, want %v", record.State, e != nil, err, want)
	}
	return record
}

func mustReplay(t *testing.T, r *idem.Runner, req idem.Claim, payload string) {
	t.Helper()
	if got := mustGet(t, r, req, idem.Done); string(got.Payload) != payload || !got.Retained {
		t.Fatalf("Begin: got payload %q, retained %t, want %q", got.Payload, got.Retained, payload)
	}
}

func mustRefuse(t *testing.T, r *idem.Runner, req idem.Claim, want error) {
	t.Helper()
	record, e, err := r.Begin(t.Context(), req, nil)
	if !errors.Is(err, want) || e != nil {
		t.Fatalf("Begin: got %v, an execution %t, error %v, want error %v", record.State, e != nil, err, want)
	}
	first := record.Fingerprint
	if known := first == request.Fingerprint || first == other.Fingerprint; want == idem.ErrMismatch && !known ||
		first == req.Fingerprint {
		t.Errorf("Begin: got fingerprint %x with %v, want that of the first request", first, err)
	}
}

func mustSettle(t *testing.T, e *idem.Execution, s idem.Settlement) {
	t.Helper()
	if err := e.Settle(t.Context(), s); err != nil {
		t.Errorf("Settle: got error %v", err)
	}
}

// mustCall wants that many calls of a method while the time passes.
func mustCall(t *testing.T, f *idemtest.Faulty, op idemtest.Op, d time.Duration, least, most int) {
	t.Helper()
	before := f.Calls(op)
	time.Sleep(d)
	synctest.Wait()
	if n := f.Calls(op) - before; n < least || n > most {
		t.Errorf("method %d was called %d times in %v, want %d to %d", op, n, d, least, most)
	}
}

// logged returns a Runner, and what it logs.
func logged(s idem.Store, o idem.Options) (*idem.Runner, *strings.Builder) {
	log := new(strings.Builder)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	return idem.NewRunner(s, o), log
}

// mustBeIdle wants a Runner without executions, waiters and settlements.
func mustBeIdle(t *testing.T, r *idem.Runner) {
	t.Helper()
	if s := r.Stats(); s.Executions != 0 || s.Waiters != 0 || s.Unsaved != 0 {
		t.Errorf("got %+v, want an idle Runner", s)
	}
}

// mustRest waits until the Runner is idle.
func mustRest(t *testing.T, r *idem.Runner) {
	t.Helper()
	if err := r.WaitSettled(t.Context()); err != nil {
		t.Error(err)
	}
	mustBeIdle(t, r)
}

// remote hides from the Runner that the store answers at once.
type remote struct{ idem.Store }

// both runs a test on a store that answers at once and on one that is called in
// goroutines.
func both(t *testing.T, test func(t *testing.T, s idem.Store)) {
	for name, s := range map[string]idem.Store{"at-once": newMemory(), "remote": remote{newMemory()}} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, s) }) })
	}
}

func TestRetention(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		r := newRunner(s, idem.Options{Retention: time.Hour})
		mustSettle(t, mustRun(t, r, request), answer("created"))
		long := request
		long.Key = numbered(1)
		settlement := answer("created")
		settlement.Retention = 2 * time.Hour
		mustSettle(t, mustRun(t, r, long), settlement)

		settlement.Retention = 1
		mustSettle(t, mustRun(t, r, numberedRequest(2)), settlement)
		time.Sleep(time.Nanosecond)
		mustSettle(t, mustRun(t, r, numberedRequest(2)), freed)

		time.Sleep(time.Hour - 2*time.Nanosecond)
		mustReplay(t, r, request, "created")
		time.Sleep(time.Nanosecond)
		mustSettle(t, mustRun(t, r, request), freed)
		mustReplay(t, r, long, "created")
		time.Sleep(time.Hour)
		mustSettle(t, mustRun(t, r, long), freed)
	})
}

func TestOutcomes(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		r := newRunner(s, idem.Options{})
		mustSettle(t, mustRun(t, r, request), freed)
		mustSettle(t, mustRun(t, r, other), unknown)
		for range 2 {
			mustGet(t, r, other, idem.Unknown)
		}
		mustRefuse(t, r, request, idem.ErrMismatch)

		// A value that does not exist must not be taken for one that frees the
		// key.
		odd := numberedRequest(1)
		mustSettle(t, mustRun(t, r, odd), idem.Settlement{Outcome: 77})
		mustGet(t, r, odd, idem.Unknown)
		mustBeIdle(t, r)
	})
}

// Outside a bubble the goroutines run at once, which is what the race detector
// needs.
func TestManyAtOnceInParallel(t *testing.T) {
	for _, s := range []idem.Store{newMemory(), remote{newMemory()}} {
		r := newRunner(s, idem.Options{})
		for key := range 20 {
			var runs atomic.Int64
			start := make(chan struct{})
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					<-start
					record, e, err := r.Begin(t.Context(), numberedRequest(key), nil)
					switch {
					case e != nil:
						runs.Add(1)
						mustSettle(t, e, answer("created"))
					case err != nil || record.State != idem.Done:
						t.Errorf("Begin: got %v, error %v, want a replay", record.State, err)
					}
				})
			}
			close(start)
			wg.Wait()
			if runs.Load() != 1 {
				t.Errorf("got %d runs, want 1", runs.Load())
			}
		}
		mustBeIdle(t, r)
	}
}

func TestBeginOfOneWhoLeft(t *testing.T) {
	faulty(t, idem.Options{}, func(t *testing.T, f *idemtest.Faulty, r *idem.Runner) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, e, err := r.Begin(ctx, request, nil); e != nil || err != context.Canceled {
			t.Errorf("got an execution %t and error %v, want context.Canceled", e != nil, err)
		}
		if n := f.Calls(idemtest.Begin); n != 0 {
			t.Errorf("the store was asked %d times, want 0", n)
		}
		mustBeIdle(t, r)
	})
}

func TestContextOfExecution(t *testing.T) {
	both(t, func(t *testing.T, s idem.Store) {
		type name struct{}
		e := mustRun(t, newRunner(s, idem.Options{}), request)
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "value"))
		defer cancel()
		one, two := e.Context(parent), e.Context(parent)
		three := e.Context(two)
		for _, ctx := range []context.Context{one, two, three} {
			if ctx.Err() != nil || ctx.Value(name{}) != "value" {
				t.Errorf("got error %v and value %v, want a live context with the parent's values", ctx.Err(), ctx.Value(name{}))
			}
		}
		mustSettle(t, e, answer("created"))
		for _, ctx := range []context.Context{one, two, three, e.Context(three)} {
			if context.Cause(ctx) != context.Canceled {
				t.Errorf("after Settle: got cause %v, want context.Canceled", context.Cause(ctx))
			}
		}
	})
}

func TestNewRunnerPanics(t *testing.T) {
	for name, make := range map[string]func(){
		"no store":                         func() { idem.NewRunner(nil, idem.Options{}) },
		"a nil pointer to a store":         func() { idem.NewRunner((*idem.Memory)(nil), idem.Options{}) },
		"join with a store that cannot":    func() { idem.NewRunner(newMemory(), idem.Options{Join: true}) },
		"negative lease":                   func() { idem.NewRunner(newMemory(), idem.Options{Lease: -1}) },
		"a Seal without keys":              func() { idem.NewRunner(newMemory(), idem.Options{Seal: new(idem.Seal)}) },
		"negative timeout":                 func() { idem.NewRunner(newMemory(), idem.Options{Timeout: -1}) },
		"negative limit":                   func() { idem.NewRunner(newMemory(), idem.Options{ExecutionsPerTenant: -1}) },
		"retention shorter than the lease": func() { idem.NewRunner(newMemory(), idem.Options{Retention: time.Second}) },
		"": func() { // the lease may be as long as the retention
			idem.NewRunner(newMemory(), idem.Options{Lease: time.Minute, Retention: time.Minute})
		},
	} {
		func() {
			defer func() {
				if p := recover(); (p == nil) != (name == "") {
					t.Errorf("%q: got the panic %v", name, p)
				}
			}()
			make()
		}()
	}
}

// The defaults are what the documentation says.
func TestDefaults(t *testing.T) {
	want := idem.Options{
		Lease: 15 * time.Second, Retention: 24 * time.Hour, Wait: 10 * time.Second, Timeout: 2 * time.Second,
		ExecutionsPerTenant: 1024, Logger: slog.Default(),
	}
	if got := idem.NewRunner(newMemory(), idem.Options{}).Options(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// tokensOf returns a store that others may share, and the tokens of its claims.
func tokensOf() (idem.Store, *[]idem.ClaimToken) {
	s, tokens := &stub{Store: newMemory()}, new([]idem.ClaimToken)
	s.begin = func(ctx context.Context, c idem.Claim) (idem.Record, error) {
		*tokens = append(*tokens, c.Token)
		return s.Store.Begin(ctx, c)
	}
	return s, tokens
}

// A version of this package without Claim.Organization had the organization
// as the Tenant. Its records are found and erased as those of this one.
func TestTokensOfThePreviousVersion(t *testing.T) {
	store, tokens := tokensOf()
	previous, present := request, request
	present.Tenant, present.Organization = "organization in production", request.Tenant
	mustSettle(t, mustRun(t, newRunner(store, idem.Options{}), previous), answer("first"))
	mustReplay(t, newRunner(store, idem.Options{}), present, "first")
	present.Key = numbered(1)
	mustSettle(t, mustRun(t, newRunner(store, idem.Options{}), present), answer("second"))
	want := token.Prefix("organization")
	for _, token := range *tokens {
		if got := [8]byte(token[:]); got != want {
			t.Errorf("a token begins with %x, want the %x of the organization", got, want)
		}
	}
}

// Processes that share a store never choose the same token for one tenant: no
// byte behind its prefix is anything but random.
func TestTokensAreRandom(t *testing.T) {
	store, tokens := tokensOf()
	r := newRunner(store, idem.Options{})
	for n := range 64 {
		mustSettle(t, mustRun(t, r, numberedRequest(n)), freed)
	}
	prefix := token.Prefix(numberedRequest(0).Tenant)
	for i := range (*tokens)[0] {
		seen := map[byte]bool{}
		for _, token := range *tokens {
			seen[token[i]] = true
		}
		if i < len(prefix) && (len(seen) != 1 || !seen[prefix[i]]) {
			t.Errorf("byte %d of the tokens is one of %v, want %d of the tenant's prefix", i, seen, prefix[i])
		}
		if i >= len(prefix) && len(seen) < 32 {
			t.Errorf("byte %d of %d tokens has %d values, want as many as random bytes have", i, len(*tokens), len(seen))
		}
	}
}

// TestOptions: each option has an effect, or is refused.
func TestOptions(t *testing.T) {
	seen := func(set func(*idem.Options)) (text string) {
		defer func() {
			if p := recover(); p != nil {
				text = fmt.Sprint("refused: ", p)
			}
		}()
		var log strings.Builder
		o := idem.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		set(&o)
		if o.Join {
			return fmt.Sprint(idem.NewRunner(newMemory(), o)) // panics
		}
		synctest.Test(t, func(t *testing.T) {
			if o.Draining != nil {
				drained := make(chan struct{})
				close(drained)
				o.Draining = drained // of this bubble
			}
			s := &stub{Store: newMemory()}
			s.begin = func(ctx context.Context, c idem.Claim) (idem.Record, error) {
				text += fmt.Sprintln("begin", c.Lease, c.Retention, c.Reexecute)
				return s.Store.Begin(ctx, c)
			}
			f := idemtest.NewFaulty(s)
			r := idem.NewRunner(f, o)
			begin := func(req idem.Claim) *idem.Execution {
				begun := time.Now()
				record, e, err := r.Begin(t.Context(), req, nil)
				text += fmt.Sprintln(time.Since(begun), record.State, err != nil) // of two of the deadline, either may come
				return e
			}
			first := begin(request)
			if second := begin(numberedRequest(1)); second != nil {
				mustSettle(t, second, freed)
			}
			begin(request) // waits
			f.Next(idemtest.Settle, idemtest.Fail, idemtest.Fail, idemtest.Fail)
			_ = first.Settle(t.Context(), answer("created"))
			mustRest(t, r)
			f.Always(idemtest.Begin, idemtest.Hang)
			begin(numberedRequest(2))
			mustRest(t, r)
			stored, _ := s.Store.Begin(t.Context(), claimOf(request.Tenant, "key"))
			text += fmt.Sprint(log.Len() > 0, string(stored.Payload) == "created")
		})
		return text
	}
	optiontest.Every(t, seen, map[string]func(*idem.Options){
		"Lease":               func(o *idem.Options) { o.Lease = time.Minute },
		"Retention":           func(o *idem.Options) { o.Retention = time.Hour },
		"Wait":                func(o *idem.Options) { o.Wait = time.Second },
		"Timeout":             func(o *idem.Options) { o.Timeout = time.Second },
		"ExecutionsPerTenant": func(o *idem.Options) { o.ExecutionsPerTenant = 1 },
		"Reexecute":           func(o *idem.Options) { o.Reexecute = true },
		"Join":                func(o *idem.Options) { o.Join = true },
		"Seal":                func(o *idem.Options) { o.Seal = seal(keyA) },
		"Draining":            func(o *idem.Options) { o.Draining = make(chan struct{}) },
		"Logger":              func(o *idem.Options) { o.Logger = quiet },
	})
}

// faulty runs a test in a bubble, on a Runner of a store in memory that fails on
// command.
func faulty(t *testing.T, o idem.Options, test func(t *testing.T, f *idemtest.Faulty, r *idem.Runner)) {
	synctest.Test(t, func(t *testing.T) {
		f := idemtest.NewFaulty(newMemory())
		test(t, f, newRunner(f, o))
	})
}
