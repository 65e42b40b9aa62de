package keystore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// A book is a Toucher that writes down what it is told.
type book struct {
	mu    sync.Mutex
	calls [][]keystore.Use
	fail  hook[touchFunc] // nil: nothing fails
}

type touchFunc = func(ctx context.Context, uses []keystore.Use) error

func newBook(fail touchFunc) *book {
	b := &book{}
	b.fail.set(fail)
	return b
}

// A logged keeps what a logger wrote. It can be read while the logger writes.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (b *book) Touch(ctx context.Context, uses []keystore.Use) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, slices.Clone(uses))
	if fail := b.fail.get(); fail != nil {
		return fail(ctx, uses)
	}
	return nil
}

// take returns the calls since the last time.
func (b *book) take() [][]keystore.Use {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func key(n int) *keystore.Key {
	return &keystore.Key{ID: fmt.Sprintf("key_%d", n), Organization: "acme"}
}

func runLastUsed(t *testing.T, l *keystore.LastUsed) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		return <-done
	}
}

func TestLastUsedBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := newBook(nil)
		uses := keystore.NewLastUsed(written, keystore.LastUsedOptions{})
		stop := runLastUsed(t, uses)
		for range 10_000 {
			uses.Record(key(1))
			time.Sleep(5 * time.Millisecond)
		}
		last := time.Now().Add(-5 * time.Millisecond)
		if calls := written.take(); len(calls) != 0 {
			t.Errorf("10,000 uses in 50 s made %d calls, want none before the interval of 60 s", len(calls))
		}
		time.Sleep(10*time.Second + time.Nanosecond)
		calls := written.take()
		if len(calls) != 1 || len(calls[0]) != 1 || !calls[0][0].At.Equal(last) || calls[0][0].ID != "key_1" ||
			calls[0][0].Organization != "acme" {
			t.Errorf("after 60 s the calls are %v, want one with the last use at %v", calls, last)
		}
		time.Sleep(10 * time.Minute)
		if calls := written.take(); len(calls) != 0 {
			t.Errorf("10 minutes without a use made the calls %v, want none", calls)
		}
		uses.Record(key(2))
		if err := stop(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if calls := written.take(); len(calls) != 1 || calls[0][0].ID != "key_2" {
			t.Errorf("when Run ended the calls are %v, want what was still waiting", calls)
		}
	})
}

func TestLastUsedKeepsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		written := newBook(func(context.Context, []keystore.Use) error { return errStoreDown })
		uses := keystore.NewLastUsed(written,
			keystore.LastUsedOptions{Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		stop := runLastUsed(t, uses)
		uses.Record(key(1))
		first := time.Now()
		uses.Record(key(2))
		time.Sleep(1500 * time.Millisecond)
		uses.Record(key(2))
		second := time.Now()
		time.Sleep(time.Second)
		if calls := written.take(); len(calls) != 2 || len(calls[1]) != 2 {
			t.Errorf("two failed flushes made the calls %v, want both uses tried twice", calls)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, errStoreDown.Error()) {
			t.Errorf("the log does not say once why flushing failed: %s", got)
		}
		written.fail.set(nil)
		time.Sleep(2 * time.Second)
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "written again") {
			t.Errorf("the log does not say once that uses are written again: %s", got)
		}
		calls := written.take()
		if len(calls) != 1 || len(calls[0]) != 2 {
			t.Fatalf("when the store is back the calls are %v, want both uses at once", calls)
		}
		for _, u := range calls[0] {
			if want := map[string]time.Time{"key_1": first, "key_2": second}[u.ID]; !u.At.Equal(want) {
				t.Errorf("the use of %s is written as %v, want %v", u.ID, u.At, want)
			}
		}
		written.fail.set(func(context.Context, []keystore.Use) error { return errStoreDown })
		uses.Record(key(3))
		if err := stop(); !errors.Is(err, errStoreDown) {
			t.Errorf("Run, whose last flush failed, returned %v, want its error", err)
		}
	})
}

// A use that is recorded while an older one fails to be written is not lost.
func TestLastUsedNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var uses *keystore.LastUsed
		written := newBook(nil)
		written.fail.set(func(context.Context, []keystore.Use) error {
			time.Sleep(time.Second)
			uses.Record(key(1))
			return errStoreDown
		})
		uses = keystore.NewLastUsed(written, keystore.LastUsedOptions{})
		uses.Record(key(1))
		if err := uses.Flush(t.Context()); !errors.Is(err, errStoreDown) {
			t.Errorf("Flush returned %v, want the store's error", err)
		}
		written.fail.set(nil)
		written.take()
		if err := uses.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if calls := written.take(); len(calls) != 1 || len(calls[0]) != 1 || !calls[0][0].At.Equal(time.Now()) {
			t.Errorf("the calls are %v, want the later use", calls)
		}
	})
}

func TestLastUsedIsBounded(t *testing.T) {
	var log logged
	written := newBook(func(context.Context, []keystore.Use) error { return errStoreDown })
	uses := keystore.NewLastUsed(written, keystore.LastUsedOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	uses.SetRoom(10)
	for range 3 {
		for n := range 25 {
			uses.Record(key(n))
		}
		uses.Flush(t.Context())
	}
	for _, call := range written.take() {
		if len(call) != 10 {
			t.Errorf("a flush had %d uses, want the 10 that there is room for", len(call))
		}
	}
	if !strings.Contains(log.String(), "uses=15") {
		t.Errorf("the log does not say that 15 uses were dropped: %s", log.String())
	}
	for n, lines := range map[int]int{10: 0, 11: 1} {
		var log logged
		uses := keystore.NewLastUsed(newBook(nil),
			keystore.LastUsedOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		uses.SetRoom(10)
		for i := range n {
			uses.Record(key(i))
		}
		uses.Flush(t.Context())
		if got := strings.Count(log.String(), "\n"); got != lines {
			t.Errorf("with room for 10, %d uses made %d lines in the log, want %d: %s", n, got, lines, log.String())
		}
	}
}

func TestLastUsedWritesInParts(t *testing.T) {
	written := newBook(nil)
	uses := keystore.NewLastUsed(written, keystore.LastUsedOptions{})
	for n := range 2500 {
		uses.Record(key(n))
	}
	// The second part fails: the first is done, and the others are kept.
	written.fail.set(func(context.Context, []keystore.Use) error {
		if len(written.calls) == 2 {
			return errStoreDown
		}
		return nil
	})
	if err := uses.Flush(t.Context()); !errors.Is(err, errStoreDown) {
		t.Errorf("Flush returned %v, want the store's error", err)
	}
	written.fail.set(nil)
	if err := uses.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	var sizes []int
	for i, call := range written.take() {
		sizes = append(sizes, len(call))
		for _, u := range call {
			if i != 1 {
				seen[u.ID]++
			}
		}
	}
	if !slices.Equal(sizes, []int{1000, 1000, 1000, 500}) || len(seen) != 2500 {
		t.Errorf("2500 uses were written in calls of %v, %d keys in all, want 1000, a failed 1000, 1000 and 500 for "+
			"every key", sizes, len(seen))
	}
}

func TestLastUsedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := newBook(func(ctx context.Context, _ []keystore.Use) error {
			<-ctx.Done()
			return ctx.Err()
		})
		uses := keystore.NewLastUsed(written, keystore.LastUsedOptions{})
		stop := runLastUsed(t, uses)
		uses.Record(key(1))
		start := time.Now()
		if err := stop(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("the last flush to a store that hangs returned %v after %v, want a deadline of 10 s", err,
				time.Since(start))
		}
	})
}

// Nothing of a call is kept once it has returned, such as the timer that bounds
// it.
func TestLastUsedEndsItsContext(t *testing.T) {
	var given context.Context
	uses := keystore.NewLastUsed(newBook(func(ctx context.Context,
		_ []keystore.Use) error {
		given = ctx
		return ctx.Err()
	}), keystore.LastUsedOptions{})
	uses.Record(&keystore.Key{ID: "key_1", Organization: "acme"})
	if err := uses.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(given.Err(), context.Canceled) {
		t.Errorf("after Flush the context of Touch has the error %v, want it cancelled", given.Err())
	}
}

// A store that hangs delays no request.
func TestRecordDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		written := newBook(func(context.Context, []keystore.Use) error {
			<-release
			return nil
		})
		uses := keystore.NewLastUsed(written, keystore.LastUsedOptions{})
		uses.Record(key(1))
		var flushing sync.WaitGroup
		flushing.Go(func() { uses.Flush(t.Context()) })
		synctest.Wait()
		// In a bubble this would deadlock, and not merely be slow.
		uses.Record(key(1))
		uses.Record(key(2))
		close(release)
		flushing.Wait()
	})
}

// Uses are written while the key is revoked, through the same cache.
func TestLastUsedBesideRevoke(t *testing.T) {
	memory := keystore.NewMemory()
	keys := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour, Timeout: time.Hour})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	uses := keystore.NewLastUsed(keys, keystore.LastUsedOptions{})
	token, k := issue(t, issuer, grant())
	var writers sync.WaitGroup
	writers.Go(func() {
		for range 1000 {
			uses.Record(k)
			if err := uses.Flush(t.Context()); err != nil {
				t.Errorf("Flush returned %v, want nil", err)
			}
		}
	})
	writers.Go(func() {
		if _, err := issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
			t.Errorf("Revoke returned %v, want nil", err)
		}
	})
	writers.Wait()
	if err := refusal(t, memory, token); !errors.Is(err, keystore.ErrRevoked) {
		t.Errorf("the key is refused with %v, want ErrRevoked", err)
	}
	if found, err := memory.Find(t.Context(), "acme", k.ID); err != nil || found.LastUsedAt.IsZero() {
		t.Errorf("the key is %+v, %v, want it to have been used", found, err)
	}
}

func TestNewLastUsedPanics(t *testing.T) {
	for _, store := range []keystore.Toucher{nil, (*keystore.Memory)(nil)} {
		if !panics(func() { keystore.NewLastUsed(store, keystore.LastUsedOptions{}) }) {
			t.Errorf("NewLastUsed with a nil %T did not panic", store)
		}
	}
	for _, o := range []keystore.LastUsedOptions{{Interval: -1}} {
		if !panics(func() { keystore.NewLastUsed(keystore.NewMemory(), o) }) {
			t.Errorf("NewLastUsed with %+v did not panic", o)
		}
	}
}

// Without a Size 100,000 keys may wait to be written.
func TestLastUsedDefaultSize(t *testing.T) {
	var log logged
	l := keystore.NewLastUsed(keystore.NewMemory(),
		keystore.LastUsedOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100_001 {
		l.Record(&keystore.Key{Organization: "acme", ID: strconv.Itoa(i)})
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "uses=1\n") {
		t.Errorf("the log does not say that one use was dropped: %s", log.String())
	}
}

func TestLastUsedRunWasNotStarted(t *testing.T) {
	for _, row := range []struct {
		name      string
		run       bool
		runsAfter time.Duration
		want      int
	}{{"never", false, 0, 1}, {"started", true, 0, 0}, {"started later", true, 30 * time.Minute, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var log logged
			uses := keystore.NewLastUsed(newBook(nil),
				keystore.LastUsedOptions{Interval: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			time.Sleep(row.runsAfter)
			if row.run {
				defer runLastUsed(t, uses)()
			}
			for range 8 { // of a later Run the first is due, and before its first flush
				time.Sleep(35 * time.Minute)
				uses.Record(key(1))
			}
			if got := strings.Count(log.String(), "Run was not started"); got != row.want {
				t.Errorf("%s: said %d times, want %d: %s", row.name, got, row.want, log.String())
			}
		})
	}
}
