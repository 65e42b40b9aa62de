package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestCacheStats(t *testing.T) {
	f, c := newCached(keystore.CacheOptions{})
	known, _ := issue(t, issuing.New(f, issuing.Options{}), grant())
	token := parse(t, keystore.Service{}, known)
	look := func(token string) { c.Lookup(t.Context(), keystore.DigestOf(token)) }
	token.Remembered(c, nil) // is no hit
	for range 2 {
		look(known)
	}
	token.Lookup(t.Context(), c)
	token.Remembered(c, nil)
	look("unknown")
	look("unknown")
	f.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("down") })
	look("another")
	want := keystore.CacheStats{Usable: 1, Hits: 4, Asked: 3, Failed: 1, NeedsRun: true, MaxStaleness: 30 * time.Second}
	if got := c.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
		issuer := issuing.New(c, issuing.Options{})
		now := time.Now()
		for _, expires := range []time.Time{{}, now.Add(time.Hour), now.Add(2 * time.Hour), now.Add(48 * time.Hour)} {
			g := grant()
			g.ExpiresAt = expires
			secret, k := issue(t, issuer, g)
			child, _, err := issuer.Delegate(t.Context(), keystore.Key{Organization: "acme", Parent: k.ID,
				ExpiresAt: now.Add(time.Minute)})
			must(t, err)
			for _, s := range []string{secret, child.Reveal()} {
				want(t, c, keystore.DigestOf(s), nil, "a key")
			}
		}
		if day, minute := c.Expiring(24*time.Hour), c.Expiring(time.Minute); day != 2 || minute != 0 {
			t.Errorf("%d keys expire within a day and %d within a minute, want 2 and none", day, minute)
		}
		time.Sleep(time.Hour)
		if n := c.Expiring(24 * time.Hour); n != 1 {
			t.Errorf("%d keys that may be used expire within a day, want 1 after the other has expired", n)
		}
	})
}

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

// A question to the store is traced, with what the store does for it; so is the
// wait for another one's question. An answer from memory is not.
func TestTraceCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := newCached(keystore.CacheOptions{Logger: slog.New(slog.DiscardHandler)})
		var mu sync.Mutex
		var told []string
		c.TraceCalls(func(ctx context.Context, call string) (context.Context, func(error)) {
			return context.WithValue(ctx, observed{}, call), func(err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprint(call, " ", err))
			}
		})
		away := errors.New("away")
		refused := unknown(2)
		f.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
			if got := ctx.Value(observed{}); got != "lookup" {
				t.Errorf("the store is asked within %v", got)
			}
			if time.Sleep(time.Second); d == refused {
				return nil, away
			}
			return f.Store.Lookup(ctx, d)
		})
		d := f.add(t)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { want(t, c, d, nil, "a key") })
		}
		both.Wait()
		want(t, c, d, nil, "a key that is remembered")
		want(t, c, unknown(1), keystore.ErrNotFound, "an unknown token")
		want(t, c, refused, away, "a store that is away")
		for i := range 64 {
			both.Go(func() { c.Lookup(t.Context(), unknown(3+i)) })
		}
		synctest.Wait()
		before := len(told)
		want(t, c, unknown(100), keystore.ErrOverloaded, "one question too many")
		mu.Lock()
		got := fmt.Sprint(told)
		mu.Unlock()
		wanted := "[lookup <nil> wait <nil> lookup <nil> lookup away lookup " + keystore.ErrOverloaded.Error() + "]"
		if before != 4 || got != wanted {
			t.Errorf("got %s, want %s", got, wanted)
		}
		both.Wait()
	})
}
