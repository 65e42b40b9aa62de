package keystore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

type observed struct{} // of a context

// Each question to the store is told of; an answer from memory is none, nor is
// a question that was not put. A panic of who is told changes nothing.
func TestObserveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var log logged
		c := keystore.NewCached(f, keystore.CacheOptions{Logger: log.logger()})
		var told []string
		c.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
		c.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(ctx.Value(observed{}), call, took, answered))
			panic("told")
		})
		ctx := context.WithValue(t.Context(), observed{}, "value ")
		d := f.add(t)
		f.slow(10 * time.Millisecond)
		for range 2 {
			if _, err := c.Lookup(ctx, d); err != nil {
				t.Error(err)
			}
		}
		c.Lookup(ctx, unknown(1))
		release := make(chan struct{})
		defer close(release)
		f.lookup.set(hang(f, release))
		c.Lookup(ctx, unknown(2))
		want := "value lookup10ms true, value lookup10ms true, value lookup2s false"
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if n := strings.Count(log.String(), "the observer of calls panicked"); n != len(told) {
			t.Errorf("%d panics, of which %d are logged", len(told), n)
		}
	})
}
