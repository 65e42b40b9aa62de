package keystore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

func TestCacheStats(t *testing.T) {
	f := newFake()
	key := &keystore.Key{ID: "key_1", Organization: "acme", Environment: keystore.Production,
		Digest: keystore.DigestOf("known")}
	if err := f.Insert(t.Context(), key, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	c := keystore.NewCached(f, keystore.CacheOptions{})
	look := func(token string) { c.Lookup(t.Context(), keystore.DigestOf(token)) }
	for range 3 {
		look("known")
	}
	look("unknown")
	look("unknown")
	f.lookup.set(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("down") })
	look("another")
	want := keystore.CacheStats{Usable: 1, Hits: 3, Asked: 3, Failed: 1, NeedsRun: true,
		MaxStaleness: 30 * time.Second}
	if got := c.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRememberedCountsAsHit(t *testing.T) {
	c := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	secret, _, err := issuing.New(c, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "acme", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}})
	if err != nil {
		t.Fatal(err)
	}
	token := parse(t, keystore.Service{}, secret.Reveal())
	token.Remembered(c, nil)
	_, err = token.Lookup(t.Context(), c)
	token.Remembered(c, nil)
	want := keystore.CacheStats{Usable: 1, Hits: 1, Asked: 1, MaxStaleness: 30 * time.Second}
	if got := c.Stats(); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
		issuer := issuing.New(c, issuing.Options{})
		now := time.Now()
		for _, expires := range []time.Time{{}, now.Add(time.Hour), now.Add(2 * time.Hour), now.Add(48 * time.Hour)} {
			secret, k, err := issuer.Issue(t.Context(), keystore.Key{
				Organization: "acme", Environment: keystore.Production, ExpiresAt: expires})
			if err != nil {
				t.Fatal(err)
			}
			child, _, childErr := issuer.Delegate(t.Context(), keystore.Key{Organization: "acme", Parent: k.ID,
				ExpiresAt: now.Add(time.Minute)})
			for _, s := range []keystore.Secret{secret, child} {
				if _, err := c.Lookup(t.Context(), keystore.DigestOf(s.Reveal())); err != nil || childErr != nil {
					t.Fatal(err, childErr)
				}
			}
		}
		if n := c.Expiring(24 * time.Hour); n != 2 {
			t.Errorf("%d keys expire within a day, want 2", n)
		}
		if n := c.Expiring(time.Minute); n != 0 {
			t.Errorf("%d keys expire within a minute", n)
		}
		time.Sleep(time.Hour)
		if n := c.Expiring(24 * time.Hour); n != 1 {
			t.Errorf("%d keys that may be used expire within a day, want 1 after the other has expired", n)
		}
	})
}
