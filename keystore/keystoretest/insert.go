package keystoretest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// racers is how many calls a race has.
const racers = 16

func refusedInsert(t testing.TB, m issuing.Store, k *keystore.Key, rule string) {
	t.Helper()
	wantError(t, m.Insert(t.Context(), k, newEntry(k), 0), issuing.ErrExists, rule)
}

func absent(t testing.TB, m issuing.Store, k *keystore.Key, rule string) {
	t.Helper()
	_, err := m.Lookup(t.Context(), k.Digest)
	wantError(t, err, keystore.ErrNotFound, rule)
}

// race inserts keys of one organization at the same time, of which change lets
// one in. It returns that one.
func race(t testing.TB, m issuing.Store, refusal error, what string, change func(k *keystore.Key)) *keystore.Key {
	t.Helper()
	organization := unique("org")
	keys := make([]*keystore.Key, racers)
	for i := range keys {
		keys[i] = newKey(organization)
		change(keys[i])
	}
	errs := atOnce(racers, func(i int) error { return m.Insert(t.Context(), keys[i], newEntry(keys[i]), 0) })
	winner := keys[oneWins(t, errs, refusal, "a race of Inserts "+what)]
	for _, k := range keys {
		if k != winner && k.Digest != winner.Digest {
			absent(t, m, k, "Lookup of a key that lost the race")
		}
	}
	same(t, "Lookup after the race", lookup(t, m, winner), winner)
	return winner
}

// insertEach inserts keys that do not stand in each other's way.
func insertEach(t testing.TB, m issuing.Store, keys []*keystore.Key, rules ...string) {
	t.Helper()
	for i, k := range keys {
		if err := m.Insert(t.Context(), k, newEntry(k), 0); err != nil {
			t.Errorf("Insert of %s returned %v, want nil", rules[i], err)
		}
	}
}

var insertCases = []testCase{
	{"Insert/Version", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		k.Version = 7
		insert(t, m, k)
		if k.Version != 7 {
			t.Errorf("Insert set k.Version to %d, want the caller's key left alone", k.Version)
		}
		if got := find(t, m, k).Version; got != 1 {
			t.Errorf("Version after Insert is %d, want 1", got)
		}
	}},

	{"Insert/KeepsNothing", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		want := k.Clone()
		insert(t, m, k)
		k.Name = "changed"
		spoilShared(k)
		same(t, "Find, after the caller changed the key it had inserted,", find(t, m, want), want)
		same(t, "Lookup, after the caller changed the key it had inserted,", lookup(t, m, want), want)
	}},

	{"Insert/ExistingID", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		for _, organization := range []string{k.Organization, unique("org")} {
			twin := newKey(organization)
			twin.ID = k.ID
			refusedInsert(t, m, twin, "Insert of an ID that is taken, in whichever organization")
			absent(t, m, twin, "Lookup of a key that Insert refused")
		}
		same(t, "Find, after Insert refused a key with the same ID,", find(t, m, k), k)
	}},

	{"Insert/ExistingDigest", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		twin := newKey(unique("org"))
		twin.Digest = k.Digest
		refusedInsert(t, m, twin, "Insert of a Digest that is taken")
		same(t, "Lookup, after Insert refused a key with the same Digest,", lookup(t, m, k), k)
	}},

	{"Insert/ExistingIssueToken", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		twin := newKey(k.Organization)
		twin.CreatedBy, twin.IssueToken = k.CreatedBy, k.IssueToken
		refusedInsert(t, m, twin, "Insert of an IssueToken that its creator used before in the organization")
		absent(t, m, twin, "Lookup of a key that Insert refused")
	}},

	{"Insert/OtherIssueTokens", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		otherActor, otherOrganization := newKey(k.Organization), newKey(unique("org"))
		otherActor.IssueToken = k.IssueToken
		otherOrganization.CreatedBy, otherOrganization.IssueToken = k.CreatedBy, k.IssueToken
		none, noneAgain := newKey(k.Organization), newKey(k.Organization)
		none.CreatedBy, none.IssueToken = k.CreatedBy, ""
		noneAgain.CreatedBy, noneAgain.IssueToken = k.CreatedBy, ""
		insertEach(t, m, []*keystore.Key{k, otherActor, otherOrganization, none, noneAgain},
			"the first use of an IssueToken", "another creator's use of the same IssueToken",
			"another organization's use of the same IssueToken", "an empty IssueToken", "a second empty IssueToken")
	}},

	{"Insert/IssueTokenRace", func(t testing.TB, m issuing.Store) {
		actor, token := unique("user"), unique("token")
		winner := race(t, m, issuing.ErrExists, "with one IssueToken", func(k *keystore.Key) {
			k.CreatedBy, k.IssueToken = actor, token
		})
		same(t, "FindIssued after the race", findIssued(t, m, winner), winner)
	}},

	{"Insert/DigestRace", func(t testing.TB, m issuing.Store) {
		digest := newKey("").Digest
		race(t, m, issuing.ErrExists, "with one Digest", func(k *keystore.Key) { k.Digest = digest })
	}},

	{"Insert/SecondSuccessor", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		second := newKey(k.Organization)
		second.RotatedFrom = k.RotatedFrom
		wantError(t, m.Insert(t.Context(), second, newEntry(second), 0), issuing.ErrRotated, "a second successor of one key")
		absent(t, m, second, "Lookup of a key that Insert refused")
		// A repeat of the first rotation has to find the key that it made.
		repeat := newKey(k.Organization)
		repeat.RotatedFrom, repeat.CreatedBy, repeat.IssueToken = k.RotatedFrom, k.CreatedBy, k.IssueToken
		refusedInsert(t, m, repeat, "Insert of a second successor with the IssueToken of the first")
		same(t, "Find, after Insert refused a second successor,", find(t, m, k), k)
	}},

	{"Insert/OtherSuccessors", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		otherOrganization, next := newKey(unique("org")), newKey(k.Organization)
		otherOrganization.RotatedFrom = k.RotatedFrom
		next.RotatedFrom = k.ID
		none, noneAgain := newKey(k.Organization), newKey(k.Organization)
		none.RotatedFrom, noneAgain.RotatedFrom = "", ""
		insertEach(t, m, []*keystore.Key{k, otherOrganization, next, none, noneAgain},
			"the first successor of a key", "a successor of another organization's key with the same ID",
			"a successor of the successor", "a key that replaces none", "a second key that replaces none")
	}},

	{"Insert/SuccessorRace", func(t testing.TB, m issuing.Store) {
		old := unique("key")
		race(t, m, issuing.ErrRotated, "of successors of one key", func(k *keystore.Key) { k.RotatedFrom = old })
	}},

	{"Insert/Networks", func(t testing.TB, m issuing.Store) {
		var many []string
		for i := range 20 {
			many = append(many, fmt.Sprintf("2001:db8:%x::/48", 20-i))
		}
		for _, networks := range [][]string{nil, {"0.0.0.0/0", "::/0"}, {"10.0.0.0/8", "10.0.0.0/9", "10.0.0.0/8"},
			{"192.0.2.7/32", "2001:db8::7/128", "fe80::/10"}, many} {
			k := newKey(unique("org"))
			k.Networks = nil
			for _, n := range networks {
				k.Networks = append(k.Networks, netip.MustParsePrefix(n))
			}
			survives(t, m, k, "the networks and their order")
		}
	}},

	{"Insert/Times", func(t testing.TB, m issuing.Store) {
		east := time.FixedZone("east", 5*3600+1800)
		for _, c := range []struct{ created, expires, revoked, used time.Time }{
			{created: time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)},
			{
				created: time.Date(2026, 3, 4, 5, 6, 7, 1000, east),
				expires: time.Date(2027, 1, 1, 0, 0, 0, 999999000, east),
				revoked: time.Date(2026, 3, 5, 0, 0, 0, 500000000, east),
				used:    time.Date(2026, 3, 4, 6, 0, 0, 250000, east),
			},
			{
				created: time.Date(1999, 12, 31, 23, 59, 59, 999999000, time.UTC),
				expires: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
			},
		} {
			k := newKey(unique("org"))
			k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.LastUsedAt = c.created, c.expires, c.revoked, c.used
			insert(t, m, k)
			got := find(t, m, k)
			same(t, "Find", got, k)
			same(t, "Lookup", lookup(t, m, k), k)
			if !got.LastUsedAt.Equal(c.used) {
				t.Errorf("Find returned LastUsedAt %v, want %v as it was inserted", got.LastUsedAt, c.used)
			}
			for i, times := range [][2]time.Time{{got.ExpiresAt, c.expires}, {got.RevokedAt, c.revoked},
				{got.LastUsedAt,
					c.used}} {
				if times[0].IsZero() != times[1].IsZero() {
					t.Errorf("%s came back as %v, went in as %v: a zero time stays zero, and no other becomes it",
						[]string{"ExpiresAt", "RevokedAt", "LastUsedAt"}[i], times[0], times[1])
				}
			}
		}
	}},
}
