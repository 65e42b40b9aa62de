package keystoretest

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// family inserts n keys, each the child of the one before.
func (t test) family(n int) []*keystore.Key {
	t.Helper()
	keys := []*keystore.Key{newKey(unique("org"))}
	for len(keys) < n {
		keys = append(keys, childOf(keys[len(keys)-1]))
	}
	t.insert(keys...)
	return keys
}

// wantAncestors reads k by each method.
func (t test) wantAncestors(k *keystore.Key, rule string, want ...*keystore.Key) {
	t.Helper()
	for _, got := range t.keeps(k, rule) {
		if !slices.Equal(ids(got.Ancestors), ids(want)) {
			t.Fatalf("%s came with the ancestors %v, want %v", rule, ids(got.Ancestors), ids(want))
		}
		for i, a := range got.Ancestors {
			t.same("an ancestor of "+rule, a, want[i])
			if len(a.Ancestors) > 0 {
				t.Errorf("%s came with an ancestor that has ancestors", rule)
			}
		}
	}
}

var childCases = []testCase{
	{"Child/Ancestors", func(t test) {
		keys := t.family(5)
		other := newKey(keys[0].Organization)
		other.Ancestors = keys[:1]
		t.insert(other)
		t.wantAncestors(other, "a key without a parent")
		t.wantAncestors(keys[1], "a child", keys[0])
		t.wantAncestors(keys[2], "the child of a child", keys[1], keys[0])
		t.wantAncestors(keys[3], "the child of that", keys[2], keys[1], keys[0])
		t.wantAncestors(keys[4], "a child that is too far down", keys[3], keys[2], keys[1])
		above := []*keystore.Key{keys[2], keys[1], keys[0]}
		for _, a := range above { // what each may is what the child may
			for _, change := range []func(k *keystore.Key){edit, expired, endless, revoked, suspended} {
				change(a)
				t.update(a)
				t.wantAncestors(keys[3], "a child, an ancestor of which was updated", above...)
			}
		}
	}},

	{"Child/Orphan", func(t test) {
		theirs := t.inserted()
		for rule, parent := range map[string]string{
			"a child of a key that is not there": unique("key"), "a child of another organization's key": theirs.ID,
		} {
			k := childOf(&keystore.Key{Organization: unique("org"), ID: parent})
			t.insert(k)
			t.wantAncestors(k, rule)
		}
	}},

	{"Child/List", func(t test) {
		keys := inOrder(unique("org"), 6)
		for i, k := range keys {
			if i%2 == 0 {
				k.Parent, k.RotatedFrom = keys[5].ID, ""
			}
		}
		t.insert(keys...)
		organization, page := keys[0].Organization, issuing.Query{Limit: 2}
		t.wantPages(organization, page, "without a parent", keys[1], keys[3], keys[5])
		page.Parent = keys[5].ID
		t.wantPages(organization, page, "with a parent", keys[0], keys[2], keys[4])
		page.Parent = keys[0].ID
		t.wantPages(organization, page, "of a parent without children")
		t.wantPages(unique("org"), issuing.Query{Parent: keys[5].ID}, "of another organization's parent")
	}},

	{"Child/Count", func(t test) {
		keys := t.family(3)
		for _, change := range []func(k *keystore.Key){unchanged, suspended, expired, revoked} {
			k := childOf(keys[0])
			change(k)
			t.insert(k)
		}
		t.insert(newKey(keys[0].Organization))
		for _, c := range []struct {
			q    issuing.Query
			want map[string]int
		}{
			{issuing.Query{Children: true}, map[string]int{keys[0].ID: 3}},
			{issuing.Query{Children: true, Limit: 1, Total: true, After: keys[0]}, nil},
			{issuing.Query{Children: true, Parent: keys[0].ID}, map[string]int{keys[1].ID: 1}},
		} {
			got, err := t.List(t.Context(), keys[0].Organization, c.q)
			if err != nil || !maps.Equal(got.Children, c.want) {
				t.Errorf("List of %+v counts the live children %v, %v, want %v", c.q, got.Children, err, c.want)
			}
		}
	}},

	{"Child/Race", func(t test) {
		for range 25 {
			keys := t.family(3)
			parent := keys[0]
			t.lookup(keys[2])
			var over atomic.Bool
			var running sync.WaitGroup
			for range 4 {
				running.Go(func() {
					for ended := false; !ended; {
						ended = over.Load()
						k, err := t.Lookup(t.Context(), keys[2].Digest)
						if err != nil || ended && k.Refused() == nil {
							t.Errorf("Lookup of a child: error %v; after its ancestor was revoked: %v, refused %v",
								err, ended, err == nil && k.Refused() != nil)
							return
						}
					}
				})
			}
			revoked(parent)
			err := t.tryUpdate(parent)
			over.Store(true)
			running.Wait()
			t.noError(err, "Update during lookups of a child")
		}
	}},
}
