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

// Each call of the store is told of; a decision without it
// is none.
func TestObserveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty()
		f := ratelimit.NewFailover(store, ratelimit.FailoverOptions{Logger: discard})
		var told []string
		f.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
		f.ObserveCalls(func(_ context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(call, " ", took, answered))
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
		want := "take 0s true, take 50ms false" + strings.Repeat(", take 0s false", 4)
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
