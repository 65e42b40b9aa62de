package keystoretest

import (
	"cmp"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func (t test) list(organization string, q issuing.Query) []*keystore.Key {
	t.Helper()
	return must(t.List(t.Context(), organization, q))(t, "List").Keys
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
	slices.SortFunc(keys, newestFirst)
	return keys
}

func newestFirst(a, b *keystore.Key) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
}

func ids(keys []*keystore.Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.ID
	}
	return all
}

var listCases = []testCase{
	{"List/Order", func(t test) {
		keys := inOrder(unique("org"), 9)
		t.insert(keys[3:6]...)
		t.insert(keys[:3]...)
		t.insert(keys[6:]...)
		got := t.list(keys[0].Organization, issuing.Query{})
		if !slices.Equal(ids(got), ids(keys)) {
			t.Fatalf("List returned %v, want %v: the newest first, and by ID descending where times are equal",
				ids(got), ids(keys))
		}
		for i := range keys {
			t.same("List", got[i], keys[i])
		}
	}},

	{"List/Pages", func(t test) {
		keys := inOrder(unique("org"), 11)
		t.insert(keys...)
		var got []string
		page := issuing.Query{Limit: 4}
		for range len(keys) {
			next := t.list(keys[0].Organization, page)
			if len(next) == 0 {
				break
			}
			got = append(got, ids(next)...)
			page.After = next[len(next)-1]
			// A newer key, as somebody else may create it at any time.
			t.insert(newKey(keys[0].Organization))
		}
		if !slices.Equal(got, ids(keys)) {
			t.Errorf("the pages, with keys created in between, held %v, want %v: each key once and in order", got, ids(keys))
		}
	}},

	{"List/Limits", func(t test) {
		keys := inOrder(unique("org"), 203)
		t.insert(keys...)
		for _, c := range []struct{ limit, want int }{{0, 50}, {-1, 50}, {1, 1}, {200, 200}, {1000, 200}} {
			if got := t.list(keys[0].Organization, issuing.Query{Limit: c.limit}); len(got) != c.want {
				t.Errorf("List with Limit %d returned %d of 203 keys, want %d", c.limit, len(got), c.want)
			}
		}
	}},

	{"List/Isolation", func(t test) {
		mine, theirs := inOrder(unique("org"), 3), inOrder(unique("org"), 3)
		t.insert(mine...)
		t.insert(theirs...)
		t.wantPages(mine[0].Organization, issuing.Query{}, "of an organization", mine...)
		q := issuing.Query{After: &keystore.Key{CreatedAt: at(time.Hour), ID: theirs[0].ID}}
		t.wantPages(mine[0].Organization, q, "of an organization, after a key of another", mine...)
		t.wantPages(unique("org"), issuing.Query{}, "of an organization without any")
	}},

	{"List/Environment", func(t test) {
		keys := inOrder(unique("org"), 6)
		production := []*keystore.Key{keys[0], keys[2], keys[4]}
		for _, k := range production {
			k.Environment = keystore.Production
		}
		t.insert(keys...)
		q := issuing.Query{Environment: keystore.Production, Limit: 2}
		t.wantPages(keys[0].Organization, q, "of production", production...)
	}},

	{"List/Status", func(t test) {
		organization := unique("org")
		want := make(map[keystore.Status][]*keystore.Key) // all four have some
		for _, changes := range [][]func(k *keystore.Key){
			{unchanged}, {endless}, {revokedLater}, {revoked}, {expired}, {suspended}, {suspended, expired},
			{suspended, revoked}, {revoked, expired}, {revokedLater, suspended},
		} {
			k := newKey(organization)
			for _, change := range changes {
				change(k)
			}
			t.insert(k)
			status := k.Status(time.Now())
			want[status] = append(want[status], k)
		}
		for status, keys := range want {
			slices.SortFunc(keys, newestFirst)
			t.wantPages(organization, issuing.Query{Status: status}, "that are "+string(status)+" by Key.Status", keys...)
		}
	}},

	{"List/Expiring", func(t test) {
		limit := at(time.Hour)
		keys := inOrder(unique("org"), 4)
		soon, expired, atLimit, never := keys[0], keys[1], keys[2], keys[3]
		soon.ExpiresAt, expired.ExpiresAt = limit.Add(-time.Microsecond), at(-time.Hour)
		atLimit.ExpiresAt, never.ExpiresAt = limit, time.Time{}
		t.insert(keys...)
		page := issuing.Query{ExpiresBefore: limit, Limit: 1}
		t.wantPages(soon.Organization, page, "that expire before a time", soon, expired)
		page.Status = keystore.Active
		t.wantPages(soon.Organization, page, "that are active and expire before a time", soon)
	}},

	{"List/ExpiringOfAll", func(t test) {
		mark := unique("mark")
		var want []*keystore.Key
		for range 4 {
			keys := inOrder(unique("org"), 2)
			for i, k := range keys {
				k.Name, k.ExpiresAt = mark, at(time.Duration(i+1)*time.Hour)
			}
			t.insert(keys...)
			want = append(want, keys...)
		}
		slices.SortFunc(want, func(a, b *keystore.Key) int {
			return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID))
		})
		page := issuing.Query{AllOrganizations: true, Search: mark, ExpiresBefore: at(3 * time.Hour)}
		t.wantTotal("", page, 8)
		for page.Limit = range 5 {
			t.wantPages("", page, "of all organizations that expire, the soonest first", want...)
		}
		page.Limit, page.After = 3, want[1]
		t.wantTotal("", page, 6)
	}},

	{"List/Unused", func(t test) {
		organization, since := unique("org"), at(-time.Hour)
		made := func(created, used time.Duration) *keystore.Key {
			k := newKey(organization)
			k.CreatedAt, k.LastUsedAt = since.Add(created), since.Add(used)
			return k
		}
		young, still := made(0, 0), made(-3*time.Hour, 0)
		before, never := made(-time.Microsecond, -time.Microsecond), made(-2*time.Hour, 0)
		young.LastUsedAt, never.LastUsedAt = time.Time{}, time.Time{}
		t.insert(young, still, before, never)
		unused := issuing.Query{UnusedSince: since, Limit: 1}
		t.wantPages(organization, unused, "that are older than a time and were not used since", before, never)
		t.wantPages(organization, issuing.Query{NeverUsed: true, Limit: 1}, "that were never used", young, never)
		unused.NeverUsed = true
		t.wantPages(organization, unused, "that are older than a time and were never used", never)
	}},

	{"List/CreatedBy", func(t test) {
		keys := inOrder(unique("org"), 5)
		for i, by := range []string{"ada", "Ada", "ada ", "ada", ""} {
			keys[i].CreatedBy = by
		}
		t.insert(keys...)
		theirs := newKey(unique("org"))
		theirs.CreatedBy = "ada"
		t.insert(theirs)
		made := issuing.Query{CreatedBy: "ada", Limit: 1}
		t.wantTotal(keys[0].Organization, made, 2)
		t.wantPages(keys[0].Organization, made, "that somebody made", keys[0], keys[3])
		made.CreatedBy = "ada\x00"
		t.wantPages(keys[0].Organization, made, "that nobody made")
	}},

	{"List/ByLastUse", func(t test) {
		keys, used := inOrder(unique("org"), 9), at(-time.Hour)
		for i, k := range keys[3:] { // two at a time, and three that were never used
			k.LastUsedAt = used.Add(time.Duration(i/2) * time.Microsecond)
		}
		t.insert(keys...)
		page := issuing.Query{Order: issuing.ByLastUse}
		wantSorted := func() {
			t.Helper()
			for page.Limit = range 5 {
				t.wantPages(keys[0].Organization, page, "by last use, those that were never used first",
					sorted(page.Order, keys)...)
			}
		}
		wantSorted()
		now, rest := at(0), sorted(page.Order, keys)
		for _, k := range rest[4:6] { // used while somebody reads
			t.touch(use(k, now.Add(999)), use(k, now))
			k.LastUsedAt = now
		}
		page.After, page.Limit = rest[3], 2
		rest = sorted(page.Order, rest[4:])
		t.wantTotal(keys[0].Organization, page, len(rest))
		t.wantPages(keys[0].Organization, page, "behind a page, after some of them were used", rest...)
		page.After = nil
		wantSorted()
	}},

	{"List/ByExpiry", func(t test) {
		keys, end := inOrder(unique("org"), 12), at(time.Hour)
		for i, k := range keys { // three at a time, and three that do not end
			k.ExpiresAt, k.RevokedAt = end.Add(time.Duration(i/3)*time.Microsecond), time.Time{}
			switch i % 4 {
			case 0:
				k.ExpiresAt, k.RevokedAt = k.RevokedAt, k.ExpiresAt
			case 1:
				k.RevokedAt = end.Add(time.Second)
			case 2:
				k.ExpiresAt, k.RevokedAt = end.Add(time.Second), k.ExpiresAt
			}
			if i > 8 {
				k.ExpiresAt, k.RevokedAt = time.Time{}, time.Time{}
			}
		}
		theirs, mine := newKey(unique("org")), unique("ada") // the store may hold other keys
		all := append(slices.Clone(keys), theirs)
		for _, k := range all {
			k.CreatedBy = mine
		}
		t.insert(all...)
		for limit := range 5 {
			page := issuing.Query{Order: issuing.ByExpiry, Limit: limit}
			t.wantPages(keys[0].Organization, page, "by what ends first, those without an end last", sorted(page.Order, keys)...)
			page.AllOrganizations, page.CreatedBy, page.ExpiresBefore = true, mine, end.Add(time.Hour)
			t.wantPages("", page, "of all organizations that expire, by what ends first",
				slices.DeleteFunc(sorted(page.Order, all), func(k *keystore.Key) bool {
					return k.ExpiresAt.IsZero() || !k.ExpiresAt.Before(page.ExpiresBefore)
				})...)
		}
	}},

	{"List/Successor", func(t test) {
		keys := inOrder(unique("org"), 3)
		old, next := keys[2], keys[1]
		next.RotatedFrom = old.ID
		t.insert(keys...)
		theirs := newKey(unique("org"))
		theirs.RotatedFrom = old.ID
		t.insert(theirs)
		t.wantPages(old.Organization, issuing.Query{RotatedFrom: old.ID}, "that replace a key", next)
		t.wantPages(old.Organization, issuing.Query{RotatedFrom: next.ID}, "that replace a key without successor")
	}},

	{"List/Total", func(t test) {
		keys := inOrder(unique("org"), 7)
		keys[1].Suspended, keys[4].Suspended, keys[5].RevokedAt = true, true, at(-time.Second)
		t.insert(keys...)
		t.insert(newKey(unique("org")))
		live := issuing.Query{Status: keystore.Active, OrStatus: keystore.Suspended, Limit: 2}
		t.wantTotal(keys[0].Organization, live, 6)
		t.wantPages(keys[0].Organization, live, "that are active or suspended", slices.Delete(slices.Clone(keys), 5, 6)...)
		live.After = keys[2]
		t.wantTotal(keys[0].Organization, live, 3)
		t.wantTotal(keys[0].Organization, issuing.Query{Environment: "none"}, 0)
		t.wantTotal(keys[0].Organization, issuing.Query{}, 7)
	}},

	{"List/Search", func(t test) {
		keys := inOrder(unique("org"), 4)
		for i, name := range []string{"Zürich Import", "import\\ 100%", "a_b'c \"d\"", ""} {
			keys[i].Name = name
		}
		keys[3].Hint = "Im7_"
		theirs := newKey(unique("org"))
		theirs.Name = "import"
		t.insert(append(keys, theirs)...)
		t.wantTotal(keys[0].Organization, issuing.Query{Search: "import"}, 2)
		for search, want := range map[string][]*keystore.Key{
			"IMPORT": keys[:2], "zürich i": keys[:1], "\\ 100%": keys[1:2], "%": keys[1:2], "_": keys[2:3],
			"a_b'c \"D\"": keys[2:3],
			"im7_":        keys[3:], "m7_": nil, keys[1].ID: keys[1:2], theirs.ID: nil, "port 1": nil, "\x00": nil,
		} {
			p := issuing.Query{Search: search, Limit: 1}
			t.wantPages(keys[0].Organization, p, "that are searched by "+search, want...)
		}
	}},
	{"List/AllOrganizations", func(t test) {
		mark := unique("mark") // the store may hold other keys
		var want []*keystore.Key
		for _, organization := range []string{unique("org-b"), unique("org-a")} { // descending
			keys := inOrder(organization, 4)
			for _, k := range keys {
				k.Name = mark
			}
			keys[1].Suspended = true
			t.insert(keys...)
			want = append(want, slices.Delete(keys, 1, 2)...)
		}
		page := issuing.Query{AllOrganizations: true, Search: mark, Status: keystore.Active}
		t.wantTotal("", page, 6)
		for page.Limit = range 5 {
			t.wantPages("", page, "of all organizations", want...)
		}
	}},
}

// sorted returns the keys in an order, those with the same time by their ID.
func sorted(o issuing.Order, keys []*keystore.Key) []*keystore.Key {
	return slices.SortedFunc(slices.Values(keys), func(a, b *keystore.Key) int {
		return cmp.Or(o.At(a).Compare(o.At(b)), cmp.Compare(a.ID, b.ID))
	})
}

func (t test) wantTotal(organization string, q issuing.Query, want int) {
	t.Helper()
	q.Total = true
	page, err := t.List(t.Context(), organization, q)
	if err != nil || page.Total != want || q.Limit > 0 && len(page.Keys) > q.Limit {
		t.Errorf("List counts %d keys and returns %d, %v, want %d and at most %d", page.Total, len(page.Keys), err, want,
			q.Limit)
	}
}

// wantPages reads page after page, of which the last alone may be short.
func (t test) wantPages(organization string, q issuing.Query, which string, want ...*keystore.Key) {
	t.Helper()
	var got []string
	for range len(want) + 1 {
		page := t.list(organization, q)
		got = append(got, ids(page)...)
		if len(page) < cmp.Or(q.Limit, 50) {
			break
		}
		q.After = page[len(page)-1]
	}
	if !slices.Equal(got, ids(want)) {
		t.Errorf("the pages of keys %s hold %v, want %v", which, got, ids(want))
	}
}
