package issuing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A write that took place and reported an error is noticed all the same.
func TestFailedWritesAreSeen(t *testing.T) {
	lost := errors.New("connection lost")
	cached := keystore.NewCached(losing{issuing.NewMemory(), lost}, keystore.CacheOptions{})
	issuer := issuing.New(cached, issuing.Options{})
	token := sandboxToken()
	d := keystore.DigestOf(token)
	want(t, cached, d, keystore.ErrNotFound, "before Import")
	_, err := issuer.Import(t.Context(), record(grant(), keystore.Key{ID: "key_1"}), token)
	wantKey(t, nil, err, lost, "", "Import")
	want(t, cached, d, nil, "after an Import that took place and failed")
	_, err = issuer.Revoke(t.Context(), "acme", "key_1")
	wantKey(t, nil, err, lost, "", "Revoke")
	want(t, cached, d, keystore.ErrRevoked, "after a Revoke that took place and failed")
	_, _, err = issuer.Erase(t.Context(), "acme")
	wantKey(t, nil, err, lost, "", "Erase")
	want(t, cached, d, keystore.ErrNotFound, "after an Erase that took place and failed")
}

// losing writes and then says that it could not.
type losing struct {
	issuing.Store
	err error
}

func (l losing) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	return errors.Join(l.Store.Insert(ctx, k, e, maxKeys), l.err)
}

func (l losing) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	return errors.Join(l.Store.Update(ctx, k, e), l.err)
}

func (l losing) Erase(ctx context.Context, organization string, entry erasure) (keys, entries int, err error) {
	keys, entries, err = l.Store.Erase(ctx, organization, entry)
	return keys, entries, errors.Join(err, l.err)
}

// paid embeds a Cached, so an Issuer over it would lose its audit or its methods.
type paid struct{ *keystore.Cached }

// What is wrong stops the program at its start.
func TestNewPanics(t *testing.T) {
	memory, none := issuing.NewMemory(), issuing.Options{}
	plain := struct{ keystore.Store }{memory}
	cached := keystore.NewCached(memory, keystore.CacheOptions{})
	for _, c := range []struct {
		keys    keystore.Store
		options issuing.Options
		want    string
	}{
		{nil, none, "New with a nil store"},
		{(*keystore.Cached)(nil), none, "New with a nil store"},
		{plain, none, "is no Store"},
		{keystore.NewCached(plain, keystore.CacheOptions{}), none, "is no Store"},
		{paid{cached}, none, "embeds a Cached"},
		{&paid{cached}, none, "embeds a Cached"},
		{struct{ paid }{paid{cached}}, none, "embeds a Cached"},
		{memory, issuing.Options{MaxLife: -1}, "a negative limit"},
		{memory, issuing.Options{MaxKeys: -1}, "a negative limit"},
		{memory, issuing.Options{Service: keystore.Service{Prefix: "A"}}, "other characters"},
		{cached, issuing.Options{Service: keystore.Service{Prefix: "acme"}}, "two services meet"},
	} {
		if got := panicOf(func() { issuing.New(c.keys, c.options) }); !strings.Contains(got, c.want) {
			t.Errorf("New with a %T and %+v: got the panic %q, want %q", c.keys, c.options, got, c.want)
		}
	}
}
