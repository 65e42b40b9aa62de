package issuing_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
)

// A monotonic reading would be compared instead of the wall clock's time.
func TestMemoryKeepsWallTimes(t *testing.T) {
	memory := issuing.NewMemory()
	now := time.Now()
	later := now.Add(time.Second)
	k := &keystore.Key{ID: "key_1", Organization: "acme", CreatedAt: now, ExpiresAt: now, RevokedAt: now, LastUsedAt: now}
	find := func(err error) *keystore.Key {
		t.Helper()
		got, findErr := memory.Find(t.Context(), "acme", "key_1")
		if err != nil || findErr != nil {
			t.Fatal(err, findErr)
		}
		return got
	}
	inserted := find(memory.Insert(t.Context(), k, entry(), 0))
	find(memory.Update(t.Context(), &keystore.Key{ID: "key_1", Organization: "acme", Version: 1, ExpiresAt: now,
		RevokedAt: now}, entry()))
	got := find(memory.AddUses(t.Context(), []keystore.Use{{Organization: "acme", ID: "key_1", At: later}}))
	for name, pair := range map[string][2]time.Time{
		"CreatedAt": {got.CreatedAt, now}, "ExpiresAt": {got.ExpiresAt, now}, "RevokedAt": {got.RevokedAt, now},
		"LastUsedAt":          {got.LastUsedAt, later},
		"LastUsedAt at first": {inserted.LastUsedAt, now},
	} {
		if pair[0] != pair[1].Round(0) {
			t.Errorf("%s is kept as %v, want %v", name, pair[0], pair[1].Round(0))
		}
	}
}

// Where the context has ended, nothing is erased, and no use is told. But net/http
// cancels the context of a client that has closed its side of the connection, and
// such a client still reads the answer.
func TestMemoryAfterTheContext(t *testing.T) {
	store := issuing.NewMemory()
	d := add(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys, entries, err := store.Erase(ctx, "acme", nil)
	if !errors.Is(err, context.Canceled) || keys != 0 || entries != 0 {
		t.Errorf("Erase returned %d, %d, %v, want context.Canceled", keys, entries, err)
	}
	if k, err := store.Lookup(ctx, d); err != nil || k.Digest != d {
		t.Errorf("Lookup of a key that was not erased returned %v, %v, want the key", k, err)
	}
	if usage, err := store.Usage(ctx, "acme", "key_1"); !errors.Is(err, context.Canceled) || usage != nil {
		t.Errorf("Usage returned %v, %v, want context.Canceled", usage, err)
	}
}

// The feed names a key once, however often it has changed, and leaves none out.
func TestMemoryChanges(t *testing.T) {
	store := issuing.NewMemory()
	_, start, err := store.Changes(t.Context(), "")
	must(t, err)
	keys := []keystore.Digest{add(t, store), add(t, store), add(t, store)}
	for i := range 100 {
		rewrite(t, store, keys[i%2*2])
	}
	changed, _, err := store.Changes(t.Context(), start)
	sorted := func(a, b keystore.Digest) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(changed, sorted)
	slices.SortFunc(keys, sorted)
	if err != nil || !slices.Equal(changed, keys) {
		t.Errorf("Changes after 103 changes of 3 keys returned %x, %v, want each key once", changed, err)
	}
	for _, since := range []string{"104", "x", "-1", "18446744073709551615", "18446744073709551616"} {
		if _, _, err := store.Changes(t.Context(), since); err != keystore.ErrNotFound {
			t.Errorf("Changes from %q returned %v, want ErrNotFound", since, err)
		}
	}
}

// Today and the 29 days before it are kept.
func TestMemoryUsageDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := issuing.NewMemory()
		must(t, store.Insert(t.Context(), &keystore.Key{ID: "key_1", Organization: "acme"}, entry(), 0))
		for range 40 {
			use := keystore.Use{Organization: "acme", ID: "key_1", At: time.Now(), Requests: 1}
			must(t, store.AddUses(t.Context(), []keystore.Use{use}))
			time.Sleep(24 * time.Hour)
		}
		for n := 29; n >= 0; n -= 29 { // since the last use a day has passed, and then 30
			usage, err := store.Usage(t.Context(), "acme", "key_1")
			if err != nil || len(usage.Days) != n {
				t.Errorf("there are %d days, %v, want %d", len(usage.Days), err, n)
			}
			time.Sleep(29 * 24 * time.Hour)
		}
	})
}

func TestMemorySuite(t *testing.T) {
	keystoretest.Suite{
		New:         func(t *testing.T) issuing.Store { return issuing.NewMemory() },
		Unavailable: func(t *testing.T) issuing.Store { return noBackend{} },
	}.Run(t)
}

func TestCachedSuite(t *testing.T) {
	keystoretest.Suite{
		New: func(t *testing.T) issuing.Store {
			memory := issuing.NewMemory()
			return remembering{memory, keystore.NewCached(memory, keystore.CacheOptions{}), t}
		},
		Unavailable: func(t *testing.T) issuing.Store {
			return remembering{Store: noBackend{}, cached: keystore.NewCached(noBackend{}, keystore.CacheOptions{})}
		},
	}.Run(t)
}

// remembering is a store behind a Cached, whose Lookup is held to what the store
// has. The suite gets the whole key.
type remembering struct {
	issuing.Store
	cached *keystore.Cached
	t      *testing.T
}

func (r remembering) Insert(ctx context.Context, k *keystore.Key, e issuing.AuditEntry, maxKeys int) error {
	defer r.cached.Invalidate(k.Digest)
	return r.Store.Insert(ctx, k, e, maxKeys)
}

func (r remembering) Update(ctx context.Context, k *keystore.Key, e issuing.AuditEntry) error {
	defer r.cached.Invalidate(k.Digest)
	return r.Store.Update(ctx, k, e)
}

func (r remembering) Erase(ctx context.Context, organization string, entry erasure) (keys, entries int, err error) {
	defer r.cached.Invalidate()
	return r.Store.Erase(ctx, organization, entry)
}

func (r remembering) SweepAudit(ctx context.Context, before time.Time) (removed int, err error) {
	defer r.cached.Invalidate()
	return r.Store.SweepAudit(ctx, before)
}

func (r remembering) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	got, err := r.cached.Lookup(ctx, d)
	whole, wholeErr := r.Store.Lookup(ctx, d)
	if wholeErr == nil && whole.Parent != "" {
		return whole, nil // the key of a Cached has what its ancestors leave
	}
	if err != nil || wholeErr != nil {
		return got, err
	}
	want := *whole.Clone()
	want.Name, want.Hint, want.CreatedAt, want.CreatedBy, want.LastUsedAt = "", "", time.Time{}, "", time.Time{}
	want.IssueToken, want.RotatedFrom, want.Version = "", "", 0
	if !slices.Equal(got.Scopes, want.Scopes) {
		r.t.Errorf("Lookup returned the scopes %q, want %q", got.Scopes, want.Scopes)
	}
	if got.Scopes = want.Scopes; !reflect.DeepEqual(got, &want) {
		r.t.Errorf("Lookup returned %+v, want %+v", got, &want)
	}
	return whole.Clone(), nil
}

// erasure makes the entry of an erasure.
type erasure = func(keys, entries int) issuing.AuditEntry

// noBackend is a store whose backend cannot be reached.
type noBackend struct{}

var errNoBackend = errors.New("connection refused")

func (noBackend) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errNoBackend
}
func (noBackend) Find(context.Context, string, string) (*keystore.Key, error) {
	return nil, errNoBackend
}
func (noBackend) Update(context.Context, *keystore.Key, issuing.AuditEntry) error {
	return errNoBackend
}
func (noBackend) AddUses(context.Context, []keystore.Use) error { return errNoBackend }
func (noBackend) Usage(context.Context, string, string) (*issuing.Usage, error) {
	return nil, errNoBackend
}
func (noBackend) SweepAudit(context.Context, time.Time) (int, error)       { return 0, errNoBackend }
func (noBackend) Erase(context.Context, string, erasure) (int, int, error) { return 0, 0, errNoBackend }
func (noBackend) Changes(context.Context, string) ([]keystore.Digest, string, error) {
	return nil, "", errNoBackend
}

func (noBackend) Insert(context.Context, *keystore.Key, issuing.AuditEntry, int) error {
	return errNoBackend
}

func (noBackend) FindIssued(context.Context, string, string, string) (*keystore.Key, error) {
	return nil, errNoBackend
}

func (noBackend) List(context.Context, string, issuing.Query) (issuing.Listing, error) {
	return issuing.Listing{}, errNoBackend
}

func (noBackend) Audit(context.Context, string, issuing.AuditQuery) ([]issuing.AuditEntry, error) {
	return nil, errNoBackend
}

func TestMemoryLookupDoesNotAllocate(t *testing.T) {
	store := issuing.NewMemory()
	d := add(t, store)
	if got := testing.AllocsPerRun(100, func() { store.Lookup(t.Context(), d) }); got != 0 {
		t.Errorf("Lookup allocates %v times, want 0", got)
	}
}

func BenchmarkMemoryLookup(b *testing.B) {
	ctx := context.Background()
	memory := issuing.NewMemory()
	secret, _, err := issuing.New(memory, issuing.Options{}).
		Issue(ctx, keystore.Key{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		b.Fatal(err)
	}
	d := keystore.DigestOf(secret.Reveal())
	b.ReportAllocs()
	for b.Loop() {
		memory.Lookup(ctx, d)
	}
}
