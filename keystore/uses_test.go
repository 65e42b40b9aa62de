package keystore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// A book is a store that writes down what it is told.
type book struct {
	keystore.Store // nil: Uses looks no key up
	mu             sync.Mutex
	calls          [][]keystore.Use
	fail           hook[touchFunc] // nil: nothing fails
}

type touchFunc = func(ctx context.Context, uses []keystore.Use) error

func newBook(fail touchFunc) *book {
	b := &book{}
	b.fail.set(fail)
	return b
}

// newUses returns Uses and the book that they are written to.
func newUses(fail touchFunc, o keystore.UsesOptions) (*book, *keystore.Uses) {
	b := newBook(fail)
	return b, keystore.NewUses(b, o)
}

func storeDown(context.Context, []keystore.Use) error { return errStoreDown }

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

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (b *book) AddUses(ctx context.Context, uses []keystore.Use) error {
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

// A use of a child is one of each ancestor, which may have the scope by another
// one, in the same call.
func TestUseOfAChild(t *testing.T) {
	registry := scope.New(scope.Definition{Name: "all", Implies: []scope.Name{"read"}}, scope.Definition{Name: "read"})
	line := func(id string, scopes ...scope.Name) *keystore.Key {
		return &keystore.Key{ID: id, Digest: keystore.DigestOf(id), Organization: "acme", Scopes: scopes}
	}
	k, parent, root := line("key_3", "read"), line("key_2", "read"), line("key_1", "all")
	k.Parent, parent.Parent, k.Ancestors = "key_2", "key_1", []*keystore.Key{parent, root}
	book, used := newUses(nil, keystore.UsesOptions{})
	caller := k.Bind(registry)
	for range 2 {
		used.Record(caller, func() netip.Addr { return netip.MustParseAddr("192.0.2.1") })
	}
	caller.Use("read")
	flush(t, used)
	caller.Use("read") // the scopes of a request that came before the flush
	flush(t, used)
	calls := book.take()
	if len(calls) != 2 {
		t.Fatalf("got %d calls, want one for each flush", len(calls))
	}
	for n, uses := range calls {
		var got []string
		for _, u := range uses {
			got = append(got, fmt.Sprint(u.ID, u.Scopes, u.Requests))
		}
		requests := []int{2, 0}[n]
		want := fmt.Sprintf("[key_3[read] %[1]d key_2[read] %[1]d key_1[all] %[1]d]", requests)
		if fmt.Sprint(got) != want {
			t.Errorf("flush %d wrote %v, want %s", n+1, got, want)
		}
	}

	sibling := line("key_4", "read")
	sibling.Parent, sibling.Ancestors = "key_2", k.Ancestors
	for _, c := range []*keystore.Caller{caller, caller, sibling.Bind(registry), parent.Bind(registry)} {
		used.Record(c, anywhere)
	}
	flush(t, used)
	of := make(map[string]int)
	for _, u := range slices.Concat(book.take()...) {
		of[u.ID]++
	}
	if want := map[string]int{"key_1": 3, "key_2": 3, "key_3": 1, "key_4": 1}; !maps.Equal(of, want) {
		t.Errorf("uses of a key with two children in a batch: got %v, want %v", of, want)
	}
}

func key(n int, scopes ...scope.Name) *keystore.Caller {
	k := &keystore.Key{ID: fmt.Sprintf("key_%d", n), Digest: keystore.DigestOf("a"), Organization: "acme", Scopes: scopes}
	return k.Bind(scope.Default())
}

func anywhere() netip.Addr { return netip.Addr{} }

func runLastUsed(t *testing.T, l *keystore.Uses) (stop func() error) {
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
		written, uses := newUses(nil, keystore.UsesOptions{})
		stop := runLastUsed(t, uses)
		for range 100 {
			uses.Record(key(1), anywhere)
			time.Sleep(500 * time.Millisecond)
		}
		last := time.Now().Add(-500 * time.Millisecond)
		if calls := written.take(); len(calls) != 0 {
			t.Errorf("100 uses in 50 s made %d calls, want none before the interval of 60 s", len(calls))
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
		uses.Record(key(2), anywhere)
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
		written := newBook(storeDown)
		uses := keystore.NewUses(written, keystore.UsesOptions{Interval: time.Second, Logger: log.logger()})
		stop := runLastUsed(t, uses)
		uses.Record(key(1), anywhere)
		first := time.Now()
		uses.Record(key(2), anywhere)
		time.Sleep(1500 * time.Millisecond)
		uses.Record(key(2), anywhere)
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
		written.fail.set(storeDown)
		uses.Record(key(3), anywhere)
		if err := stop(); !errors.Is(err, errStoreDown) {
			t.Errorf("Run, whose last flush failed, returned %v, want its error", err)
		}
	})
}

func TestLastUsedIsBounded(t *testing.T) {
	var log logged
	written := newBook(storeDown)
	uses := keystore.NewUses(written, keystore.UsesOptions{Logger: log.logger()})
	if before := uses.SetRoom(10); before != 100_000 {
		t.Errorf("there is room for %d keys, want 100,000", before)
	}
	for range 3 {
		for n := range 25 {
			uses.Record(key(n), anywhere)
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
	// What has come meanwhile stays, and what failed goes.
	full := keystore.NewUses(written, keystore.UsesOptions{Logger: log.logger()})
	full.SetRoom(10)
	written.fail.set(func(context.Context, []keystore.Use) error {
		for n := range 10 {
			full.Record(key(100+n), anywhere)
		}
		return errStoreDown
	})
	full.Record(key(1), anywhere)
	full.Record(key(1), anywhere)
	full.Flush(t.Context())
	written.fail.set(nil)
	full.Flush(t.Context())
	if !strings.Contains(log.String(), "uses=2\n") {
		t.Errorf("the log does not say that 2 uses were dropped: %s", log.String())
	}
}

func TestLastUsedWritesInParts(t *testing.T) {
	written, uses := newUses(nil, keystore.UsesOptions{})
	for n := range 2500 {
		uses.Record(key(n), anywhere)
	}
	// The second part fails: the first is done, and the others are kept.
	var given context.Context
	written.fail.set(func(ctx context.Context, _ []keystore.Use) error {
		if given = ctx; len(written.calls) == 2 {
			return errStoreDown
		}
		return nil
	})
	if err := uses.Flush(t.Context()); !errors.Is(err, errStoreDown) {
		t.Errorf("Flush returned %v, want the store's error", err)
	}
	if !errors.Is(given.Err(), context.Canceled) { // nothing of a call is kept, such as its timer
		t.Errorf("after Flush the context of AddUses has the error %v, want it cancelled", given.Err())
	}
	written.fail.set(nil)
	flush(t, uses)
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
		uses := keystore.NewUses(written, keystore.UsesOptions{})
		stop := runLastUsed(t, uses)
		uses.Record(key(1), anywhere)
		start := time.Now()
		if err := stop(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("the last flush to a store that hangs returned %v after %v, want a deadline of 10 s", err,
				time.Since(start))
		}
	})
}

func TestNewLastUsedPanics(t *testing.T) {
	plain := struct{ keystore.Store }{issuing.NewMemory()}
	for _, store := range []keystore.Store{nil, (*keystore.Cached)(nil), plain,
		keystore.NewCached(plain, keystore.CacheOptions{})} {
		if !panics(func() { keystore.NewUses(store, keystore.UsesOptions{}) }) {
			t.Errorf("NewUses with a %T did not panic", store)
		}
	}
	if !panics(func() { keystore.NewUses(issuing.NewMemory(), keystore.UsesOptions{Interval: -1}) }) {
		t.Error("NewUses with a negative interval did not panic")
	}
	defer func() { // the store that lacks AddUses is the one in the Cached
		if got := fmt.Sprint(recover()); strings.Contains(got, "Cached") {
			t.Errorf("got %s", got)
		}
	}()
	keystore.NewUses(keystore.NewCached(plain, keystore.CacheOptions{}), keystore.UsesOptions{})
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
			uses := keystore.NewUses(newBook(nil), keystore.UsesOptions{Interval: time.Hour, Logger: log.logger()})
			time.Sleep(row.runsAfter)
			if row.run {
				defer runLastUsed(t, uses)()
			}
			for range 8 { // of a later Run the first is due, and before its first flush
				time.Sleep(35 * time.Minute)
				uses.Record(key(1), anywhere)
			}
			if got := strings.Count(log.String(), "Run was not started"); got != row.want {
				t.Errorf("%s: said %d times, want %d: %s", row.name, got, row.want, log.String())
			}
		})
	}
}

func flush(t *testing.T, l *keystore.Uses) {
	t.Helper()
	must(t, l.Flush(t.Context()))
}

func flushed(t *testing.T, l *keystore.Uses, b *book) []keystore.Use {
	t.Helper()
	flush(t, l)
	var uses []keystore.Use
	for _, call := range b.take() {
		uses = append(uses, call...)
	}
	slices.SortFunc(uses, func(a, b keystore.Use) int { return a.At.Compare(b.At) })
	return uses
}

func wantUses(t *testing.T, when string, got []keystore.Use, want ...string) {
	t.Helper()
	texts := make([]string, len(got))
	for i, u := range got {
		at := u.At.UTC().Format(time.RFC3339)
		texts[i] = fmt.Sprintf("%s of %s at %s from %v: %d, %v", u.ID, u.Organization, at, u.From, u.Requests, u.Scopes)
	}
	if !slices.Equal(texts, want) {
		t.Errorf("%s the uses are\n%s\nwant\n%s", when, strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// In a bubble it is midnight of 2000-01-01 in UTC.
func TestLastUsedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written, uses := newUses(nil, keystore.UsesOptions{})
		k := key(1, scope.TasksRead, scope.TasksWrite, scope.ChatRead)
		k.Use(scope.ChatRead) // not recorded yet
		from := func(text string) func() netip.Addr {
			return func() netip.Addr { return netip.MustParseAddr(text) }
		}
		never := func() netip.Addr { t.Error("the address is asked for twice in a second"); return netip.Addr{} }

		time.Sleep(24*time.Hour - 3*time.Second)
		uses.Record(k, from("192.0.2.0"))
		time.Sleep(time.Second)
		uses.Record(k, from("192.0.2.1"))
		time.Sleep(time.Millisecond)
		uses.Record(k, never)
		k.Use(scope.TasksRead, scope.WebhooksWrite)
		wantUses(t, "of one second", flushed(t, uses, written),
			"key_1 of acme at 2000-01-01T23:59:58Z from 192.0.2.1: 3, [tasks:read]")
		k.Use(scope.TasksRead)
		time.Sleep(time.Second)
		uses.Record(k, from("192.0.2.2"))
		time.Sleep(time.Second)
		uses.Record(k, from("192.0.2.3"))
		k.Use(scope.TasksRead)
		k.Use(scope.TasksWrite)
		wantUses(t, "over midnight", flushed(t, uses, written),
			"key_1 of acme at 2000-01-01T23:59:59Z from 192.0.2.2: 1, [tasks:read]",
			"key_1 of acme at 2000-01-02T00:00:00Z from 192.0.2.3: 1, [tasks:read tasks:write]")

		time.Sleep(time.Hour)
		k.Use(scope.TasksWrite)
		wantUses(t, "after a flush between Record and Use", flushed(t, uses, written),
			"key_1 of acme at 2000-01-02T00:00:00Z from invalid IP: 0, [tasks:write]")
		uses.Record(k, from("192.0.2.4"))
		wantUses(t, "of no scope", flushed(t, uses, written), "key_1 of acme at 2000-01-02T01:00:00Z from 192.0.2.4: 1, []")
		uses.Record(k, from("192.0.2.5"))
		wantUses(t, "after a flush in the same second", flushed(t, uses, written),
			"key_1 of acme at 2000-01-02T01:00:00Z from 192.0.2.5: 1, []")

		other := newBook(nil)
		others := keystore.NewUses(other, keystore.UsesOptions{})
		uses.Record(k, anywhere)
		others.Record(k, anywhere)
		k.Use(scope.ChatRead)
		for _, got := range [][]keystore.Use{flushed(t, uses, written), flushed(t, others, other)} {
			if len(got) != 1 || got[0].Requests != 1 {
				t.Errorf("of two Uses that have recorded a key one has %+v, want one request", got)
			}
		}
	})
}

// What a flush that failed had is added to what came since, and its time does not
// go back. A store that does not answer delays no request.
func TestLastUsedAddsWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written, uses := newUses(nil, keystore.UsesOptions{})
		k := key(1, scope.TasksRead, scope.TasksWrite)
		record := func(k *keystore.Caller, n scope.Name) {
			uses.Record(k, anywhere)
			k.Use(n)
		}
		record(k, scope.TasksRead)
		// A cache that has loaded the key anew has another Caller of it.
		record(key(1, scope.TasksRead), scope.TasksRead)
		record(k, scope.TasksRead)
		for _, k := range []*keystore.Caller{k, key(1, scope.TasksWrite)} {
			written.fail.set(func(context.Context, []keystore.Use) error {
				time.Sleep(time.Second)
				record(k, scope.TasksWrite)
				return errStoreDown
			})
			if err := uses.Flush(t.Context()); !errors.Is(err, errStoreDown) {
				t.Fatalf("Flush returned %v, want the store's error", err)
			}
		}
		written.fail.set(nil)
		written.take()
		wantUses(t, "after two failures", flushed(t, uses, written),
			"key_1 of acme at 2000-01-01T00:00:02Z from invalid IP: 5, [tasks:read tasks:write]")
	})
}

// No request is lost or counted twice between those who record and those who
// write.
func TestLastUsedCountsConcurrently(t *testing.T) {
	memory := issuing.NewMemory()
	issuer := issuing.New(memory, issuing.Options{})
	_, k := issue(t, issuer, grant())
	c := k.Bind(scope.Default())
	var failures atomic.Int64
	uses := keystore.NewUses(newBook(func(ctx context.Context, u []keystore.Use) error {
		if failures.Add(1)%3 == 0 {
			return errStoreDown
		}
		return memory.AddUses(ctx, u)
	}), keystore.UsesOptions{})
	const clients, each = 4, 1000
	var recording, flushing sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		flushing.Go(func() {
			for !done.Load() {
				uses.Flush(t.Context())
			}
		})
	}
	for range clients {
		recording.Go(func() {
			for range each {
				uses.Record(c, anywhere)
				c.Use(k.Scopes...)
				fmt.Fprintf(io.Discard, "%+v", c)
			}
		})
	}
	recording.Wait()
	done.Store(true)
	flushing.Wait()
	for uses.Flush(t.Context()) != nil {
	}
	usage, err := issuer.Usage(t.Context(), k.Organization, k.ID)
	must(t, err)
	var sum int64
	for _, d := range usage.Days {
		sum += d.Requests
	}
	if sum != clients*each || len(usage.Scopes) != len(k.Scopes) {
		t.Errorf("%d requests and the scopes %v were written, want %d and %v", sum, usage.Scopes, clients*each, k.Scopes)
	}
}
