package keystoretest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
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
		ID: unique("key"), Organization: organization, Environment: keystore.Sandbox, Name: "Nightly import",
		Hint: "x7Q9", Legacy: "v1", Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
		Attributes: map[string]string{"plan": "pro", "team": "Frankfurt"},
		Networks:   networks("2001:db8::/32", "192.0.2.7/32"),
		CreatedAt:  at(0), CreatedBy: unique("user"), ExpiresAt: at(24 * time.Hour),
		RotatedFrom: unique("key"), IssueToken: unique("token"), Version: 1,
	}
	rand.Read(k.Digest[:])
	return k
}

// childOf returns a new key with a parent, which replaces none.
func childOf(parent *keystore.Key) *keystore.Key {
	k := newKey(parent.Organization)
	k.Parent, k.RotatedFrom = parent.ID, ""
	return k
}

// What may become of a key.
func unchanged(*keystore.Key)      {}
func suspended(k *keystore.Key)    { k.Suspended = true }
func expired(k *keystore.Key)      { k.ExpiresAt = at(-time.Second) }
func endless(k *keystore.Key)      { k.ExpiresAt = time.Time{} }
func revoked(k *keystore.Key)      { k.RevokedAt = at(-time.Second) }
func revokedLater(k *keystore.Key) { k.RevokedAt = at(time.Hour) }

// at returns a time that many from now, as exact as every store keeps it.
func at(d time.Duration) time.Time { return time.Now().Add(d).UTC().Truncate(time.Microsecond) }

func networks(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// noError ends the case if a call has failed.
func (t test) noError(err error, call string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s returned %v, want no error", call, err)
	}
}

// must returns what a call has returned, and ends the case if it has failed.
func must[T any](got T, err error) func(t test, call string) T {
	return func(t test, call string) T {
		t.Helper()
		t.noError(err, call)
		return got
	}
}

func (t test) tryInsert(k *keystore.Key) error { return t.Insert(t.Context(), k, newEntry(k), 0) }
func (t test) tryUpdate(k *keystore.Key) error { return t.Update(t.Context(), k, newEntry(k)) }

// insert stores keys, and returns the entry about the last one.
func (t test) insert(keys ...*keystore.Key) (e issuing.AuditEntry) {
	t.Helper()
	for _, k := range keys {
		e = newEntry(k)
		t.noError(t.Insert(t.Context(), k, e, 0), "Insert of a new key")
	}
	return e
}

// inserted returns a key that the store has, of an organization of its own.
func (t test) inserted() *keystore.Key {
	t.Helper()
	k := newKey(unique("org"))
	t.insert(k)
	return k
}

// update changes the stored key to k, and k to what is then stored.
func (t test) update(k *keystore.Key) {
	t.Helper()
	t.noError(t.tryUpdate(k), "Update of the latest version")
	k.Version++
}

func (t test) find(k *keystore.Key) *keystore.Key {
	t.Helper()
	return must(t.Find(t.Context(), k.Organization, k.ID))(t, "Find of a key that was inserted")
}

func (t test) lookup(k *keystore.Key) *keystore.Key {
	t.Helper()
	return must(t.Lookup(t.Context(), k.Digest))(t, "Lookup of a key that was inserted")
}

// read asks for k by each method that returns one key.
func (t test) read(ctx context.Context, k *keystore.Key, f func(method string, got *keystore.Key, err error)) {
	t.Helper()
	got, err := t.Lookup(ctx, k.Digest)
	f("Lookup", got, err)
	got, err = t.Find(ctx, k.Organization, k.ID)
	f("Find", got, err)
	if k.IssueToken != "" {
		got, err = t.FindIssued(ctx, k.Organization, k.CreatedBy, k.IssueToken)
		f("FindIssued", got, err)
	}
}

// keeps wants k from each of these methods as it was stored, and returns what
// they have returned.
func (t test) keeps(k *keystore.Key, rule string) (all []*keystore.Key) {
	t.Helper()
	t.read(t.Context(), k, func(method string, got *keystore.Key, err error) {
		t.Helper()
		t.noError(err, method+" of "+rule)
		t.same(method+" of "+rule, got, k)
		all = append(all, got)
	})
	return all
}

// same reports each field in which got is not the key that was stored. Times
// are compared as instants, and LastUsedAt and Ancestors are left to the cases
// of AddUses and Child.
func (t test) same(method string, got, want *keystore.Key) {
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
func (t test) survives(k *keystore.Key, what string) {
	t.Helper()
	t.insert(k)
	t.same("Lookup, where "+what+" have to survive,", t.lookup(k), k)
	k.Name = "renamed"
	t.update(k)
	t.same("Lookup after a rename", t.lookup(k), k)
}

// spoil changes a key in place, and what a copy of it could share with it.
func spoil(k *keystore.Key) {
	k.Organization, k.Name, k.RevokedAt = "changed", "changed", at(0)
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
func (t test) wantError(err, want error, rule string) {
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

// allWin reports the errors of calls that were made at once.
func (t test) allWin(errs []error, rule string) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Errorf("%s: one of %d concurrent calls returned %v, want nil", rule, len(errs), err)
		}
	}
}

// oneWins reports whether exactly one of the errors is nil and every other one
// wraps refusal, and returns which one won.
func (t test) oneWins(errs []error, refusal error, rule string) int {
	t.Helper()
	winner, winners := -1, 0
	for i, err := range errs {
		if err == nil {
			winner = i
			winners++
		} else {
			t.wantError(err, refusal, rule)
		}
	}
	if winners != 1 {
		t.Fatalf("%s: %d of %d concurrent calls succeeded, want exactly 1", rule, winners, len(errs))
	}
	return winner
}
