package keystoretest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// unique returns a text that no other case uses, also in a shared store.
func unique(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }

// newKey returns a key of the organization with every field set that a store
// has to keep.
func newKey(organization string) *keystore.Key {
	k := &keystore.Key{
		ID:           unique("key"),
		Organization: organization,
		Environment:  keystore.Sandbox,
		Name:         "Nightly import",
		Hint:         "x7Q9",
		Scopes:       []scope.Name{scope.TasksRead, scope.TasksWrite},
		Attributes:   map[string]string{"plan": "pro", "team": "Frankfurt"},
		Networks:     []netip.Prefix{netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("192.0.2.7/32")},
		Legacy:       "v1",
		CreatedAt:    at(0),
		CreatedBy:    unique("user"),
		ExpiresAt:    at(24 * time.Hour),
		RotatedFrom:  unique("key"),
		IssueToken:   unique("token"),
		Version:      1,
	}
	rand.Read(k.Digest[:])
	return k
}

// at returns a time that many from now, as exact as every store keeps it.
func at(d time.Duration) time.Time {
	return time.Now().Add(d).UTC().Truncate(time.Microsecond)
}

// insert stores keys, and returns the entry about the last one.
func insert(t testing.TB, m issuing.Store, keys ...*keystore.Key) (e issuing.AuditEntry) {
	t.Helper()
	for _, k := range keys {
		e = newEntry(k)
		if err := m.Insert(t.Context(), k, e, 0); err != nil {
			t.Fatalf("Insert of a new key returned %v, want nil", err)
		}
	}
	return e
}

// inserted returns a key that the store has, of an organization of its own.
func inserted(t testing.TB, m issuing.Store) *keystore.Key {
	t.Helper()
	k := newKey(unique("org"))
	insert(t, m, k)
	return k
}

func find(t testing.TB, m issuing.Store, k *keystore.Key) *keystore.Key {
	t.Helper()
	got, err := m.Find(t.Context(), k.Organization, k.ID)
	if err != nil {
		t.Fatalf("Find of a key that was inserted returned %v, want the key", err)
	}
	return got
}

func findIssued(t testing.TB, m issuing.Store, k *keystore.Key) *keystore.Key {
	t.Helper()
	got, err := m.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
	if err != nil {
		t.Fatalf("FindIssued of the token %q, which made a key, returned %v, want the key", k.IssueToken, err)
	}
	return got
}

func lookup(t testing.TB, m issuing.Store, k *keystore.Key) *keystore.Key {
	t.Helper()
	got, err := m.Lookup(t.Context(), k.Digest)
	if err != nil {
		t.Fatalf("Lookup of a key that was inserted returned %v, want the key", err)
	}
	return got
}

func update(t testing.TB, m issuing.Store, k *keystore.Key) {
	t.Helper()
	if err := m.Update(t.Context(), k, newEntry(k)); err != nil {
		t.Fatalf("Update of the latest version returned %v, want nil", err)
	}
}

// same reports each field in which got is not the key that was stored. Times
// are compared as instants, and LastUsedAt and Ancestors are left to the cases
// of AddUses and Child.
func same(t testing.TB, method string, got, want *keystore.Key) {
	t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[keystore.Key]()) {
		if !field.IsExported() || field.Name == "LastUsedAt" || field.Name == "Ancestors" {
			continue
		}
		a, b := reflect.ValueOf(*got).FieldByIndex(field.Index), reflect.ValueOf(*want).FieldByIndex(field.Index)
		equal := reflect.DeepEqual(a.Interface(), b.Interface())
		switch field.Type.Kind() {
		case reflect.Slice, reflect.Map:
			equal = equal || a.Len() == 0 && b.Len() == 0
		case reflect.Struct:
			equal = a.Interface().(time.Time).Equal(b.Interface().(time.Time))
		}
		if !equal {
			t.Errorf("%s returned %s %q, want %q as it was stored", method, field.Name, fmt.Sprint(a), fmt.Sprint(b))
		}
	}
}

// survives inserts k and changes its name, and reports what a lookup does not
// return as it went in.
func survives(t testing.TB, m issuing.Store, k *keystore.Key, what string) {
	t.Helper()
	insert(t, m, k)
	same(t, "Lookup, where "+what+" have to survive,", lookup(t, m, k), k)
	k.Name = "renamed"
	update(t, m, k)
	k.Version++
	same(t, "Lookup after a rename", lookup(t, m, k), k)
}

// spoilShared changes in place what a copy of a key could share with it.
func spoilShared(k *keystore.Key) {
	for i := range k.Scopes {
		k.Scopes[i] = scope.WebhooksWrite
	}
	for name := range k.Attributes {
		k.Attributes[name] = "changed"
	}
	for i := range k.Networks {
		k.Networks[i] = netip.MustParsePrefix("203.0.113.0/24")
	}
}

// wantError reports an error that does not wrap want.
func wantError(t testing.TB, err, want error, rule string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want an error that wraps %v", rule, err, want)
	}
}

// atOnce calls f from n goroutines that start together and returns the errors.
func atOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	running.Wait()
	return errs
}

// oneWins reports whether exactly one of the errors is nil and every other one
// wraps refusal, and returns which one won.
func oneWins(t testing.TB, errs []error, refusal error, rule string) int {
	t.Helper()
	winner, winners := -1, 0
	for i, err := range errs {
		if err == nil {
			winner = i
			winners++
		} else {
			wantError(t, err, refusal, rule)
		}
	}
	if winners != 1 {
		t.Fatalf("%s: %d of %d concurrent calls succeeded, want exactly 1", rule, winners, len(errs))
	}
	return winner
}
