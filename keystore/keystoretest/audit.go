package keystoretest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// newEntry returns an entry about k with an ID that is above those before.
func newEntry(k *keystore.Key) issuing.AuditEntry {
	return newEntryAt(k, at(0))
}

func newEntryAt(k *keystore.Key, now time.Time) issuing.AuditEntry {
	return issuing.AuditEntry{
		ID: fmt.Sprintf("act_%014x", now.UnixMicro()) + unique(""), At: now, Act: "issue", Actor: "ada 'o\"x\\",
		Organization: k.Organization, Key: k.ID, Reason: "ticket 4 – é",
		Changes: []issuing.Change{{Field: "name", After: "a <b> \"c\""}, {Field: "suspended", Before: "true"}},
	}
}

func audit(t testing.TB, m issuing.Store, organization, key, after string) []issuing.AuditEntry {
	t.Helper()
	page, err := m.Audit(t.Context(), organization, key, after)
	if err != nil {
		t.Fatalf("Audit returned %v, want a page", err)
	}
	return page
}

// wantAudit reports a page that is not these entries in this order.
func wantAudit(t testing.TB, rule string, got []issuing.AuditEntry, want ...issuing.AuditEntry) {
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
	{"Audit/Insert", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		first := insert(t, m, k)
		same(t, "Find after Insert", find(t, m, k), k)
		again, successor := newKey(k.Organization), newKey(k.Organization)
		again.Digest, successor.RotatedFrom = k.Digest, k.RotatedFrom
		for _, c := range []struct {
			key  *keystore.Key
			want error
		}{{again, issuing.ErrExists}, {successor, issuing.ErrRotated}} {
			wantError(t, m.Insert(t.Context(), c.key, newEntry(c.key), 0), c.want,
				"Insert of a key that cannot be stored")
		}
		wantAudit(t, "Audit after Insert, two of three refused", audit(t, m, k.Organization, "", ""), first)

		kept := first
		kept.Changes = slices.Clone(first.Changes)
		first.Changes[0].After = "changed"
		for _, e := range audit(t, m, k.Organization, "", "") {
			e.Changes[0].After = "changed"
		}
		wantAudit(t, "Audit, after the caller changed what it had given and got,", audit(t, m, k.Organization, "", ""),
			kept)
	}},

	{"Audit/Update", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		first := insert(t, m, k)
		k.Name = "audited"
		e := newEntry(k)
		if err := m.Update(t.Context(), k, e); err != nil {
			t.Fatalf("Update returned %v, want nil", err)
		}
		stale, gone := k.Clone(), newKey(k.Organization)
		stale.Name = "stale"
		wantError(t, m.Update(t.Context(), stale, newEntry(k)), issuing.ErrConflict,
			"Update of version 1")
		wantError(t, m.Update(t.Context(), gone, newEntry(k)), keystore.ErrNotFound, "Update of no key")
		k.Version = 2
		same(t, "Find after Update", find(t, m, k), k)
		wantAudit(t, "Audit after Update, two of three refused", audit(t, m, k.Organization, k.ID, ""), e, first)
	}},

	{"Audit/Race", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		first := insert(t, m, k)
		entries := make([]issuing.AuditEntry, racers)
		errs := atOnce(racers, func(i int) error {
			entries[i] = newEntry(k)
			return m.Update(t.Context(), k.Clone(), entries[i])
		})
		winner := oneWins(t, errs, issuing.ErrConflict, "a race of Update of one version")
		wantAudit(t, "Audit after the race", audit(t, m, k.Organization, "", ""), entries[winner], first)
	}},

	{"Audit/Pages", func(t testing.TB, m issuing.Store) {
		k, other := newKey(unique("org")), newKey(unique("org"))
		first := insert(t, m, k)
		insert(t, m, other)
		all, ofKey := []issuing.AuditEntry{first}, []issuing.AuditEntry{first}
		for i := range 205 {
			added := k
			if i%4 == 0 {
				added = newKey(k.Organization)
				all = append(all, insert(t, m, added))
				continue
			}
			// By a process whose clock is behind, too.
			e := newEntryAt(k, at(-time.Duration(i%5)*time.Second))
			if err := m.Update(t.Context(), k, e); err != nil {
				t.Fatalf("Update returned %v, want nil", err)
			}
			k.Version++
			all, ofKey = append(all, e), append(ofKey, e)
		}
		for _, c := range []struct {
			key  string
			want []issuing.AuditEntry
		}{{"", all}, {k.ID, ofKey}} {
			slices.SortFunc(c.want, func(a, b issuing.AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
			var got []issuing.AuditEntry
			after := ""
			for range len(all) {
				page := audit(t, m, k.Organization, c.key, after)
				if len(page) == 0 {
					break
				}
				if len(page) > 100 {
					t.Fatalf("Audit returned %d entries, want at most 100", len(page))
				}
				got, after = append(got, page...), page[len(page)-1].ID
				insert(t, m, newKey(k.Organization))
			}
			wantAudit(t, "the pages, with keys inserted in between", got, c.want...)
		}
		wantAudit(t, "Audit by another organization", audit(t, m, other.Organization, k.ID, ""))
		wantAudit(t, "Audit without an organization", audit(t, m, "", k.ID, ""))
	}},

	{"Audit/Sweep", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		first, old := insert(t, m, k), newEntryAt(k, at(-time.Hour))
		if err := m.Update(t.Context(), k, old); err != nil {
			t.Fatal(err)
		}
		k.Version++
		young := insert(t, m, newKey(k.Organization))
		if removed, err := m.SweepAudit(t.Context(), at(-time.Minute)); err != nil || removed < 1 {
			t.Errorf("SweepAudit returned %d, %v, want at least 1", removed, err)
		}
		wantAudit(t, "Audit after SweepAudit", audit(t, m, k.Organization, "", ""), young, first)
		same(t, "Find of a key whose entry was swept", find(t, m, k), k)
	}},

	{"Audit/MaxKeys", func(t testing.TB, m issuing.Store) { maxKeys(t, m, "") }},
	{"Audit/MaxChildren", func(t testing.TB, m issuing.Store) { maxKeys(t, m, unique("key")) }},
	{"Audit/MaxKeysRace", func(t testing.TB, m issuing.Store) { maxKeysRace(t, m, "") }},
	{"Audit/MaxChildrenRace", func(t testing.TB, m issuing.Store) { maxKeysRace(t, m, unique("key")) }},

	{"Audit/Context", func(t testing.TB, m issuing.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		k := newKey(unique("org"))
		err := m.Insert(ctx, k, newEntry(k), 1)
		_, lookupErr := m.Lookup(t.Context(), k.Digest)
		entries := len(audit(t, m, k.Organization, "", ""))
		if isRefusal(err) || err == nil && lookupErr != nil || (lookupErr == nil) != (entries == 1) {
			t.Errorf("Insert with a context that has ended returned %v, and left a key (%v) and %d entries: "+
				"want both or, with an error that says nothing about the key, neither", err, lookupErr, entries)
		}
	}},

	{"Erase/Organization", func(t testing.TB, m issuing.Store) {
		k, other := newKey(unique("org")), newKey(unique("org"))
		insert(t, m, k)
		insert(t, m, newKey(k.Organization))
		kept := insert(t, m, other)
		keys, entries, err := m.Erase(t.Context(), k.Organization)
		if err != nil || keys != 2 || entries != 2 {
			t.Errorf("Erase returned %d, %d, %v, want 2 keys and 2 entries", keys, entries, err)
		}
		for method, err := range reads(t.Context(), m, k) {
			if method != "Lookup" && method != "List" {
				wantError(t, err, keystore.ErrNotFound, method+" of a key that was erased")
			}
		}
		if got := list(t, m, k.Organization, issuing.Query{}); len(got) != 0 {
			t.Errorf("List of an organization that was erased returned %d keys, want none", len(got))
		}
		got, err := m.Lookup(t.Context(), k.Digest)
		switch {
		case errors.Is(err, keystore.ErrNotFound):
		case err != nil || !errors.Is(got.Refused(), keystore.ErrRevoked):
			t.Errorf("Lookup of a key that was erased returned %v, %v, want ErrNotFound or a key that is revoked", got,
				err)
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
		wantAudit(t, "Audit of an organization that was erased", audit(t, m, k.Organization, "", ""))
		wantAudit(t, "Audit of another one", audit(t, m, other.Organization, "", ""), kept)
		same(t, "Find of another organization's key", find(t, m, other), other)
		if keys, entries, err := m.Erase(t.Context(), k.Organization); keys != 0 || entries != 0 || err != nil {
			t.Errorf("a second Erase returned %d, %d, %v, want nothing left", keys, entries, err)
		}
		insert(t, m, k)
		same(t, "Find of a key that was erased and inserted again", find(t, m, k), k)
	}},

	{"Erase/Feed", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		since := position(t, m)
		if _, _, err := m.Erase(t.Context(), k.Organization); err != nil {
			t.Fatal(err)
		}
		seen, since := drain(t, m, since)
		wantSeen(t, seen, []*keystore.Key{k}, "a key that was erased")
		insert(t, m, k)
		seen, _ = drain(t, m, since)
		wantSeen(t, seen, []*keystore.Key{k}, "a key that was erased and inserted again")
	}},

	{"Erase/Children", func(t testing.TB, m issuing.Store) {
		keys := family(t, m, 3)
		if _, _, err := m.Erase(t.Context(), keys[0].Organization); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			got, err := m.Lookup(t.Context(), k.Digest)
			if err == nil && (got.Refused() == nil || slices.Contains(ids(keys), got.Parent)) ||
				err != nil && !errors.Is(err, keystore.ErrNotFound) {
				t.Errorf("Lookup of an erased child returned %+v, %v: want it refused, and nothing of its parent", got, err)
			}
		}
	}},

	{"Audit/SweepChildren", func(t testing.TB, m issuing.Store) {
		keys := append(family(t, m, 5), family(t, m, 4)...)
		for i, ended := range []time.Duration{48 * time.Hour, 25 * time.Hour, 23 * time.Hour, -time.Hour} {
			keys[i].ExpiresAt = at(-ended)
			keys[5+i].ExpiresAt, keys[5+i].RevokedAt = at(time.Hour), at(-ended)
			update(t, m, keys[i])
			update(t, m, keys[5+i])
		}
		if _, err := m.SweepAudit(t.Context(), at(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		for i, k := range keys {
			_, err := m.Find(t.Context(), k.Organization, k.ID)
			_, tokenErr := m.FindIssued(t.Context(), k.Organization, k.CreatedBy, k.IssueToken)
			gone := i == 1 || i == 6
			if errors.Is(err, keystore.ErrNotFound) != gone || errors.Is(tokenErr, keystore.ErrNotFound) != gone {
				t.Errorf("after SweepAudit key %d of 9 is found with %v, by its issue token with %v: a child goes, with its "+
					"token, a day after it has expired or was revoked, and no other key", i, err, tokenErr)
			}
		}
		again := newKey(keys[1].Organization)
		again.CreatedBy, again.IssueToken = keys[1].CreatedBy, keys[1].IssueToken
		insert(t, m, again)
		if k, err := m.Lookup(t.Context(), keys[7].Digest); err != nil || k.Refused() == nil {
			t.Errorf("Lookup of a key whose parent was swept returned %+v, %v: want it refused", k, err)
		}
		wantPages(t, m, keys[6].Organization, issuing.Query{Parent: keys[6].ID}, "of a parent that was swept", keys[7])
		issuer := issuing.New(m, issuing.Options{})
		old := keystore.Key{ID: keys[6].ID, Organization: keys[6].Organization, Environment: keystore.Production}
		revived, err := issuer.Import(t.Context(), old, issuer.Service().Generate(keystore.Production).Reveal())
		if _, ok := errors.AsType[*keystore.FieldsError](err); !ok {
			t.Errorf("Import with the ID of a parent that was swept returned %+v, %v: its children would work again",
				revived, err)
		}
	}},
}

// maxKeys counts what is below a key, or keys without a parent.
func maxKeys(t testing.TB, m issuing.Store, parent string) {
	k := newKey(unique("org"))
	k.Parent = parent
	counted := 0
	for _, change := range []func(k *keystore.Key){
		func(k *keystore.Key) { counted++ },
		func(k *keystore.Key) { k.ExpiresAt = at(time.Hour); counted++ },
		func(k *keystore.Key) { k.Suspended = true; counted++ },
		func(k *keystore.Key) { k.ExpiresAt = at(-time.Second) },
		func(k *keystore.Key) { k.RevokedAt = at(-time.Second) },
		func(k *keystore.Key) { k.RevokedAt = at(time.Hour) },
		func(k *keystore.Key) { k.Parent = unique("key") },
		func(k *keystore.Key) { k.Organization = unique("org") },
	} {
		there := newKey(k.Organization)
		there.Parent = parent
		change(there)
		if parent != "" && there.Organization != k.Organization { // no child is
			continue
		}
		insert(t, m, there)
		if parent != "" && there.Parent == parent { // what is below a child counts until it ends itself
			below := newKey(there.Organization)
			below.Parent, below.RotatedFrom, below.Ancestors = there.ID, "", []*keystore.Key{there, {ID: parent}}
			insert(t, m, below)
			counted++
			k.Parent, k.Ancestors = below.ID, append([]*keystore.Key{below}, below.Ancestors...)
		}
	}
	if parent == "" { // a child has an end
		there := newKey(k.Organization)
		there.ExpiresAt = time.Time{}
		insert(t, m, there)
		counted++
	}
	wantError(t, m.Insert(t.Context(), k, newEntry(k), counted), issuing.ErrTooManyKeys,
		"Insert with as many keys as may be")
	if err := m.Insert(t.Context(), k, newEntry(k), counted+1); err != nil {
		t.Errorf("Insert with room for a key returned %v, want nil", err)
	}
	if got := audit(t, m, k.Organization, k.ID, ""); len(got) != 1 {
		t.Errorf("got %d entries, want that of the key that was stored", len(got))
	}
}

func maxKeysRace(t testing.TB, m issuing.Store, parent string) {
	organization := unique("org")
	errs := atOnce(racers, func(int) error {
		k := newKey(organization)
		k.Parent = parent
		return m.Insert(t.Context(), k, newEntry(k), 1)
	})
	oneWins(t, errs, issuing.ErrTooManyKeys, "a race of Insert with room for one key")
	if got := list(t, m, organization, issuing.Query{Parent: parent}); len(got) != 1 {
		t.Errorf("after the race there are %d keys, want 1", len(got))
	}
}
