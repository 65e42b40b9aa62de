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
	cached := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	issuer := issuing.New(cached, issuing.Options{})
	token := sandboxToken()
	d := keystore.DigestOf(token)
	want(t, cached, d, keystore.ErrNotFound, "before Import")
	if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{}), token); err != nil {
		t.Fatal(err)
	}
	want(t, cached, d, nil, "after Import")
}

// A write that took place and reported an error is noticed all the same, over a
// store that keeps the audit and over one that does not.
func TestFailedWritesAreSeen(t *testing.T) {
	lost := errors.New("connection lost")
	for name, store := range map[string]issuing.Manager{
		"Manager": losing{issuing.NewMemory(), lost},
		"Auditor": losingAuditor{issuing.NewMemory(), lost},
	} {
		cached := keystore.NewCached(store, keystore.CacheOptions{})
		issuer := issuing.New(cached, issuing.Options{})
		token := sandboxToken()
		d := keystore.DigestOf(token)
		want(t, cached, d, keystore.ErrNotFound, name+": before Import")
		if _, err := issuer.Import(t.Context(), record(grant(), keystore.Key{ID: "key_1"}), token); !errors.Is(err, lost) {
			t.Fatalf("%s: Import returned %v, want the store's error", name, err)
		}
		want(t, cached, d, nil, name+": after an Import that took place and failed")
		if _, err := issuer.Revoke(t.Context(), "acme", "key_1"); !errors.Is(err, lost) {
			t.Fatalf("%s: Revoke returned %v, want the store's error", name, err)
		}
		want(t, cached, d, keystore.ErrRevoked, name+": after a Revoke that took place and failed")
	}
}

// An erasure that took place and reported an error is noticed too.
func TestFailedErasureIsSeen(t *testing.T) {
	lost := errors.New("connection lost")
	store := losingAuditor{Auditor: issuing.NewMemory()}
	cached := keystore.NewCached(&store, keystore.CacheOptions{})
	issuer := issuing.New(cached, issuing.Options{})
	token, _ := issue(t, issuer, grant())
	d := keystore.DigestOf(token)
	want(t, cached, d, nil, "before Erase")
	store.err = lost
	if _, _, err := issuer.Erase(t.Context(), "acme"); !errors.Is(err, lost) {
		t.Fatalf("Erase returned %v, want the store's error", err)
	}
	want(t, cached, d, keystore.ErrNotFound, "after an Erase that took place and failed")
}

// losing writes and then says that it could not.
type losing struct {
	issuing.Manager
	err error
}

func (l losing) Insert(ctx context.Context, k *keystore.Key) error {
	return errors.Join(l.Manager.Insert(ctx, k), l.err)
}

func (l losing) Update(ctx context.Context, k *keystore.Key) error {
	return errors.Join(l.Manager.Update(ctx, k), l.err)
}

// losingAuditor does so as an Auditor.
type losingAuditor struct {
	issuing.Auditor
	err error
}

func (l losingAuditor) InsertAudited(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	return errors.Join(l.Auditor.InsertAudited(ctx, k, e, maxKeys), l.err)
}

func (l losingAuditor) UpdateAudited(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	return errors.Join(l.Auditor.UpdateAudited(ctx, k, e), l.err)
}

func (l losingAuditor) Erase(ctx context.Context, organization string) (keys, entries int, err error) {
	keys, entries, err = l.Auditor.Erase(ctx, organization)
	return keys, entries, errors.Join(err, l.err)
}

// TestStoresThatCannot: what a store lacks stops the program at its start, or
// is an error that wraps errors.ErrUnsupported.
func TestStoresThatCannot(t *testing.T) {
	memory := issuing.NewMemory()
	plain := struct{ keystore.Store }{memory}
	cached := keystore.NewCached(plain, keystore.CacheOptions{})
	want(t, cached, keystore.DigestOf(""), keystore.ErrNotFound, "Lookup over a plain store")
	for _, keys := range []keystore.Store{plain, cached} {
		if got := panicOf(func() { issuing.New(keys, issuing.Options{}) }); !strings.Contains(got,
			"is no Manager") {
			t.Errorf("New with a %T: got the panic %q", keys, got)
		}
	}
	manager := struct{ issuing.Manager }{memory}
	issuer := issuing.New(keystore.NewCached(manager, keystore.CacheOptions{}), issuing.Options{})
	issue(t, issuer, grant())
	_, usageErr := issuer.Usage(t.Context(), "", "key_1")
	_, auditErr := issuer.Audit(t.Context(), "", "", "")
	for what, err := range map[string]error{"Usage": usageErr, "Audit": auditErr} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Issuer.%s returned %v, want errors.ErrUnsupported", what, err)
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
	if entries, err := issuer.Audit(t.Context(), "acme", k.ID, ""); len(entries) != 1 || err != nil {
		t.Errorf("Audit: got %d entries, %v, want 1", len(entries), err)
	}
	token, err := keystore.Service{}.Parse(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := token.Caller(t.Context(), paid{cached}, nil); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Token.Caller: got %v, want the ErrNotFound of the store that embeds", err)
	}
}

func TestNewPanics(t *testing.T) {
	for want, start := range map[string]func(){
		"issuing: New with a nil store": func() { issuing.New(nil, issuing.Options{}) },
		"a nil store":                   func() { issuing.New((*keystore.Cached)(nil), issuing.Options{}) },
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
