package keystore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

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
	_, _, changesErr := cached.Changes(ctx, "")
	for method, err := range map[string]error{
		"Insert": cached.Insert(ctx, k), "Update": cached.Update(ctx, k), "Find": findErr, "FindIssued": issuedErr,
		"List": listErr, "Touch": cached.Touch(ctx, nil), "Changes": changesErr, "Run": cached.Run(ctx),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s over a plain store returned %v, want an error that wraps errors.ErrUnsupported", method, err)
		}
	}
}

// After a revocation has returned, nobody ever gets the key again, whatever
// else is going on.
func TestCachedRevocationHolds(t *testing.T) {
	memory := keystore.NewMemory()
	cached := keystore.NewCached(memory, keystore.CacheOptions{TTL: time.Hour, Timeout: time.Hour})
	issuer := keystore.NewIssuer(cached, keystore.IssuerOptions{})
	for range 200 {
		token, k := issue(t, issuer, grant())
		d := keystore.DigestOf(token)
		revoked := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for range 50 {
					var before bool
					select {
					case <-revoked:
						before = true
					default:
					}
					k, err := cached.Lookup(t.Context(), d)
					if err != nil {
						t.Errorf("Lookup returned %v, want the key", err)
					} else if before && k.Refused() == nil {
						t.Error("a lookup that began after Revoke returned found the key live")
					}
				}
			})
		}
		if _, err := issuer.Revoke(t.Context(), "acme", k.ID); err != nil {
			t.Error(err)
		}
		close(revoked)
		readers.Wait()
	}
}

// A Cached forgets the changes that it passes on, everything with the first
// position, and nothing when the feed failed.
func TestCachedChangesForgets(t *testing.T) {
	store := newFeedFake()
	cached := keystore.NewCached(store, keystore.CacheOptions{})
	changed, kept := store.add(t), store.add(t)
	_, since, err := store.Changes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	load := func(want int64, rule string) {
		t.Helper()
		cached.Lookup(t.Context(), changed)
		cached.Lookup(t.Context(), kept)
		store.wantCalls(t, want, rule)
	}
	load(2, "the first look-ups")
	store.edit(t, changed, suspended)
	got, next, err := cached.Changes(t.Context(), since)
	if err != nil || len(got) != 1 || got[0] != changed {
		t.Errorf("Changes returned %x, %v, want the key that was changed", got, err)
	}
	if _, want, _ := store.Changes(t.Context(), ""); next != want {
		t.Errorf("Changes returned the position %q, want that of the store, %q", next, want)
	}
	load(1, "after the change of one key")
	if _, _, err := cached.Changes(t.Context(), ""); err != nil {
		t.Error(err)
	}
	load(2, "after the first position")
	store.changes.set(func(context.Context, string) ([]keystore.Digest, string, error) { return nil, "", errStoreDown })
	if _, _, err := cached.Changes(t.Context(), ""); !errors.Is(err, errStoreDown) {
		t.Errorf("got %v, want the error of the feed", err)
	}
	load(0, "after a feed that failed")
}
