package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

// An unknown token becomes a key as soon as Insert has returned.
func TestCachedInsert(t *testing.T) {
	store := newFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	k := &keystore.Key{ID: "key_1", Organization: "acme", Environment: keystore.Sandbox, Digest: unknown(1)}
	want(t, cached, k.Digest, keystore.ErrNotFound, "before Insert")
	if err := cached.Insert(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	want(t, cached, k.Digest, nil, "after Insert")
}

// A write that took place and reported an error is noticed all the same.
func TestCachedForgetsAfterFailedWrites(t *testing.T) {
	store := newFake()
	lost := errors.New("connection lost")
	cached := keystore.NewCached(losing{store, lost}, keystore.CacheOptions{})
	d := store.add(t)
	want(t, cached, d, nil, "before Update")
	k, err := store.Memory.Lookup(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	k = k.Clone()
	k.Suspended = true
	if err := cached.Update(t.Context(), k); !errors.Is(err, lost) {
		t.Fatalf("Update returned %v, want the store's error", err)
	}
	want(t, cached, d, keystore.ErrSuspended, "after an Update that took place and failed")

	inserted := &keystore.Key{ID: "key_2", Organization: "acme", Environment: keystore.Sandbox, Digest: unknown(1)}
	want(t, cached, inserted.Digest, keystore.ErrNotFound, "before Insert")
	if err := cached.Insert(t.Context(), inserted); !errors.Is(err, lost) {
		t.Fatalf("Insert returned %v, want the store's error", err)
	}
	want(t, cached, inserted.Digest, nil, "after an Insert that took place and failed")
}

// losing writes and then says that it could not.
type losing struct {
	keystore.Manager
	err error
}

func (l losing) Insert(ctx context.Context, k *keystore.Key) error {
	return errors.Join(l.Manager.Insert(ctx, k), l.err)
}

func (l losing) Update(ctx context.Context, k *keystore.Key) error {
	return errors.Join(l.Manager.Update(ctx, k), l.err)
}

func TestCachedOverPlainStore(t *testing.T) {
	memory := keystore.NewMemory()
	cached := keystore.NewCached(struct{ keystore.Store }{memory}, keystore.CacheOptions{})
	want(t, cached, unknown(1), keystore.ErrNotFound, "Lookup over a plain store")
	ctx, k := t.Context(), &keystore.Key{}
	_, findErr := cached.Find(ctx, "acme", "key_1")
	_, issuedErr := cached.FindIssued(ctx, "acme", "ada", "form-1")
	_, listErr := cached.List(ctx, "acme", keystore.Page{})
	_, usageErr := cached.Usage(ctx, "acme", "key_1")
	for method, err := range map[string]error{
		"Insert": cached.Insert(ctx, k), "Update": cached.Update(ctx, k), "Find": findErr, "FindIssued": issuedErr,
		"List": listErr, "Usage": usageErr, "Touch": cached.Touch(ctx, nil), "Run": cached.Run(ctx),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s over a plain store returned %v, want an error that wraps errors.ErrUnsupported", method, err)
		}
	}

	// What a store has beside Lookup works.
	k.ID = "key_1"
	manages := keystore.NewCached(struct{ keystore.Manager }{memory}, keystore.CacheOptions{})
	if err := manages.Insert(ctx, k); err != nil || !errors.Is(manages.Touch(ctx, nil), errors.ErrUnsupported) {
		t.Errorf("over a Manager that is no Toucher Insert returned %v, and Touch none", err)
	}
	issuer := keystore.NewIssuer(struct{ keystore.Manager }{memory}, keystore.IssuerOptions{})
	if _, err := issuer.Usage(ctx, "", "key_1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Issuer.Usage over a Manager that is no UsageReader returned %v, want errors.ErrUnsupported", err)
	}
	type touching struct {
		keystore.Store
		keystore.Toucher
	}
	if err := keystore.NewCached(touching{memory, memory}, keystore.CacheOptions{}).Touch(ctx, nil); err != nil {
		t.Errorf("over a Toucher Touch returned %v", err)
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
	cached := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	for _, m := range []keystore.Manager{paid{cached}, &paid{cached}, struct{ paid }{paid{cached}}} {
		for name, start := range map[string]func(){
			"NewIssuer": func() { keystore.NewIssuer(m, keystore.IssuerOptions{}) },
			"NewCached": func() { keystore.NewCached(m, keystore.CacheOptions{}) },
		} {
			if got := panicOf(start); !strings.Contains(got, "a Cached") || !strings.Contains(got, name) {
				t.Errorf("%s with a %T: got the panic %q, want one that says what it embeds", name, m, got)
			}
		}
	}

	issuer := keystore.NewIssuer(paid{cached}.Cached, keystore.IssuerOptions{Policy: keystore.Policy{MaxKeys: 1}})
	secret, k, err := issuer.Issue(t.Context(), keystore.Grant{Organization: "acme", Name: "one",
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
	if _, err := token.Lookup(t.Context(), paid{cached}); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Token.Lookup: got %v, want the ErrNotFound of the store that embeds", err)
	}
	if _, err := token.Caller(t.Context(), paid{cached}, nil); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Token.Caller: got %v, want the ErrNotFound of the store that embeds", err)
	}
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}
