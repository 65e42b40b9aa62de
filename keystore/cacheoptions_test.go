package keystore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// The defaults are what the documentation says.
func TestCacheOptionsDefaults(t *testing.T) {
	want := keystore.CacheOptions{
		TTL: 30 * time.Second, NegativeTTL: 5 * time.Second, Size: 100_000, Timeout: 2 * time.Second,
		FeedInterval: 5 * time.Second, Logger: slog.Default(),
	}
	if got := keystore.WithDefaults(keystore.CacheOptions{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCachedDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFake()
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		d := store.add(t)
		if got := cached.MaxStaleness(); got != 30*time.Second {
			t.Errorf("MaxStaleness() = %v, want 30s", got)
		}
		want(t, cached, d, nil, "a key")
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
		time.Sleep(5*time.Second - time.Nanosecond)
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, before 5 s")
		store.wantCalls(t, 2, "before 5 s")
		time.Sleep(time.Nanosecond)
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, after 5 s")
		want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token, after 5 s")
		store.wantCalls(t, 1, "after 5 s")
	})
}

func TestCachedOptionsPanic(t *testing.T) {
	for name, o := range map[string]keystore.CacheOptions{
		"TTL": {TTL: -1}, "NegativeTTL": {NegativeTTL: -1}, "Size": {Size: -1},
		"Timeout": {Timeout: -1}, "FeedInterval": {FeedInterval: -1},
	} {
		if !panics(func() { keystore.NewCached(keystore.NewMemory(), o) }) {
			t.Errorf("a negative %s did not panic", name)
		}
	}
	for _, store := range []keystore.Store{nil, (*keystore.Memory)(nil), keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})} {
		if !panics(func() { keystore.NewCached(store, keystore.CacheOptions{}) }) {
			t.Errorf("NewCached with a %T did not panic", store)
		}
	}
}

func TestCachedWithoutEnd(t *testing.T) {
	for _, o := range []keystore.CacheOptions{
		{TTL: math.MaxInt64, NegativeTTL: math.MaxInt64},
		{TTL: math.MaxInt64, NegativeTTL: math.MaxInt64, Timeout: math.MaxInt64, FeedInterval: math.MaxInt64},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newFake()
			cached := keystore.NewCached(store, o)
			d := store.add(t)
			time.Sleep(time.Second)
			for range 2 {
				want(t, cached, d, nil, "a key")
				want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
				time.Sleep(1000 * time.Hour)
			}
			store.wantCalls(t, 2, "a key and an unknown token, for ever")
			if got := cached.MaxStaleness(); got != math.MaxInt64 {
				t.Errorf("MaxStaleness is %v", got)
			}
		})
	}
}

// A size that is meant as no bound takes no memory for what is not there.
func TestCachedUnbounded(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{Size: math.MaxInt})
	d := store.add(t)
	want(t, cached, d, nil, "a key")
	want(t, cached, d, nil, "a key")
	store.wantCalls(t, 1, "a key twice")
}

// TestEveryOption: each option of the package has an effect, or is refused.
func TestEveryOption(t *testing.T) {
	own := scope.New(scope.Definition{Name: "parcels:read", Meaning: "See parcels."})
	everyOption(t, func(set func(*keystore.CacheOptions)) string { return cacheSeen(t, set) }, map[string]func(*keystore.CacheOptions){
		"TTL":          func(o *keystore.CacheOptions) { o.TTL = time.Hour },
		"NegativeTTL":  func(o *keystore.CacheOptions) { o.NegativeTTL = time.Hour },
		"Size":         func(o *keystore.CacheOptions) { o.Size = 1 },
		"Timeout":      func(o *keystore.CacheOptions) { o.Timeout = time.Second },
		"Service":      func(o *keystore.CacheOptions) { o.Service.Scopes = own },
		"FeedInterval": func(o *keystore.CacheOptions) { o.FeedInterval = time.Second },
		"Logger":       func(o *keystore.CacheOptions) { o.Logger = slog.New(slog.DiscardHandler) },
	})
	everyOption(t, func(set func(*keystore.IssuerOptions)) string {
		var o keystore.IssuerOptions
		set(&o)
		i := keystore.NewIssuer(keystore.NewMemory(), o)
		_, _, err := i.Issue(t.Context(), keystore.Grant{Organization: "acme", Environment: keystore.Sandbox, Name: "n", Scopes: []scope.Name{"parcels:read"}})
		return fmt.Sprint(err, i.Masked(&keystore.Key{Environment: keystore.Sandbox, Hint: "abcd"}))
	}, map[string]func(*keystore.IssuerOptions){
		"Service": func(o *keystore.IssuerOptions) { o.Service.Prefix = "acme" },
	})
	everyOption(t, func(set func(*keystore.Service)) string {
		var f keystore.Service
		set(&f)
		c, err := f.Parse(acme("0"))
		_, _, issued := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{Service: f}).Issue(t.Context(), keystore.Grant{
			Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{"parcels:read"},
		})
		return fmt.Sprint(f.Pattern(), c, err, issued)
	}, map[string]func(*keystore.Service){
		"Scopes": func(f *keystore.Service) { f.Scopes = own },
		"Prefix": func(f *keystore.Service) { f.Prefix = "acme" },
		"Live":   func(f *keystore.Service) { f.Live = "prod" },
		"Test":   func(f *keystore.Service) { f.Test = "sandbox" },
		"Legacy": func(f *keystore.Service) { f.Legacy = []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}} },
	})
	everyOption(t, func(set func(*keystore.LegacyFormat)) string {
		l := keystore.LegacyFormat{Name: "v1", Prefix: "acme_"}
		set(&l)
		c, err := keystore.Service{Legacy: []keystore.LegacyFormat{l}}.Parse(acme("0"))
		return fmt.Sprint(c, err)
	}, map[string]func(*keystore.LegacyFormat){
		"Name":    func(l *keystore.LegacyFormat) { l.Name = "v2" },
		"Prefix":  func(l *keystore.LegacyFormat) { l.Prefix = "other_" },
		"Match":   func(l *keystore.LegacyFormat) { l.Match = func(string) bool { return false } },
		"Digests": func(l *keystore.LegacyFormat) { l.Digests = keystore.HMACDigests([]byte("the new pepper")) },
	})
	everyOption(t, func(set func(*keystore.LastUsedOptions)) string { return lastUsedSeen(t, set) }, map[string]func(*keystore.LastUsedOptions){
		"Interval": func(o *keystore.LastUsedOptions) { o.Interval = time.Second },
		"Logger":   func(o *keystore.LastUsedOptions) { o.Logger = slog.New(slog.DiscardHandler) },
	})
}

func cacheSeen(t *testing.T, set func(*keystore.CacheOptions)) (text string) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := keystore.CacheOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		set(&o)
		store := newFake()
		one, two := store.add(t, func(k *keystore.Key) { k.Scopes = []scope.Name{"parcels:read"} }), store.add(t)
		c := keystore.NewCached(store, o)
		look := func() {
			for _, d := range []keystore.Digest{one, two, one, unknown(1), unknown(2), unknown(1)} {
				k, err := c.Lookup(t.Context(), d)
				text += fmt.Sprintln(err, k != nil && k.Granted().Has("parcels:read"))
			}
			text += fmt.Sprintf("%+v %v\n", c.Stats(), c.MaxStaleness())
		}
		look()
		time.Sleep(10 * time.Second)
		look()
		time.Sleep(time.Minute)
		look()
		store.lookup.set(func(ctx context.Context, _ keystore.Digest) (*keystore.Key, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		begun := time.Now()
		var open sync.WaitGroup
		answers := make([]string, 2)
		for i := range answers {
			open.Go(func() {
				_, err := c.Lookup(t.Context(), unknown(10+i))
				answers[i] = fmt.Sprintln(time.Since(begun), err)
			})
			synctest.Wait()
		}
		open.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		open.Go(func() { _ = c.Run(ctx) })
		synctest.Wait()
		text += fmt.Sprint(answers, c.MaxStaleness(), log.Len() > 0)
		cancel()
		open.Wait()
	})
	return text
}

// A slowToucher takes no use before its context ends.
type slowToucher struct{ text *strings.Builder }

func (s slowToucher) Touch(ctx context.Context, uses []keystore.Use) error {
	begun := time.Now()
	<-ctx.Done()
	fmt.Fprintln(s.text, begun, time.Since(begun), len(uses))
	return ctx.Err()
}

func lastUsedSeen(t *testing.T, set func(*keystore.LastUsedOptions)) (text string) {
	synctest.Test(t, func(t *testing.T) {
		var calls, log strings.Builder
		o := keystore.LastUsedOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		set(&o)
		l := keystore.NewLastUsed(slowToucher{&calls}, o)
		for _, id := range []string{"a", "b"} {
			l.Record(&keystore.Key{Organization: "acme", ID: id})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_ = l.Run(ctx)
		text = fmt.Sprint(calls.String(), log.Len() > 0)
	})
	return text
}

// everyOption fails for a row that changes nothing of what is seen, and for a
// field without a row.
func everyOption[O any](t *testing.T, seen func(set func(*O)) string, rows map[string]func(*O)) {
	t.Helper()
	usual := seen(func(*O) {})
	if again := seen(func(*O) {}); again != usual {
		t.Fatalf("without a change: got %s and %s", usual, again)
	}
	fields := reflect.TypeFor[O]()
	for _, field := range reflect.VisibleFields(fields) {
		set := rows[field.Name]
		if set == nil {
			t.Errorf("no row says what %s.%s does", fields, field.Name)
		} else if seen(set) == usual {
			t.Errorf("%s.%s has no effect", fields, field.Name)
		}
	}
	if len(rows) > fields.NumField() {
		t.Errorf("%d rows for %d fields", len(rows), fields.NumField())
	}
}
