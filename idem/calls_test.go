package idem_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
)

// Claims and settlements are told of; those of a Memory are not. A panic of who
// is told changes nothing.
func TestObserveCalls(t *testing.T) {
	slow := func(context.Context) error { time.Sleep(time.Second); return nil }
	for name, tt := range map[string]struct {
		store func(*idemtest.Faulty) idem.Store
		join  bool
		want  string
	}{
		"memory": {func(*idemtest.Faulty) idem.Store { return newMemory() }, false, ""},
		"leases": {func(f *idemtest.Faulty) idem.Store {
			f.Next(idemtest.Begin, idemtest.Hang)
			return f
		}, false, "begin 2s false, settle 0s true, begin 0s true, settle 0s true"},
		"joined": {func(*idemtest.Faulty) idem.Store {
			j := newJoiner()
			j.onJoin, j.onSettle = slow, func(idem.Settlement) error { return slow(nil) }
			return j
		}, true, "begin 1s true, settle 1s true, begin 1s true, settle 1s true"},
		"joined, refused": {func(*idemtest.Faulty) idem.Store { // the fault of a request, then the store's
			j, faults := newJoiner(), []error{idem.ErrBroken, idem.ErrCommitUnknown}
			j.onSettle = func(idem.Settlement) (err error) {
				err, faults = fmt.Errorf("refused: %w", faults[0]), faults[1:]
				return err
			}
			return j
		}, true, "begin 0s true, settle 0s true, begin 0s true, settle 0s false"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, log := logged(tt.store(idemtest.NewFaulty(newMemory())), idem.Options{Join: tt.join})
				var mu sync.Mutex
				var told []string
				r.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
				r.ObserveCalls(func(_ context.Context, call string, took time.Duration, answered bool) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, fmt.Sprint(call, " ", took, answered))
					panic("told")
				})
				for i := range 2 {
					if _, e, err := r.Begin(t.Context(), numberedRequest(i), nil); err == nil {
						e.Settle(t.Context(), answer("created"))
					}
					synctest.Wait()
				}
				if n := strings.Count(log.String(), "the observer of calls panicked"); n != len(told) {
					t.Errorf("%d panics, of which %d are logged", len(told), n)
				}
				// A claim that failed is undone, more than once.
				if text := strings.Join(slices.Compact(told), ", "); text != tt.want {
					t.Errorf("got %q, want %q", text, tt.want)
				}
			})
		})
	}
}

// ending is a transaction that tells of its Settle.
type ending struct {
	idem.Transaction
	ends func(context.Context)
}

func (e ending) Settle(ctx context.Context, s idem.Settlement) error {
	e.ends(ctx)
	return e.Transaction.Settle(ctx, s)
}

// Claims, settlements and waits are traced, with leases and joined, and what the
// store does is part of them. Renewals are not. A store in memory has waits alone.
func TestTraceCalls(t *testing.T) {
	type traced struct{}
	within := func(t *testing.T, ctx context.Context, want string) {
		t.Helper()
		if got := ctx.Value(traced{}); got != want {
			t.Errorf("the store is called within %v, want %v", got, want)
		}
	}
	for name, tt := range map[string]struct {
		store func(t *testing.T) idem.Store
		join  bool
		want  string
	}{
		"memory": {func(*testing.T) idem.Store { return newMemory() }, false, "wait <nil>"},
		"leases": {func(t *testing.T) idem.Store {
			m := newMemory()
			return &stub{Store: m, begin: func(ctx context.Context, c idem.Claim) (idem.Record, error) {
				within(t, ctx, "begin")
				return m.Begin(ctx, c)
			}, settle: func(ctx context.Context, token idem.ClaimToken) error {
				within(t, ctx, "settle")
				return m.Settle(ctx, request.Key, token, idem.Settlement{Retention: time.Hour})
			}}
		}, false, "begin <nil>, settle <nil>, wait <nil>"},
		"joined": {func(t *testing.T) idem.Store {
			j := newJoiner()
			return &stub{Store: j, join: func(ctx context.Context, c idem.Claim) (idem.Record, idem.Transaction, error) {
				within(t, ctx, "begin")
				record, x, err := j.Join(ctx, c, 0)
				return record, ending{x, func(ctx context.Context) { within(t, ctx, "settle") }}, err
			}}
		}, true, "begin <nil>, settle <nil>, wait <nil>"},
		"away": {func(*testing.T) idem.Store {
			f := idemtest.NewFaulty(newMemory())
			f.Next(idemtest.Begin, idemtest.Fail)
			return f
		}, false, "begin idemtest: injected fault, settle <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRunner(tt.store(t), idem.Options{Join: tt.join})
				var mu sync.Mutex
				var told []string
				r.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
					return context.WithValue(ctx, traced{}, call), func(err error) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, fmt.Sprint(call, " ", err))
					}
				})
				if _, e, err := r.Begin(t.Context(), request, nil); err == nil {
					repeat := begin(t.Context(), r, request)
					time.Sleep(6 * time.Second) // a renewal later
					mustSettle(t, e, answer("created"))
					<-repeat
				}
				synctest.Wait()
				if got := strings.Join(told, ", "); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}
