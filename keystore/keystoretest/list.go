package keystoretest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func list(t testing.TB, m issuing.Store, organization string, q issuing.Query) []*keystore.Key {
	t.Helper()
	page, err := m.List(t.Context(), organization, q)
	if err != nil {
		t.Fatalf("List returned %v, want a page", err)
	}
	return page.Keys
}

// inOrder returns n keys of an organization, the newest first. Three at a time
// have the same CreatedAt, so that only the ID tells them apart.
func inOrder(organization string, n int) []*keystore.Key {
	keys := make([]*keystore.Key, n)
	newest := at(0)
	for i := range keys {
		keys[i] = newKey(organization)
		keys[i].CreatedAt = newest.Add(-time.Duration(i/3) * time.Microsecond)
	}
	slices.SortFunc(keys, func(a, b *keystore.Key) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return keys
}

func ids(keys []*keystore.Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.ID
	}
	return all
}

var listCases = []testCase{
	{"List/Order", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 9)
		insert(t, m, keys[3:6]...)
		insert(t, m, keys[:3]...)
		insert(t, m, keys[6:]...)
		got := list(t, m, keys[0].Organization, issuing.Query{})
		if !slices.Equal(ids(got), ids(keys)) {
			t.Fatalf("List returned %v, want %v: the newest first, and by ID descending where times are equal",
				ids(got),
				ids(keys))
		}
		for i := range keys {
			same(t, "List", got[i], keys[i])
		}
	}},

	{"List/Pages", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 11)
		insert(t, m, keys...)
		var got []string
		page := issuing.Query{Limit: 4}
		for range len(keys) {
			next := list(t, m, keys[0].Organization, page)
			if len(next) == 0 {
				break
			}
			got = append(got, ids(next)...)
			page.After = next[len(next)-1]
			// A newer key, as somebody else may create it at any time.
			insert(t, m, newKey(keys[0].Organization))
		}
		if !slices.Equal(got, ids(keys)) {
			t.Errorf("the pages, with keys created in between, held %v, want %v: each key once and in order", got,
				ids(keys))
		}
	}},

	{"List/Limits", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 203)
		insert(t, m, keys...)
		for _, c := range []struct{ limit, want int }{{0, 50}, {-1, 50}, {1, 1}, {200, 200}, {1000, 200}} {
			if got := list(t, m, keys[0].Organization, issuing.Query{Limit: c.limit}); len(got) != c.want {
				t.Errorf("List with Limit %d returned %d of 203 keys, want %d", c.limit, len(got), c.want)
			}
		}
	}},

	{"List/Isolation", func(t testing.TB, m issuing.Store) {
		mine, theirs := inOrder(unique("org"), 3), inOrder(unique("org"), 3)
		insert(t, m, mine...)
		insert(t, m, theirs...)
		for _, page := range []issuing.Query{{}, {After: &keystore.Key{CreatedAt: at(time.Hour), ID: theirs[0].ID}}} {
			if got := list(t, m, mine[0].Organization, page); !slices.Equal(ids(got), ids(mine)) {
				t.Errorf("List returned %v, want %v: the organization's own keys, whoever's the cursor is", ids(got),
					ids(mine))
			}
		}
		if got := list(t, m, unique("org"), issuing.Query{}); len(got) != 0 {
			t.Errorf("List of an organization without keys returned %d, want none and no error", len(got))
		}
	}},

	{"List/Environment", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 6)
		var production []*keystore.Key
		for i, k := range keys {
			if i%2 == 0 {
				k.Environment = keystore.Production
				production = append(production, k)
			}
		}
		insert(t, m, keys...)
		page := issuing.Query{Environment: keystore.Production, Limit: 2}
		got := list(t, m, keys[0].Organization, page)
		page.After = production[1]
		got = append(got, list(t, m, keys[0].Organization, page)...)
		if !slices.Equal(ids(got), ids(production)) {
			t.Errorf("two pages of the production keys held %v, want %v", ids(got), ids(production))
		}
	}},

	{"List/Status", func(t testing.TB, m issuing.Store) {
		organization := unique("org")
		want := make(map[keystore.Status][]string)
		for _, change := range []func(k *keystore.Key){
			func(k *keystore.Key) {},
			func(k *keystore.Key) { k.ExpiresAt = time.Time{} },
			func(k *keystore.Key) { k.RevokedAt = at(time.Hour) },
			func(k *keystore.Key) { k.RevokedAt = at(-time.Second) },
			func(k *keystore.Key) { k.ExpiresAt = at(-time.Second) },
			func(k *keystore.Key) { k.Suspended = true },
			func(k *keystore.Key) { k.Suspended, k.ExpiresAt = true, at(-time.Second) },
			func(k *keystore.Key) { k.Suspended, k.RevokedAt = true, at(-time.Second) },
			func(k *keystore.Key) { k.RevokedAt, k.ExpiresAt = at(-time.Second), at(-time.Second) },
			func(k *keystore.Key) { k.RevokedAt, k.Suspended = at(time.Hour), true },
		} {
			k := newKey(organization)
			change(k)
			insert(t, m, k)
			status := k.Status(time.Now())
			want[status] = append(want[status], k.ID)
		}
		for _, status := range []keystore.Status{keystore.Active, keystore.Suspended, keystore.Expired,
			keystore.Revoked} {
			got := ids(list(t, m, organization, issuing.Query{Status: status}))
			slices.Sort(got)
			slices.Sort(want[status])
			if !slices.Equal(got, want[status]) {
				t.Errorf("List of the keys that are %s returned %v, want %v, as Key.Status tells", status, got,
					want[status])
			}
		}
	}},

	{"List/Expiring", func(t testing.TB, m issuing.Store) {
		limit := at(time.Hour)
		keys := inOrder(unique("org"), 4)
		soon, expired, atLimit, never := keys[0], keys[1], keys[2], keys[3]
		soon.ExpiresAt, expired.ExpiresAt = limit.Add(-time.Microsecond), at(-time.Hour)
		atLimit.ExpiresAt, never.ExpiresAt = limit, time.Time{}
		insert(t, m, keys...)
		page := issuing.Query{ExpiresBefore: limit, Limit: 1}
		wantPages(t, m, soon.Organization, page, "that expire before a time", soon, expired)
		page.Status = keystore.Active
		wantPages(t, m, soon.Organization, page, "that are active and expire before a time", soon)
	}},

	{"List/ExpiringOfAll", func(t testing.TB, m issuing.Store) {
		mark := unique("mark")
		var want []*keystore.Key
		for range 4 {
			keys := inOrder(unique("org"), 2)
			for i, k := range keys {
				k.Name, k.ExpiresAt = mark, at(time.Duration(i+1)*time.Hour)
			}
			insert(t, m, keys...)
			want = append(want, keys...)
		}
		slices.SortFunc(want, func(a, b *keystore.Key) int {
			return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
		})
		page := issuing.Query{AllOrganizations: true, Search: mark, ExpiresBefore: at(3 * time.Hour)}
		wantTotal(t, m, "", page, 8)
		for page.Limit = range 5 {
			wantPages(t, m, "", page, "of all organizations that expire, the soonest first", want...)
		}
		page.Limit, page.After = 3, want[1]
		wantTotal(t, m, "", page, 6)
	}},

	{"List/Unused", func(t testing.TB, m issuing.Store) {
		since := at(-time.Hour)
		made := func(created, used time.Duration) *keystore.Key {
			k := newKey("")
			k.CreatedAt, k.LastUsedAt = since.Add(created), since.Add(used)
			return k
		}
		young, still := made(0, 0), made(-3*time.Hour, 0)
		before, never := made(-time.Microsecond, -time.Microsecond), made(-2*time.Hour, 0)
		young.LastUsedAt, never.LastUsedAt = time.Time{}, time.Time{}
		organization := unique("org")
		for _, k := range []*keystore.Key{young, still, before, never} {
			k.Organization = organization
			insert(t, m, k)
		}
		unused := issuing.Query{UnusedSince: since, Limit: 1}
		wantPages(t, m, organization, unused, "that are older than a time and were not used since", before, never)
		wantPages(t, m, organization, issuing.Query{NeverUsed: true, Limit: 1}, "that were never used", young, never)
		unused.NeverUsed = true
		wantPages(t, m, organization, unused, "that are older than a time and were never used", never)
	}},

	{"List/Successor", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 3)
		old, next := keys[2], keys[1]
		next.RotatedFrom = old.ID
		insert(t, m, keys...)
		theirs := newKey(unique("org"))
		theirs.RotatedFrom = old.ID
		insert(t, m, theirs)
		wantPages(t, m, old.Organization, issuing.Query{RotatedFrom: old.ID}, "that replace a key", next)
		wantPages(t, m, old.Organization, issuing.Query{RotatedFrom: next.ID}, "that replace a key without successor")
	}},

	{"List/Total", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 7)
		keys[1].Suspended, keys[4].Suspended, keys[5].RevokedAt = true, true, at(-time.Second)
		insert(t, m, keys...)
		insert(t, m, newKey(unique("org")))
		live := issuing.Query{Status: keystore.Active, OrStatus: keystore.Suspended, Limit: 2}
		wantTotal(t, m, keys[0].Organization, live, 6)
		wantPages(t, m, keys[0].Organization, live, "that are active or suspended",
			slices.Delete(slices.Clone(keys), 5, 6)...)
		live.After = keys[2]
		wantTotal(t, m, keys[0].Organization, live, 3)
		wantTotal(t, m, keys[0].Organization, issuing.Query{Environment: "none"}, 0)
		wantTotal(t, m, keys[0].Organization, issuing.Query{}, 7)
	}},

	{"List/Search", func(t testing.TB, m issuing.Store) {
		keys := inOrder(unique("org"), 4)
		for i, name := range []string{"Zürich Import", "import\\ 100%", "a_b'c \"d\"", ""} {
			keys[i].Name = name
		}
		keys[3].Hint = "Im7_"
		theirs := newKey(unique("org"))
		theirs.Name = "import"
		insert(t, m, append(keys, theirs)...)
		wantTotal(t, m, keys[0].Organization, issuing.Query{Search: "import"}, 2)
		for search, want := range map[string][]*keystore.Key{
			"IMPORT": keys[:2], "zürich i": keys[:1], "\\ 100%": keys[1:2], "%": keys[1:2], "_": keys[2:3],
			"a_b'c \"D\"": keys[2:3],
			"im7_":        keys[3:], "m7_": nil, keys[1].ID: keys[1:2], theirs.ID: nil, "port 1": nil, "\x00": nil,
		} {
			p := issuing.Query{Search: search, Limit: 1}
			wantPages(t, m, keys[0].Organization, p, "that are searched by "+search, want...)
		}
	}},
	{"List/AllOrganizations", func(t testing.TB, m issuing.Store) {
		mark := unique("mark") // the store may hold other keys
		var want []*keystore.Key
		for _, organization := range []string{unique("org-b"), unique("org-a")} { // descending
			keys := inOrder(organization, 4)
			for _, k := range keys {
				k.Name = mark
			}
			keys[1].Suspended = true
			insert(t, m, keys...)
			want = append(want, slices.Delete(keys, 1, 2)...)
		}
		page := issuing.Query{AllOrganizations: true, Search: mark, Status: keystore.Active}
		wantTotal(t, m, "", page, 6)
		for page.Limit = range 5 {
			wantPages(t, m, "", page, "of all organizations", want...)
		}
	}},
}

func wantTotal(t testing.TB, m issuing.Store, organization string, q issuing.Query, want int) {
	t.Helper()
	q.Total = true
	page, err := m.List(t.Context(), organization, q)
	if err != nil || page.Total != want || q.Limit > 0 && len(page.Keys) > q.Limit {
		t.Errorf("List counts %d keys and returns %d, %v, want %d and at most %d", page.Total, len(page.Keys), err, want,
			q.Limit)
	}
}

// wantPages reads all pages.
func wantPages(t testing.TB, m issuing.Store, organization string, p issuing.Query, which string,
	want ...*keystore.Key) {
	t.Helper()
	var got []string
	for range len(want) + 1 {
		page := list(t, m, organization, p)
		if len(page) == 0 {
			break
		}
		got = append(got, ids(page)...)
		p.After = page[len(page)-1]
	}
	if !slices.Equal(got, ids(want)) {
		t.Errorf("the pages of keys %s hold %v, want %v", which, got, ids(want))
	}
}
