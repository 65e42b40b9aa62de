package keystore_test

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// A fake is a store in memory that counts lookups and does what a test wants before or
// instead of them.
type fake struct {
	issuing.Store
	calls  atomic.Int64
	lines  int // keys that line has made
	lookup hook[lookupFunc]
}

type lookupFunc = func(ctx context.Context, d keystore.Digest) (*keystore.Key, error)

// A hook is a function that a test can replace while it is used.
type hook[F any] struct{ f atomic.Pointer[F] }

func (h *hook[F]) set(f F) { h.f.Store(&f) }
func (h *hook[F]) get() F  { return *h.f.Load() }

func newFake() *fake {
	f := &fake{Store: issuing.NewMemory()}
	f.lookup.set(f.Store.Lookup)
	return f
}

// newCached returns a fake and a Cached in front of it, without a Timeout that a
// loaded machine may need.
func newCached(o keystore.CacheOptions) (*fake, *keystore.Cached) {
	f := newFake()
	o.Timeout = cmp.Or(o.Timeout, time.Hour)
	return f, keystore.NewCached(f, o)
}

func (f *fake) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	f.calls.Add(1)
	return f.lookup.get()(ctx, d)
}

// slow makes the store hold each answer back for so long.
func (f *fake) slow(takes time.Duration) {
	f.lookup.set(func(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
		k, err := f.Store.Lookup(ctx, d)
		time.Sleep(takes)
		return k, err
	})
}

// wantCalls reports a number of lookups since the last time that is not want.
func (f *fake) wantCalls(t testing.TB, want int64, rule string) {
	t.Helper()
	if got := f.calls.Swap(0); got != want {
		t.Errorf("%s: the store was asked %d times, want %d", rule, got, want)
	}
}

// add stores a key and returns its digest.
func (f *fake) add(t testing.TB, change ...func(k *keystore.Key)) keystore.Digest {
	t.Helper()
	token := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
	k := &keystore.Key{ID: "key_" + token[9:20], Digest: keystore.DigestOf(token), Organization: "acme",
		Environment: keystore.Sandbox}
	for _, c := range change {
		c(k)
	}
	must(t, f.Insert(t.Context(), k, issuing.AuditEntry{}, 0))
	return k.Digest
}

// edit changes a key in the store behind the back of any cache.
func (f *fake) edit(t testing.TB, d keystore.Digest, change func(k *keystore.Key)) {
	t.Helper()
	k, err := f.Store.Lookup(t.Context(), d)
	must(t, err)
	k = k.Clone()
	change(k)
	must(t, f.Update(t.Context(), k, issuing.AuditEntry{}))
}

func suspended(k *keystore.Key) { k.Suspended = true }

// must ends the test for an error of its set-up.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unknown returns the n-th of many digests that no key has.
func unknown(n int) (d keystore.Digest) {
	for i := range 8 {
		d[i] = byte(n >> (8 * i))
	}
	d[31] = 1
	return d
}

// imported is a key of an older system.
func imported(t testing.TB, i *issuing.Issuer, old keystore.Key) *keystore.Key {
	t.Helper()
	old.Organization, old.Environment = "acme", keystore.Sandbox
	k, err := i.Import(t.Context(), old, "")
	must(t, err)
	return k
}

var errStoreDown = errors.New("store is down")

func grant() keystore.Key {
	return keystore.Key{Organization: "acme", Name: "Nightly import", Environment: keystore.Sandbox,
		Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite}}
}

// issue issues a key as ada.
func issue(t testing.TB, i *issuing.Issuer, g keystore.Key) (string, *keystore.Key) {
	t.Helper()
	secret, k, err := i.By("ada", "").Issue(t.Context(), g)
	if err != nil {
		t.Fatalf("Issue(%+v) returned %v, want a key", g, err)
	}
	return secret.Reveal(), k
}
