package issuing_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An unknown token becomes a key as soon as Issue has returned.
func TestIssueIsSeenAtOnce(t *testing.T) {
	cached, issuer := issuing.InMemory(keystore.Service{})
	token := sandboxToken()
	d := keystore.DigestOf(token)
	want(t, cached, d, keystore.ErrNotFound, "before Import")
	if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), token); err != nil {
		t.Fatal(err)
	}
	want(t, cached, d, nil, "after Import")
}

// A write that took place and reported an error is noticed all the same.
func TestFailedWritesAreSeen(t *testing.T) {
	lost := errors.New("connection lost")
	cached := keystore.NewCached(losing{issuing.NewMemory(), lost}, keystore.CacheOptions{})
	issuer := issuing.New(cached, issuing.Options{})
	token := sandboxToken()
	d := keystore.DigestOf(token)
	want(t, cached, d, keystore.ErrNotFound, "before Import")
	if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{ID: "key_1"}), token); !errors.Is(err, lost) {
		t.Fatalf("Import returned %v, want the store's error", err)
	}
	want(t, cached, d, nil, "after an Import that took place and failed")
	if _, err := issuer.Revoke(t.Context(), "acme", "key_1"); !errors.Is(err, lost) {
		t.Fatalf("Revoke returned %v, want the store's error", err)
	}
	want(t, cached, d, keystore.ErrRevoked, "after a Revoke that took place and failed")
	if _, _, err := issuer.Erase(t.Context(), "acme"); !errors.Is(err, lost) {
		t.Fatalf("Erase returned %v, want the store's error", err)
	}
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

// What only looks keys up stops the program at its start.
func TestNewWithAPlainStore(t *testing.T) {
	plain := struct{ keystore.Store }{issuing.NewMemory()}
	cached := keystore.NewCached(plain, keystore.CacheOptions{})
	want(t, cached, keystore.DigestOf(""), keystore.ErrNotFound, "Lookup over a plain store")
	for _, keys := range []keystore.Store{plain, cached} {
		if got := panicOf(func() { issuing.New(keys, issuing.Options{}) }); !strings.Contains(got, "is no Store") {
			t.Errorf("New with a %T: got the panic %q", keys, got)
		}
	}
}

// paid embeds a Cached and looks keys up by its own means.
type paid struct{ *keystore.Cached }

func (paid) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, keystore.ErrNotFound
}

// What embeds a Cached would lose the audit in silence, or its own methods, so
// the program does not start. With the Cached itself nothing is lost.
func TestWhatEmbedsACached(t *testing.T) {
	cached := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	for _, m := range []keystore.Store{paid{cached}, &paid{cached}, struct{ paid }{paid{cached}}} {
		for name, start := range map[string]func(){
			"issuing: New ":        func() { issuing.New(m, issuing.Options{}) },
			"keystore: NewCached ": func() { keystore.NewCached(m, keystore.CacheOptions{}) },
		} {
			if got := panicOf(start); !strings.Contains(got, "a Cached") || !strings.Contains(got, name) {
				t.Errorf("%s with a %T: got the panic %q, want one that says what it embeds", name, m, got)
			}
		}
	}

	issuer := issuing.New(paid{cached}.Cached, issuing.Options{MaxKeys: 1})
	secret, k, err := issuer.Issue(t.Context(), keystore.Key{Organization: "acme", Name: "one",
		Environment: keystore.Sandbox})
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := issuer.Audit(t.Context(), "acme", issuing.AuditQuery{Key: k.ID}); len(entries) != 1 || err != nil {
		t.Errorf("Audit: got %d entries, %v, want 1", len(entries), err)
	}
	token, err := keystore.Service{}.Parse(secret.Reveal())
	must(t, err)
	if _, err := token.Caller(t.Context(), paid{cached}, nil); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Token.Caller: got %v, want the ErrNotFound of the store that embeds", err)
	}
}

func TestNewPanics(t *testing.T) {
	for want, start := range map[string]func(){
		"issuing: New with a nil store": func() { issuing.New(nil, issuing.Options{}) },
		"a nil store":                   func() { issuing.New((*keystore.Cached)(nil), issuing.Options{}) },
		"issuing: Options with":         func() { issuing.New(issuing.NewMemory(), issuing.Options{MaxLife: -1}) },
		"a negative limit":              func() { issuing.New(issuing.NewMemory(), issuing.Options{MaxKeys: -1}) },
		"other characters": func() {
			issuing.New(issuing.NewMemory(), issuing.Options{Service: keystore.Service{Prefix: "A"}})
		},
		"two services meet": func() {
			keys, _ := issuing.InMemory(keystore.Service{})
			issuing.New(keys, issuing.Options{Service: keystore.Service{Prefix: "acme"}})
		},
	} {
		if got := panicOf(start); !strings.Contains(got, want) {
			t.Errorf("got the panic %q, want %q", got, want)
		}
	}
}
