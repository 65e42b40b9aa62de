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

// Each question to the store is told of; an answer from
// memory is none, nor is a question that was not put.
func TestObserveCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := keystore.NewCached(f, keystore.CacheOptions{})
		var told []string
		c.ObserveCalls(func(context.Context, string, time.Duration, bool) { t.Error("one that was replaced is told") })
		c.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
			told = append(told, fmt.Sprint(ctx.Value(observed{}), call, took, answered))
		})
		ctx := context.WithValue(t.Context(), observed{}, "value ")
		d := f.add(t)
		f.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			time.Sleep(10 * time.Millisecond)
			return f.Store.Lookup(ctx, d)
		})
		c.Lookup(ctx, d)
		c.Lookup(ctx, d)
		c.Lookup(ctx, unknown(1))
		release := make(chan struct{})
		defer close(release)
		f.lookup.set(hang(f, release))
		c.Lookup(ctx, unknown(2))
		want := "value lookup10ms true, value lookup10ms true, value lookup2s false"
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
