package ratelimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// Each call of the store is told of and traced with what the store does for it,
// also where no request waits; a decision without it is none.
func TestObservedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type traced struct{}
		store, f := failing(func(ctx context.Context) error {
			if got := ctx.Value(traced{}); got != "take" {
				t.Errorf("the store is called within %v", got)
			}
			return nil
		})
		var told []string
		f.ObserveCalls(func(_ context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(call, " ", took, " ", answered))
		})
		f.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
			return context.WithValue(ctx, traced{}, call), func(err error) { told = append(told, fmt.Sprint(err)) }
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
		synctest.Wait()
		take(1)
		want := "take 0s true, <nil>, take 50ms false, " + context.DeadlineExceeded.Error() +
			strings.Repeat(", take 0s false, "+errRefused.Error(), 5) + strings.Repeat(", take 0s true, <nil>", 2)
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
