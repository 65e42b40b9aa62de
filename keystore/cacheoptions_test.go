package keystore_test

import (
	"log/slog"
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// The defaults are what the documentation says. Timeout is at most TTL, or an
// answer could be older than TTL when it is used.
func TestCacheOptionsDefaults(t *testing.T) {
	want := keystore.CacheOptions{
		TTL: 30 * time.Second, NegativeTTL: 5 * time.Second, Size: 100_000, Timeout: 2 * time.Second,
		FeedInterval: 5 * time.Second, Logger: slog.Default(),
		Service: keystore.Service{Scopes: scope.Default(), Prefix: "svc"},
	}
	if got := keystore.WithDefaults(keystore.CacheOptions{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	short := keystore.WithDefaults(keystore.CacheOptions{TTL: time.Second, Timeout: time.Hour})
	if short.Timeout != time.Second {
		t.Errorf("with a TTL of 1s the Timeout is %v", short.Timeout)
	}
}

func TestCachedOptionsPanic(t *testing.T) {
	for name, o := range map[string]keystore.CacheOptions{
		"TTL": {TTL: -1}, "NegativeTTL": {NegativeTTL: -1}, "Size": {Size: -1},
		"Timeout": {Timeout: -1}, "FeedInterval": {FeedInterval: -1},
	} {
		if !panics(func() { keystore.NewCached(issuing.NewMemory(), o) }) {
			t.Errorf("a negative %s did not panic", name)
		}
	}
	cached := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	for _, store := range []keystore.Store{nil, (*keystore.Cached)(nil), cached, struct{ *keystore.Cached }{cached}} {
		if !panics(func() { keystore.NewCached(store, keystore.CacheOptions{}) }) {
			t.Errorf("NewCached with a %T did not panic", store)
		}
	}
}

func TestCachedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, cached := newCached(keystore.CacheOptions{TTL: math.MaxInt64, NegativeTTL: math.MaxInt64,
			Timeout: math.MaxInt64, FeedInterval: math.MaxInt64,
			Size: math.MaxInt}) // which takes no memory for what is not there
		d := store.add(t)
		time.Sleep(time.Second)
		for range 2 {
			want(t, cached, d, nil, "a key")
			want(t, cached, unknown(1), keystore.ErrNotFound, "an unknown token")
			time.Sleep(1000 * time.Hour)
		}
		store.wantCalls(t, 2, "a key and an unknown token, for ever")
		if got := cached.Stats().MaxStaleness; got != math.MaxInt64 {
			t.Errorf("MaxStaleness is %v", got)
		}
	})
}
