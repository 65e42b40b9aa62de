package keystore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// feedFake is a fake whose feed can be replaced.
type feedFake struct {
	*fake
	polls   atomic.Int64
	changes hook[changesFunc]
}

type changesFunc = func(ctx context.Context, since string) ([]keystore.Digest, string, error)

func newFeedFake() *feedFake {
	f := &feedFake{fake: newFake()}
	f.changes.set(f.Store.Changes)
	return f
}

func failingFeed(err error) changesFunc {
	return func(context.Context, string) ([]keystore.Digest, string, error) { return nil, "", err }
}

func newFed(o keystore.CacheOptions) (*feedFake, *keystore.Cached) {
	f := newFeedFake()
	return f, keystore.NewCached(f, o)
}

func (f *feedFake) Changes(ctx context.Context, since string) ([]keystore.Digest, string, error) {
	f.polls.Add(1)
	return f.changes.get()(ctx, since)
}

// run runs c until the returned function is called.
func run(t *testing.T, c *keystore.Cached) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	synctest.Wait()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v when its context ended, want nil", err)
		}
	}
}

func TestRunWithoutFeed(t *testing.T) {
	plain := struct{ keystore.Store }{issuing.NewMemory()}
	if err := keystore.NewCached(plain, keystore.CacheOptions{}).Run(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Run returned %v, want ErrUnsupported", err)
	}
}

// Two processes with one store: what one revokes the other refuses within
// MaxStaleness, with a feed and without. A key that one makes the other accepts
// within that time of the feed or NegativeTTL, also when it was asked for it before.
func TestMaxStaleness(t *testing.T) {
	for _, c := range []struct {
		name          string
		options       keystore.CacheOptions
		feed          bool
		revoked, made time.Duration
	}{
		{"no feed", keystore.CacheOptions{TTL: 20 * time.Second}, false, 20 * time.Second, 5 * time.Second},
		{"feed", keystore.CacheOptions{NegativeTTL: time.Hour}, true, 7 * time.Second, 7 * time.Second},
		{"feed with times of its own", keystore.CacheOptions{FeedInterval: time.Second, Timeout: 500 * time.Millisecond},
			true, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{"feed slower than its interval", keystore.CacheOptions{FeedInterval: time.Second, Timeout: 4 * time.Second},
			true, 8 * time.Second, 5 * time.Second},
		{"feed slower than TTL", keystore.CacheOptions{TTL: 3 * time.Second}, true, 3 * time.Second, 5 * time.Second},
		{"feed slower than NegativeTTL", keystore.CacheOptions{NegativeTTL: time.Second}, true, 7 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, here := newFed(c.options)
				if c.feed {
					// The feed is as slow as it may be.
					store.changes.set(slowly(store.Store.Changes, cmp.Or(c.options.Timeout, 2*time.Second)))
					defer run(t, here)()
					time.Sleep(10 * time.Second)
				}
				if got := here.Stats().MaxStaleness; got != c.revoked {
					t.Errorf("MaxStaleness = %v, want %v", got, c.revoked)
				}
				// Wherever between two polls the change falls.
				for i := range 20 {
					d := store.add(t)
					time.Sleep(330 * time.Millisecond)
					want(t, here, d, nil, "a key")
					store.edit(t, d, func(k *keystore.Key) { k.RevokedAt = time.Now() })
					time.Sleep(here.Stats().MaxStaleness)
					want(t, here, d, keystore.ErrRevoked, "MaxStaleness after a revocation elsewhere")

					made := unknown(i)
					want(t, here, made, keystore.ErrNotFound, "a key that is not there yet")
					store.add(t, func(k *keystore.Key) { k.Digest = made })
					want(t, here, made, keystore.ErrNotFound, "a key that was made elsewhere, at once")
					time.Sleep(c.made)
					want(t, here, made, nil, "a key that was made elsewhere, after the bound")
				}
			})
		})
	}
}

// slowly returns a feed that answers almost too late.
func slowly(changes changesFunc, timeout time.Duration) changesFunc {
	return func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
		changed, next, err := changes(ctx, since)
		time.Sleep(timeout - time.Nanosecond)
		return changed, next, err
	}
}

// A cache that is full of keys and refusals keeps them while the feed names
// keys of which it knows nothing.
func TestFeedOfManyNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, here := newFed(keystore.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour, Size: 1})
		d := store.add(t)
		defer run(t, here)()
		want(t, here, d, nil, "a key")
		want(t, here, unknown(1), keystore.ErrNotFound, "a token without a key")
		for range 1000 {
			store.add(t)
		}
		store.calls.Store(0)
		time.Sleep(5*time.Second + time.Nanosecond)
		want(t, here, d, nil, "a key")
		want(t, here, unknown(1), keystore.ErrNotFound, "a token without a key")
		store.wantCalls(t, 0, "a poll that named 1000 keys which are not remembered")
	})
}

// Without the feed the revocation would not have been noticed for an hour.
func TestFeedForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, here := newFed(keystore.CacheOptions{TTL: time.Hour, FeedInterval: time.Second})
		early, refused, family := store.add(t), store.add(t, suspended), store.line(t, 2)
		want(t, here, early, nil, "a key that was cached before Run")
		want(t, here, refused, keystore.ErrSuspended, "a refused key")
		store.edit(t, early, suspended)
		store.edit(t, refused, func(k *keystore.Key) { k.Suspended = false })

		stop := run(t, here)
		if got := here.Stats().MaxStaleness; got != 4*time.Second { // also of a Cached as old as the first poll
			t.Errorf("MaxStaleness after the first poll = %v, want 4s", got)
		}
		want(t, here, early, keystore.ErrSuspended, "a change from before Run")
		want(t, here, refused, nil, "a key that is usable again")
		late, other := store.add(t), store.add(t)
		want(t, here, late, nil, "a key")
		want(t, here, other, nil, "another key")
		want(t, here, family[1], nil, "a child")
		store.edit(t, late, suspended)
		store.edit(t, family[0], suspended)
		store.calls.Store(0)
		time.Sleep(time.Second + time.Nanosecond)
		want(t, here, late, keystore.ErrSuspended, "a change, one interval later")
		want(t, here, family[1], keystore.ErrSuspended, "a child, whose parent alone was named")
		want(t, here, other, nil, "a key that did not change")
		store.wantCalls(t, 3, "the changed key, the child, and the other one because its insertion was news")

		time.Sleep(time.Second)
		want(t, here, other, nil, "a key that did not change")
		store.wantCalls(t, 0, "a poll without news")
		stop()
		if s := here.Stats(); s.MaxStaleness != time.Hour || !s.Polled.IsZero() {
			t.Errorf("after Run has ended got %+v, want TTL and no poll", s)
		}
	})
}

// When Run starts it forgets the answers of questions that are still open too.
func TestFeedStartForgetsOpenQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, here := newFed(keystore.CacheOptions{TTL: time.Hour})
		d := store.add(t)
		store.slow(time.Second)
		go here.Lookup(t.Context(), d)
		synctest.Wait()
		store.edit(t, d, suspended)
		defer run(t, here)()
		want(t, here, d, keystore.ErrSuspended, "a key that was being loaded when Run started")
		time.Sleep(time.Second)
		want(t, here, d, keystore.ErrSuspended, "a lookup after the old answer has arrived")
	})
}

// A feed that reads a little back names the same change at the same position
// again, which must not keep the poll busy.
func TestFeedThatRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFeedFake()
		var polled context.Context
		store.changes.set(func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
			if polled = ctx; since == "" {
				return nil, "1", nil
			}
			return []keystore.Digest{unknown(1)}, "1", nil
		})
		defer run(t, keystore.NewCached(store, keystore.CacheOptions{FeedInterval: time.Second}))()
		time.Sleep(10*time.Second + time.Nanosecond)
		if got := store.polls.Load(); got != 11 {
			t.Errorf("the feed was asked %d times in 10 s, want once a second", got)
		}
		synctest.Wait()
		if err := polled.Err(); err != context.Canceled { // so that its timer does not stay until Timeout
			t.Errorf("after the poll its context says %v, want that it is cancelled", err)
		}
	})
}

// While lookups fail, the feed is asked about once a second too.
func TestFeedDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFeedFake()
		quiet := slog.New(slog.DiscardHandler)
		here := keystore.NewCached(store, keystore.CacheOptions{FeedInterval: time.Minute, Logger: quiet})
		defer run(t, here)()
		store.lookup.set(refuseLookup)
		for range 5 {
			here.Lookup(t.Context(), unknown(0))
		}
		time.Sleep(time.Minute) // the pause that had begun before
		for _, c := range []struct {
			what        string
			lookup      lookupFunc
			least, most int64
		}{{"while lookups fail", refuseLookup, 48, 61}, {"after that", store.Store.Lookup, 1, 3}} {
			store.lookup.set(c.lookup)
			before := store.polls.Load()
			time.Sleep(time.Minute)
			if n := store.polls.Load() - before; n < c.least || n > c.most {
				t.Errorf("%s the feed was asked %d times in a minute, want %d to %d", c.what, n, c.least, c.most)
			}
		}
	})
}

// One poll reads until nothing is left: until the feed names no change, however
// few it names at a time, and whatever it calls the positions.
func TestFeedAsksUntilNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, here := newFed(keystore.CacheOptions{TTL: time.Hour, FeedInterval: time.Second})
		keys := []keystore.Digest{store.add(t), store.add(t), store.add(t)}
		// A position can move without a change, as that of a log can that
		// others write to as well.
		position := func() string { return fmt.Sprint("position ", store.polls.Load()) }
		store.changes.set(func(context.Context, string) ([]keystore.Digest, string, error) {
			return nil, position(), nil
		})
		defer run(t, here)()
		for _, d := range keys {
			want(t, here, d, nil, "a key")
			store.edit(t, d, suspended)
		}
		left := keys
		store.changes.set(func(context.Context, string) ([]keystore.Digest, string, error) {
			if len(left) == 0 {
				return nil, position(), nil
			}
			changed := left[:1]
			left = left[1:]
			return changed, position(), nil
		})
		time.Sleep(time.Second + time.Nanosecond)
		for i, d := range keys {
			want(t, here, d, keystore.ErrSuspended, fmt.Sprintf("change %d of 3, after one poll", i+1))
		}
		if got := store.polls.Load(); got != 5 {
			t.Errorf("the feed was asked %d times, want 1 at the start, 3 with a change each and 1 without", got)
		}
	})
}

func TestFeedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		store := newFeedFake()
		here := keystore.NewCached(store, keystore.CacheOptions{FeedInterval: time.Second, Logger: log.logger()})
		other := store.add(t)
		time.Sleep(time.Hour)
		polled := time.Now()
		defer run(t, here)()
		want(t, here, other, nil, "another key")
		d := store.add(t)
		want(t, here, d, nil, "a key")

		store.changes.set(failingFeed(errStoreDown))
		store.edit(t, d, suspended)
		time.Sleep(10*time.Second + time.Nanosecond)
		want(t, here, d, nil, "a change while the feed fails and TTL has not passed")
		if s := here.Stats(); s.MaxStaleness != 30*time.Second || !s.Polled.Equal(polled) {
			t.Errorf("while the feed fails got %+v, want TTL and the last poll that succeeded, %v", s, polled)
		}
		if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), errStoreDown.Error()) {
			t.Errorf("10 failed polls logged %d lines, want one with the cause: %s", got, log.String())
		}

		// It goes on where it stopped, and misses nothing.
		store.changes.set(store.Store.Changes)
		time.Sleep(time.Second)
		want(t, here, d, keystore.ErrSuspended, "a change from while the feed failed, after it is back")
		store.calls.Store(0)
		want(t, here, other, nil, "a key that did not change")
		store.wantCalls(t, 0, "a key that did not change, after the feed is back")
		if got := here.Stats().MaxStaleness; got != 4*time.Second {
			t.Errorf("MaxStaleness when the feed is back = %v, want 4s", got)
		}
		if !strings.Contains(log.String(), "back") {
			t.Errorf("the log does not say that the feed is back: %s", log.String())
		}
	})
}

// A feed that hangs, for as long as Timeout or whatever its context says, or that
// knows no position, not even the first, is not taken for one that answers, and
// stops no lookup.
func TestFeedsThatDoNotAnswer(t *testing.T) {
	var closed chan struct{}
	for name, fails := range map[string]changesFunc{
		"knows no position": failingFeed(keystore.ErrNotFound),
		"ignores its context": func(context.Context, string) ([]keystore.Digest, string, error) {
			<-closed
			return nil, "", errStoreDown
		},
		"hangs": func(ctx context.Context, _ string) ([]keystore.Digest, string, error) {
			start := time.Now()
			<-ctx.Done()
			if waited := time.Since(start); waited != 2*time.Second && !errors.Is(ctx.Err(), context.Canceled) {
				t.Errorf("a poll was given %v, want Timeout", waited)
			}
			return nil, "", ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, here := newFed(keystore.CacheOptions{Logger: slog.New(slog.DiscardHandler)})
			closed = make(chan struct{})
			stop := run(t, here)
			store.changes.set(fails)
			time.Sleep(time.Minute)
			got, polls := here.Stats().MaxStaleness, store.polls.Load()
			if got != 30*time.Second || polls > 14 || polls < 12 && name != "ignores its context" {
				t.Errorf("%s: MaxStaleness is %v after %d polls in a minute, want TTL and one each 5 s", name, got, polls)
			}
			want(t, here, store.add(t), nil, "a lookup while the feed "+name)
			close(closed)
			stop()
		})
	}
}

// A feed that does not know its position any more is asked for a new one at
// once, and MaxStaleness holds, also when that answer does not come.
func TestFeedLosesThePosition(t *testing.T) {
	for _, test := range []struct {
		name string
		anew error // at the first question for a new position
		log  string
	}{
		{"answers", nil, "does not know where it was"},
		{"fails then", errStoreDown, errStoreDown.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logged
				store := newFeedFake()
				here := keystore.NewCached(store, keystore.CacheOptions{TTL: time.Hour, Logger: log.logger()})
				defer run(t, here)()
				time.Sleep(10 * time.Second)
				d := store.add(t)
				want(t, here, d, nil, "a key")
				store.edit(t, d, suspended)
				lost := false
				store.changes.set(slowly(func(ctx context.Context, since string) ([]keystore.Digest, string, error) {
					if since != "" && !lost {
						lost = true
						return nil, "", keystore.ErrNotFound
					}
					_, next, err := store.Store.Changes(ctx, "")
					return nil, next, cmp.Or(test.anew, err)
				}, 2*time.Second))
				time.Sleep(7 * time.Second)
				want(t, here, d, keystore.ErrSuspended, "a change that the feed no longer knows")
				time.Sleep(2 * time.Second)
				if got := log.String(); !strings.Contains(got, test.log) || strings.Contains(got, keystore.ErrNotFound.Error()) {
					t.Errorf("the log does not say %q, or calls the position a key: %s", test.log, got)
				}
			})
		})
	}
}

// A cache that nobody polls for says so once, after a minute. Only one in front
// of a feed that others write to needs it.
func TestRunWasNotStarted(t *testing.T) {
	for _, row := range []struct {
		name  string
		store func() keystore.Store
		run   bool
		lines int
	}{
		{"a feed", func() keystore.Store { return newFeedFake() }, false, 1},
		{"a feed that is polled", func() keystore.Store { return newFeedFake() }, true, 0},
		{"a store of this process", func() keystore.Store { return issuing.NewMemory() }, false, 0},
		{"no feed", func() keystore.Store { return struct{ keystore.Store }{issuing.NewMemory()} }, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log logged
			c := keystore.NewCached(row.store(), keystore.CacheOptions{Logger: log.logger()})
			said := func() int { return strings.Count(log.String(), "Run was not started") }
			ask := func() { c.Lookup(t.Context(), keystore.Digest{}) }
			if row.run {
				run(t, c)()
			}
			time.Sleep(time.Minute - time.Nanosecond)
			ask()
			if said() != 0 {
				t.Errorf("%s: said within a minute", row.name)
			}
			for range 3 {
				time.Sleep(time.Minute)
				ask()
			}
			if got := said(); got != row.lines {
				t.Errorf("%s: said %d times, want %d", row.name, got, row.lines)
			}
			if !c.Stats().Polled.IsZero() {
				t.Errorf("%s: polled at %v, and Run does not run", row.name, c.Stats().Polled)
			}
		})
	}
}
