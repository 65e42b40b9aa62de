package keystoretest

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// family inserts n keys, each the child of the one before.
func family(t testing.TB, m issuing.Store, n int) (keys []*keystore.Key) {
	t.Helper()
	organization := unique("org")
	for i := range n {
		k := newKey(organization)
		if i > 0 {
			k.Parent, k.RotatedFrom = keys[i-1].ID, ""
		}
		insert(t, m, k)
		keys = append(keys, k)
	}
	return keys
}

// readers are the methods that return one key.
var readers = []struct {
	name string
	read func(t testing.TB, m issuing.Store, k *keystore.Key) (*keystore.Key, error)
}{
	{"Lookup", func(t testing.TB, m issuing.Store, k *keystore.Key) (*keystore.Key, error) {
		return m.Lookup(t.Context(), k.Digest)
	}},
	{"Find", func(t testing.TB, m issuing.Store, k *keystore.Key) (*keystore.Key, error) {
		return m.Find(t.Context(), k.Organization, k.ID)
	}},
	{"FindIssued", func(t testing.TB, m issuing.Store, k *keystore.Key) (*keystore.Key, error) {
		return m.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
	}},
}

// wantAncestors reads k by each method.
func wantAncestors(t testing.TB, m issuing.Store, k *keystore.Key, rule string, want ...*keystore.Key) {
	t.Helper()
	for _, r := range readers {
		got, err := r.read(t, m, k)
		if err != nil {
			t.Fatalf("%s of %s returned %v, want the key", r.name, rule, err)
		}
		same(t, r.name, got, k)
		if !slices.Equal(ids(got.Ancestors), ids(want)) {
			t.Fatalf("%s of %s returned the ancestors %v, want %v", r.name, rule, ids(got.Ancestors), ids(want))
		}
		for i, a := range got.Ancestors {
			same(t, "an ancestor, by "+r.name+",", a, want[i])
			if len(a.Ancestors) > 0 {
				t.Errorf("%s of %s returned an ancestor with ancestors", r.name, rule)
			}
		}
	}
}

var childCases = []testCase{
	{"Child/Ancestors", func(t testing.TB, m issuing.Store) {
		keys := family(t, m, 5)
		other := newKey(keys[0].Organization)
		other.Ancestors = keys[:1]
		insert(t, m, other)
		wantAncestors(t, m, other, "a key without a parent")
		wantAncestors(t, m, keys[1], "a child", keys[0])
		wantAncestors(t, m, keys[2], "the child of a child", keys[1], keys[0])
		wantAncestors(t, m, keys[3], "the child of that", keys[2], keys[1], keys[0])
		wantAncestors(t, m, keys[4], "a child that is too far down", keys[3], keys[2], keys[1])
		keys[1].Name = "renamed"
		update(t, m, keys[1])
		keys[1].Version++
		wantAncestors(t, m, keys[2], "the child of a key that was renamed", keys[1], keys[0])
	}},

	{"Child/Orphan", func(t testing.TB, m issuing.Store) {
		theirs := newKey(unique("org"))
		insert(t, m, theirs)
		for rule, parent := range map[string]string{
			"a child of a key that is not there": unique("key"), "a child of another organization's key": theirs.ID,
		} {
			k := newKey(unique("org"))
			k.Parent, k.RotatedFrom = parent, ""
			insert(t, m, k)
			wantAncestors(t, m, k, rule)
		}
	}},

	{"Child/List", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 6)
		for i, k := range keys {
			if i%2 == 0 {
				k.Parent, k.RotatedFrom = keys[5].ID, ""
			}
		}
		insert(t, m, keys...)
		organization, page := keys[0].Organization, issuing.Query{Limit: 2}
		wantPages(t, m, organization, page, "without a parent", keys[1], keys[3], keys[5])
		page.Parent = keys[5].ID
		wantPages(t, m, organization, page, "with a parent", keys[0], keys[2], keys[4])
		page.Parent = keys[0].ID
		wantPages(t, m, organization, page, "of a parent without children")
		wantPages(t, m, unique("org"), issuing.Query{Parent: keys[5].ID}, "of another organization's parent")
	}},

	{"Child/Count", func(t testing.TB, m issuing.Store) {
		keys := family(t, m, 3)
		for _, change := range []func(k *keystore.Key){
			func(k *keystore.Key) {},
			func(k *keystore.Key) { k.Suspended = true },
			func(k *keystore.Key) { k.ExpiresAt = at(-time.Second) },
			func(k *keystore.Key) { k.RevokedAt = at(-time.Second) },
		} {
			k := newKey(keys[0].Organization)
			k.Parent, k.RotatedFrom = keys[0].ID, ""
			change(k)
			insert(t, m, k)
		}
		insert(t, m, newKey(keys[0].Organization))
		for _, c := range []struct {
			q    issuing.Query
			want map[string]int
		}{
			{issuing.Query{Children: true}, map[string]int{keys[0].ID: 3}},
			{issuing.Query{Children: true, Limit: 1, Total: true, After: keys[0]}, nil},
			{issuing.Query{Children: true, Parent: keys[0].ID}, map[string]int{keys[1].ID: 1}},
		} {
			got, err := m.List(t.Context(), keys[0].Organization, c.q)
			if err != nil || !maps.Equal(got.Children, c.want) {
				t.Errorf("List of %+v counts the live children %v, %v, want %v", c.q, got.Children, err, c.want)
			}
		}
	}},

	{"Child/NoMoreThanItsParent", func(t testing.TB, m issuing.Store) {
		keys := family(t, m, 4)
		names := []scope.Name{scope.TasksRead, scope.TasksWrite, scope.ChatRead, scope.ChatWrite}
		for _, k := range keys {
			k.Scopes, k.Networks, k.ExpiresAt = names, nil, time.Time{}
			update(t, m, k)
			k.Version++
		}
		networks := [][]netip.Prefix{nil, {netip.MustParsePrefix("192.0.2.0/24")}, {netip.MustParsePrefix("10.0.0.0/8")}}
		addresses := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.1.1.1")}
		ends := []func(k *keystore.Key){
			func(k *keystore.Key) {},
			func(k *keystore.Key) { k.ExpiresAt = at(-time.Second) },
			func(k *keystore.Key) { k.RevokedAt = at(-time.Second) },
			func(k *keystore.Key) { k.RevokedAt = at(time.Hour) },
			func(k *keystore.Key) { k.Suspended = true },
		}
		for n := range 16 * len(networks) * len(ends) {
			a := keys[n%3] // the edits go through all of the ancestors in turn
			a.Scopes = nil
			for i, name := range names {
				if n>>i&1 != 0 {
					a.Scopes = append(a.Scopes, name)
				}
			}
			a.Networks = networks[n/16%len(networks)]
			a.ExpiresAt, a.RevokedAt, a.Suspended = time.Time{}, time.Time{}, false
			ends[n/16/len(networks)](a)
			update(t, m, a)
			a.Version++
			child := lookup(t, m, keys[3])
			caller := child.Bind(scope.Default())
			for i, above := range keys[:3] {
				above = above.Clone()
				above.Parent = "" // by itself
				parent := above.Bind(scope.Default())
				for _, name := range names {
					if caller.Has(name) && !parent.Has(name) {
						t.Fatalf("edit %d: a child may do %s, which ancestor %d may not", n, name, i)
					}
				}
				for _, address := range addresses {
					if caller.AllowsAddress(address) && !parent.AllowsAddress(address) {
						t.Fatalf("edit %d: a child may call from %v, where ancestor %d may not", n, address, i)
					}
				}
				if parent.Refused() != nil && (caller.Refused() == nil || child.Refused() == nil) {
					t.Fatalf("edit %d: ancestor %d is refused and a child is not", n, i)
				}
			}
		}
	}},

	{"Child/Race", func(t testing.TB, m issuing.Store) {
		for range 25 {
			keys := family(t, m, 3)
			parent := keys[0]
			lookup(t, m, keys[2])
			var revoked atomic.Bool
			var running sync.WaitGroup
			for range 4 {
				running.Go(func() {
					for ended := false; !ended; {
						ended = revoked.Load()
						k, err := m.Lookup(t.Context(), keys[2].Digest)
						if err != nil || ended && k.Refused() == nil {
							t.Errorf("Lookup of a child: error %v; after its ancestor was revoked: %v, refused %v",
								err, ended, err == nil && k.Refused() != nil)
							return
						}
					}
				})
			}
			parent.RevokedAt = at(-time.Second)
			err := m.Update(t.Context(), parent, newEntry(parent))
			revoked.Store(true)
			running.Wait()
			if err != nil {
				t.Fatalf("Update during lookups of a child returned %v, want nil", err)
			}
		}
	}},
}
