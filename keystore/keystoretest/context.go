package keystoretest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// refusals are the errors that say something about a key. A store that could
// not answer must return none of them.
var refusals = []error{keystore.ErrNotFound, issuing.ErrExists, issuing.ErrConflict, issuing.ErrRotated,
	issuing.ErrTooManyKeys}

func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) })
}

// reads asks for k in every way and returns the errors by method.
func reads(ctx context.Context, m issuing.Store, k *keystore.Key) map[string]error {
	_, lookup := m.Lookup(ctx, k.Digest)
	_, find := m.Find(ctx, k.Organization, k.ID)
	_, issued := m.FindIssued(ctx, k.Organization, k.CreatedBy, k.IssueToken)
	_, list := m.List(ctx, k.Organization, issuing.Query{})
	return map[string]error{"Lookup": lookup, "Find": find, "FindIssued": issued, "List": list}
}

var contextCases = []testCase{
	{"Context/Reads", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		for _, ctx := range []context.Context{cancelled, expired} {
			for method, err := range reads(ctx, m, k) {
				if isRefusal(err) {
					t.Errorf("%s of a key that exists, with a context that has ended, returned %v, want the key or "+
						"an error that says nothing about it", method, err)
				}
			}
			if page, err := m.List(ctx, k.Organization, issuing.Query{}); err == nil && len(page.Keys) != 1 {
				t.Errorf("List with a context that has ended returned %d keys and no error, want the page or an error",
					len(page.Keys))
			}
		}
	}},

	{"Context/Writes", func(t testing.TB, m issuing.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		k := newKey(unique("org"))
		err := m.Insert(ctx, k, newEntry(k), 0)
		_, lookupErr := m.Lookup(t.Context(), k.Digest)
		if err == nil && lookupErr != nil || isRefusal(err) {
			t.Fatalf("Insert with a context that has ended returned %v, and Lookup afterwards %v: want nil and the "+
				"key, or an error that says nothing about it", err, lookupErr)
		}
		if lookupErr != nil {
			insert(t, m, k)
		}
		k.Suspended = true
		err = m.Update(ctx, k, newEntry(k))
		if got := find(t, m, k); err == nil && !got.Suspended || isRefusal(err) {
			t.Errorf("Update with a context that has ended returned %v and left Suspended %v: want nil and the "+
				"change, or an error that says nothing about the key", err, got.Suspended)
		}
	}},

	{"Context/AddUses", func(t testing.TB, m issuing.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		k := inserted(t, m)
		now := at(0)
		if err := m.AddUses(ctx, []keystore.Use{use(k, now)}); err == nil {
			wantUsed(t, m, k, now, "AddUses with a context that has ended returned nil")
		}
	}},

	{"Context/Changes", func(t testing.TB, m issuing.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		k := inserted(t, m)
		_, start, err := m.Changes(t.Context(), "")
		if err != nil {
			t.Fatalf("Changes returned %v, want nil", err)
		}
		update(t, m, k)
		if changed, _, err := m.Changes(ctx, start); err == nil && !slices.Contains(changed, k.Digest) ||
			isRefusal(err) {
			t.Errorf("Changes with a context that has ended returned %d keys and %v, want the changed key, or an "+
				"error that says nothing about the position", len(changed), err)
		}
	}},
}

// unavailable needs a store of its own, see [Suite].
var unavailable = testCase{"Unavailable", func(t testing.TB, m issuing.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	k := newKey(unique("org"))
	errs := reads(ctx, m, k)
	errs["Insert"], errs["Update"] = m.Insert(ctx, k, newEntry(k), 0), m.Update(ctx, k, newEntry(k))
	errs["AddUses"] = m.AddUses(ctx, []keystore.Use{use(k, at(0))})
	_, errs["Usage"] = m.Usage(ctx, k.Organization, k.ID)
	_, _, errs["Changes"] = m.Changes(ctx, "")
	_, errs["Audit"] = m.Audit(ctx, k.Organization, "", "")
	_, errs["SweepAudit"] = m.SweepAudit(ctx, at(-time.Hour))
	_, _, errs["Erase"] = m.Erase(ctx, k.Organization)
	for method, err := range errs {
		if err == nil || isRefusal(err) {
			t.Errorf("%s of a store that cannot be reached returned %v, want an error that says nothing about the key",
				method,
				err)
		}
	}
}}
