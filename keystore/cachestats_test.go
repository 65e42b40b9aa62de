package keystore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

func TestCacheStats(t *testing.T) {
	f := newFake()
	key := &keystore.Key{ID: "key_1", Organization: "acme", Environment: keystore.Production,
		Digest: keystore.DigestOf("known")}
	if err := f.Insert(t.Context(), key); err != nil {
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
	if got, want := c.Stats(), (keystore.CacheStats{Usable: 1, Refused: 1, Hits: 3, Asked: 3, Failed: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRememberedCountsAsHit(t *testing.T) {
	c := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	secret, _, err := keystore.NewIssuer(c, keystore.IssuerOptions{}).Issue(t.Context(), keystore.Grant{
		Organization: "acme", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksRead}})
	if err != nil {
		t.Fatal(err)
	}
	token, err := keystore.Service{}.Parse(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	c.Remembered(token)
	_, err = token.Lookup(t.Context(), c)
	c.Remembered(token)
	if got := c.Stats(); err != nil || got.Hits != 1 || got.Asked != 1 {
		t.Errorf("got %+v, %v, want one hit and one question", got, err)
	}
}
