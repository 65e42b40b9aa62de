package keystoretest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// newEntry returns an entry about k with an ID that is above those before.
func newEntry(k *keystore.Key) issuing.AuditEntry { return newEntryAt(k, at(0)) }

func newEntryAt(k *keystore.Key, now time.Time) issuing.AuditEntry {
	return issuing.AuditEntry{
		ID: fmt.Sprintf("act_%014x", now.UnixMicro()) + unique(""), At: now, Act: "issue", Actor: "ada 'o\"x\\",
		Organization: k.Organization, Key: k.ID, KeyName: k.Name, KeyHint: k.Hint, Reason: "ticket 4 – é",
		Changes: []issuing.Change{{Field: "name", After: "a <b> \"c\""}, {Field: "suspended", Before: "true"}},
	}
}

// audited updates k at a time and returns the entry.
func (t test) audited(k *keystore.Key, at time.Time) issuing.AuditEntry {
	t.Helper()
	e := newEntryAt(k, at)
	t.noError(t.Update(t.Context(), k, e), "Update of the latest version")
	k.Version++
	return e
}

func (t test) audit(organization string, q issuing.AuditQuery) []issuing.AuditEntry {
	t.Helper()
	if q.AllOrganizations {
		organization = ""
	}
	return must(t.Audit(t.Context(), organization, q))(t, "Audit")
}

// wantAudit reports a page that is not these entries in this order.
func (t test) wantAudit(rule string, got []issuing.AuditEntry, want ...issuing.AuditEntry) {
	t.Helper()
	same := func(g, w issuing.AuditEntry) bool {
		equal := g.At.Equal(w.At)
		g.At, w.At = time.Time{}, time.Time{}
		return equal && reflect.DeepEqual(g, w)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: got the entries %v, want %v", rule, got, want)
	}
}

var auditCases = []testCase{
	{"Audit/Insert", func(t test) {
		k, all := newKey(unique("org")), issuing.AuditQuery{}
		first := t.insert(k)
		again, successor := newKey(k.Organization), newKey(k.Organization)
		again.Digest, successor.RotatedFrom = k.Digest, k.RotatedFrom
		t.refusedInsert(again, k, issuing.ErrExists, "a Digest that is taken")
		t.refusedInsert(successor, k, issuing.ErrRotated, "a second successor")
		t.wantAudit("Audit after Insert, two of three refused", t.audit(k.Organization, all), first)

		kept := first
		kept.Changes = slices.Clone(first.Changes)
		first.Changes[0].After = "changed"
		for _, e := range t.audit(k.Organization, all) {
			e.Changes[0].After = "changed"
		}
		t.wantAudit("Audit, after the caller changed what it had given and got,", t.audit(k.Organization, all), kept)
	}},

	{"Audit/Update", func(t test) {
		k := newKey(unique("org"))
		first := t.insert(k)
		stale := k.Clone()
		k.Name = "audited"
		e := t.audited(k, at(0))
		stale.Name = "stale"
		t.wantError(t.tryUpdate(stale), issuing.ErrConflict, "Update of version 1")
		t.wantError(t.tryUpdate(newKey(k.Organization)), keystore.ErrNotFound, "Update of no key")
		t.keeps(k, "a key after Update")
		first.KeyName = "audited" // as it is now
		got := t.audit(k.Organization, issuing.AuditQuery{Key: k.ID})
		t.wantAudit("Audit after Update, two of three refused", got, e, first)
	}},

	{"Audit/Pages", func(t test) {
		k, other := newKey(unique("org")), newKey(unique("org"))
		first := t.insert(k)
		t.insert(other)
		all, ofKey := []issuing.AuditEntry{first}, []issuing.AuditEntry{first}
		for i := range 205 {
			if i%4 == 0 {
				all = append(all, t.insert(newKey(k.Organization)))
				continue
			}
			e := t.audited(k, at(-time.Duration(i%5)*time.Second)) // by a process whose clock is behind, too
			all, ofKey = append(all, e), append(ofKey, e)
		}
		for _, key := range []string{"", k.ID} { // in this order, since it inserts other keys
			want := all
			if key != "" {
				want = ofKey
			}
			slices.SortFunc(want, func(a, b issuing.AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
			var got []issuing.AuditEntry
			after := ""
			for range len(all) {
				page := t.audit(k.Organization, issuing.AuditQuery{Key: key, After: after})
				if len(page) == 0 {
					break
				}
				if len(page) > 100 {
					t.Fatalf("Audit returned %d entries, want at most 100", len(page))
				}
				got, after = append(got, page...), page[len(page)-1].ID
				t.insert(newKey(k.Organization))
			}
			t.wantAudit("the pages, with keys inserted in between", got, want...)
		}
		t.wantAudit("Audit by another organization", t.audit(other.Organization, issuing.AuditQuery{Key: k.ID}))
		t.wantAudit("Audit without an organization", t.audit("", issuing.AuditQuery{Key: k.ID}))
	}},

	{"Audit/Query", func(t test) {
		k, theirs, now := newKey(unique("org")), t.inserted(), at(0)
		ada, bea := unique("ada"), unique("bea")
		var all []issuing.AuditEntry
		for i, organization := range []string{k.Organization, k.Organization, k.Organization, theirs.Organization} {
			of := newKey(organization)
			e := newEntryAt(of, now.Add(time.Duration(i)*time.Microsecond))
			e.Act, e.Actor = []string{"issue", "edit"}[i%2], []string{ada, bea}[i/2]
			if i == 2 { // the key of another organization has the id now
				e.Key, e.KeyName, e.KeyHint = theirs.ID, "", ""
			}
			t.noError(t.Insert(t.Context(), of, e, 0), "Insert")
			all = append(all, e)
		}
		for _, c := range []struct {
			q    issuing.AuditQuery
			want []int
		}{
			{issuing.AuditQuery{}, []int{2, 1, 0}},
			{issuing.AuditQuery{AllOrganizations: true, Actor: bea}, []int{3, 2}},
			{issuing.AuditQuery{Limit: 2}, []int{2, 1}},
			{issuing.AuditQuery{Key: all[1].Key}, []int{1}},
			{issuing.AuditQuery{Key: all[3].Key}, nil},
			{issuing.AuditQuery{Act: "issue"}, []int{2, 0}},
			{issuing.AuditQuery{Actor: ada}, []int{1, 0}},
			{issuing.AuditQuery{Since: all[1].At}, []int{2, 1}},
			{issuing.AuditQuery{Until: all[1].At}, []int{0}},
			{issuing.AuditQuery{Until: all[2].At, After: all[1].ID}, []int{0}},
			{issuing.AuditQuery{Until: all[1].At, After: all[2].ID}, []int{0}},
			{issuing.AuditQuery{Act: "edit", Actor: bea}, nil},
		} {
			var want []issuing.AuditEntry
			for _, i := range c.want {
				want = append(want, all[i])
			}
			t.wantAudit(fmt.Sprintf("Audit with %+v", c.q), t.audit(k.Organization, c.q), want...)
		}
	}},

	{"Audit/Sweep", func(t test) {
		k := newKey(unique("org"))
		first := t.insert(k)
		t.audited(k, at(-time.Hour))
		young := t.insert(newKey(k.Organization))
		if removed, err := t.SweepAudit(t.Context(), at(-time.Minute)); err != nil || removed < 1 {
			t.Errorf("SweepAudit returned %d, %v, want at least 1", removed, err)
		}
		t.wantAudit("Audit after SweepAudit", t.audit(k.Organization, issuing.AuditQuery{}), young, first)
		t.keeps(k, "a key whose entry was swept")
	}},

	{"Audit/MaxKeys", func(t test) { t.maxKeys("") }},
	{"Audit/MaxChildren", func(t test) { t.maxKeys(unique("key")) }},
	{"Audit/MaxKeysRace", func(t test) { t.maxKeysRace("") }},
	{"Audit/MaxChildrenRace", func(t test) { t.maxKeysRace(unique("key")) }},

	{"Erase/Organization", func(t test) {
		k, other := newKey(unique("org")), newKey(unique("org"))
		t.insert(k)
		t.insert(newKey(k.Organization))
		kept := t.insert(other)
		left := t.erase(k.Organization, 2, 2)
		t.read(t.Context(), k, func(method string, _ *keystore.Key, err error) {
			if method != "Lookup" {
				t.wantError(err, keystore.ErrNotFound, method+" of a key that was erased")
			}
		})
		t.wantPages(k.Organization, issuing.Query{}, "of an organization that was erased")
		got, err := t.Lookup(t.Context(), k.Digest)
		switch {
		case errors.Is(err, keystore.ErrNotFound):
		case err != nil || !errors.Is(got.Refused(), keystore.ErrRevoked):
			t.Errorf("Lookup of a key that was erased returned %v, %v, want ErrNotFound or a key that is revoked", got, err)
		default:
			bare := *got
			bare.Digest = keystore.Digest{}
			for _, text := range []string{k.Organization, k.ID, k.Name, k.CreatedBy, k.IssueToken, k.RotatedFrom} {
				if told := fmt.Sprint(bare); strings.Contains(told, text) {
					t.Errorf("Lookup of a key that was erased still has %q: %s", text, told)
				}
			}
			if got.Environment != k.Environment || got.Legacy != k.Legacy {
				t.Errorf("Lookup of a key that was erased returned %+v, which does not fit its token", got)
			}
		}
		t.wantAudit("Audit of an organization that was erased", t.audit(k.Organization, issuing.AuditQuery{}), left)
		t.wantAudit("Audit of another one", t.audit(other.Organization, issuing.AuditQuery{}), kept)
		t.keeps(other, "another organization's key")
		t.erase(k.Organization, 0, 0)
		t.wantAudit("Audit after a second Erase", t.audit(k.Organization, issuing.AuditQuery{}), left)
		t.insert(k)
		t.keeps(k, "a key that was erased and inserted again")
	}},

	{"Erase/Feed", func(t test) {
		k, since := t.inserted(), t.position()
		t.erase(k.Organization, 1, 1)
		since = t.wantNews(since, "a key was erased", k)
		t.insert(k)
		t.wantNews(since, "a key that was erased was inserted again", k)
	}},

	{"Erase/Children", func(t test) {
		keys := t.family(3)
		t.erase(keys[0].Organization, 3, 3)
		for _, k := range keys {
			got, err := t.Lookup(t.Context(), k.Digest)
			if err == nil && (got.Refused() == nil || slices.Contains(ids(keys), got.Parent)) ||
				err != nil && !errors.Is(err, keystore.ErrNotFound) {
				t.Errorf("Lookup of an erased child returned %+v, %v: want it refused, and nothing of its parent", got, err)
			}
		}
	}},

	{"Audit/SweepChildren", func(t test) {
		keys := append(t.family(5), t.family(4)...)
		for i, ended := range []time.Duration{48 * time.Hour, 25 * time.Hour, 23 * time.Hour, -time.Hour} {
			keys[i].ExpiresAt = at(-ended)
			keys[5+i].ExpiresAt, keys[5+i].RevokedAt = at(time.Hour), at(-ended)
			t.update(keys[i])
			t.update(keys[5+i])
		}
		must(t.SweepAudit(t.Context(), at(-time.Hour)))(t, "SweepAudit")
		for i, k := range keys {
			_, err := t.Find(t.Context(), k.Organization, k.ID)
			_, tokenErr := t.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
			gone := i == 1 || i == 6
			if errors.Is(err, keystore.ErrNotFound) != gone || errors.Is(tokenErr, keystore.ErrNotFound) != gone {
				t.Errorf("after SweepAudit key %d of 9 is found with %v, by its issue token with %v: a child goes, with its "+
					"token, a day after it has expired or was revoked, and no other key", i, err, tokenErr)
			}
		}
		again := newKey(keys[1].Organization)
		again.CreatedBy, again.IssueToken = keys[1].CreatedBy, keys[1].IssueToken
		t.insert(again)
		if k, err := t.Lookup(t.Context(), keys[7].Digest); err != nil || k.Refused() == nil {
			t.Errorf("Lookup of a key whose parent was swept returned %+v, %v: want it refused", k, err)
		}
		t.wantPages(keys[6].Organization, issuing.Query{Parent: keys[6].ID}, "of a parent that was swept", keys[7])
		issuer := issuing.New(t.Store, issuing.Options{})
		old := keystore.Key{ID: keys[6].ID, Organization: keys[6].Organization, Environment: keystore.Production}
		revived, err := issuer.Import(t.Context(), old, issuer.Service().Generate(keystore.Production).Reveal())
		if _, ok := errors.AsType[*keystore.FieldsError](err); !ok {
			t.Errorf("Import with the ID of a parent that was swept returned %+v, %v: its children would work again",
				revived, err)
		}
	}},
}

// erase wants so many keys and entries of an organization erased, and returns
// the entry that tells of them.
func (t test) erase(organization string, keys, entries int) (left issuing.AuditEntry) {
	t.Helper()
	var told, want = [2]int{}, [2]int{keys, entries}
	k, e, err := t.Erase(t.Context(), organization, func(keys, entries int) issuing.AuditEntry {
		told, left = [2]int{keys, entries}, newEntry(&keystore.Key{Organization: organization})
		left.Act = "erase"
		return left
	})
	if got := [2]int{k, e}; err != nil || got != want || told != want {
		t.Errorf("Erase returned %d, %v, and its entry has %d: want the keys and entries %d", got, err, told, want)
	}
	return left
}

// maxKeys counts what is below a key, or keys without a parent.
func (t test) maxKeys(parent string) {
	k := newKey(unique("org"))
	k.Parent = parent
	counted := 0
	for i, change := range []func(k *keystore.Key){
		unchanged, suspended, func(k *keystore.Key) { k.ExpiresAt = at(time.Hour) },
		expired, revoked, revokedLater, // from here on they do not count
		func(k *keystore.Key) { k.Parent = unique("key") },
		func(k *keystore.Key) { k.Organization = unique("org") },
	} {
		there := newKey(k.Organization)
		there.Parent = parent
		change(there)
		if parent != "" && there.Organization != k.Organization { // no child is
			continue
		}
		t.insert(there)
		if i < 3 {
			counted++
		}
		if parent != "" && there.Parent == parent { // what is below a child counts until it ends itself
			below := childOf(there)
			below.Ancestors = []*keystore.Key{there, {ID: parent}}
			t.insert(below)
			counted++
			k.Parent, k.Ancestors = below.ID, append([]*keystore.Key{below}, below.Ancestors...)
		}
	}
	if parent == "" { // a child has an end
		there := newKey(k.Organization)
		endless(there)
		t.insert(there)
		counted++
	}
	t.wantError(t.Insert(t.Context(), k, newEntry(k), counted), issuing.ErrTooManyKeys,
		"Insert with as many keys as may be")
	if err := t.Insert(t.Context(), k, newEntry(k), counted+1); err != nil {
		t.Errorf("Insert with room for a key returned %v, want nil", err)
	}
	if got := t.audit(k.Organization, issuing.AuditQuery{Key: k.ID}); len(got) != 1 {
		t.Errorf("got %d entries, want that of the key that was stored", len(got))
	}
}

func (t test) maxKeysRace(parent string) {
	organization := unique("org")
	errs := atOnce(racers, func(int) error {
		k := newKey(organization)
		k.Parent = parent
		return t.Insert(t.Context(), k, newEntry(k), 1)
	})
	t.oneWins(errs, issuing.ErrTooManyKeys, "a race of Insert with room for one key")
	if got := t.list(organization, issuing.Query{Parent: parent}); len(got) != 1 {
		t.Errorf("after the race there are %d keys, want 1", len(got))
	}
}
