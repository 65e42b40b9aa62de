package keystoretest

import (
	"context"
	"errors"
	"slices"
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

// ended returns a context that has ended.
func (t test) ended() context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

var contextCases = []testCase{
	{"Context/Reads", func(t test) {
		k := t.inserted()
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		for _, ctx := range []context.Context{t.ended(), expired} {
			t.read(ctx, k, func(method string, _ *keystore.Key, err error) {
				if isRefusal(err) {
					t.Errorf("%s of a key that exists, with a context that has ended, returned %v, want the key or "+
						"an error that says nothing about it", method, err)
				}
			})
			page, err := t.List(ctx, k.Organization, issuing.Query{})
			if isRefusal(err) || err == nil && len(page.Keys) != 1 {
				t.Errorf("List with a context that has ended returned %d keys and %v, want the page or an error that "+
					"says nothing about keys", len(page.Keys), err)
			}
		}
	}},

	{"Context/Writes", func(t test) {
		k := newKey(unique("org"))
		err := t.Insert(t.ended(), k, newEntry(k), 1)
		_, lookupErr := t.Lookup(t.Context(), k.Digest)
		entries := len(t.audit(k.Organization, issuing.AuditQuery{}))
		if isRefusal(err) || err == nil && lookupErr != nil || (lookupErr == nil) != (entries == 1) {
			t.Fatalf("Insert with a context that has ended returned %v, and left a key (%v) and %d entries: "+
				"want both or, with an error that says nothing about the key, neither", err, lookupErr, entries)
		}
		if lookupErr != nil {
			t.insert(k)
		}
		k.Suspended = true
		err = t.Update(t.ended(), k, newEntry(k))
		if got := t.find(k); err == nil && !got.Suspended || isRefusal(err) {
			t.Errorf("Update with a context that has ended returned %v and left Suspended %v: want nil and the "+
				"change, or an error that says nothing about the key", err, got.Suspended)
		}
	}},

	{"Context/AddUses", func(t test) {
		k, now := t.inserted(), at(0)
		if err := t.AddUses(t.ended(), []keystore.Use{use(k, now)}); err == nil {
			t.wantUsed(k, now, "AddUses with a context that has ended returned nil")
		}
	}},

	{"Context/Changes", func(t test) {
		k, start := t.inserted(), t.position()
		t.update(k)
		if changed, _, err := t.Changes(t.ended(), start); err == nil && !slices.Contains(changed, k.Digest) ||
			isRefusal(err) {
			t.Errorf("Changes with a context that has ended returned %d keys and %v, want the changed key, or an "+
				"error that says nothing about the position", len(changed), err)
		}
	}},
}

// unavailable needs a store of its own, see [Suite].
var unavailable = testCase{"Unavailable", func(t test) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	k, errs := newKey(unique("org")), make(map[string]error)
	t.read(ctx, k, func(method string, _ *keystore.Key, err error) { errs[method] = err })
	_, errs["List"] = t.List(ctx, k.Organization, issuing.Query{})
	errs["Insert"], errs["Update"] = t.Insert(ctx, k, newEntry(k), 0), t.Update(ctx, k, newEntry(k))
	errs["AddUses"] = t.AddUses(ctx, []keystore.Use{use(k, at(0))})
	_, errs["Usage"] = t.Usage(ctx, k.Organization, k.ID)
	_, _, errs["Changes"] = t.Changes(ctx, "")
	_, errs["Audit"] = t.Audit(ctx, k.Organization, issuing.AuditQuery{})
	_, errs["SweepAudit"] = t.SweepAudit(ctx, at(-time.Hour))
	_, _, errs["Erase"] = t.Erase(ctx, k.Organization, func(int, int) issuing.AuditEntry { return newEntry(k) })
	for method, err := range errs {
		if err == nil || isRefusal(err) {
			t.Errorf("%s of a store that cannot be reached returned %v, want an error that says nothing about the key",
				method, err)
		}
	}
}}
