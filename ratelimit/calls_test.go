package ratelimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Each call of the store is told of; a decision without it is none. Also where
// no request waits, a panic of who is told changes nothing.
func TestObserveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		var log strings.Builder
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		var told []string
		f.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
		f.ObserveCalls(func(_ context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(call, " ", took, answered))
			panic("told")
		})
		take := func(times int) {
			for range times {
				f.Take(t.Context(), []ratelimit.Charge{{Policy: mode("open", ratelimit.Open), Cost: 1}})
			}
		}
		take(1)
		store.fail(hang(t))
		take(1)
		store.fail(refuse)
		take(20)
		time.Sleep(1300 * time.Millisecond) // one probe
		store.mend()
		time.Sleep(1300 * time.Millisecond)
		take(1)
		want := "take 0s true, take 50ms false" + strings.Repeat(", take 0s false", 5) + strings.Repeat(", take 0s true", 2)
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if n := strings.Count(log.String(), "the observer of calls panicked"); n != len(told) {
			t.Errorf("%d panics, of which %d are logged", len(told), n)
		}
	})
}

// A call is traced with what the store does for it, and its end with the error.
func TestTraceCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type traced struct{}
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		var told []string
		f.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
			return context.WithValue(ctx, traced{}, call), func(err error) { told = append(told, fmt.Sprint(call, " ", err)) }
		})
		for _, fault := range []func(context.Context) error{
			func(ctx context.Context) error {
				if got := ctx.Value(traced{}); got != "take" {
					t.Errorf("the store is called within %v", got)
				}
				return nil
			},
			refuse,
			hang(t),
		} {
			store.fail(fault)
			f.Take(t.Context(), []ratelimit.Charge{{Policy: mode("open", ratelimit.Open), Cost: 1}})
		}
		want := fmt.Sprintf("[take <nil> take %v take %v]", errRefused, context.DeadlineExceeded)
		if got := fmt.Sprint(told); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
