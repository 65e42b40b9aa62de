package keystoretest

import (
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// racers is how many calls a race has.
const racers = 16

// refusedInsert wants k refused, and there, of which k has something, as it was.
func (t test) refusedInsert(k, there *keystore.Key, refusal error, rule string) {
	t.Helper()
	t.wantError(t.tryInsert(k), refusal, "Insert of "+rule)
	if k.Digest != there.Digest {
		t.unknown("Lookup of a key that Insert refused")(t.Lookup(t.Context(), k.Digest))
	}
	t.keeps(there, "the key that was there before "+rule)
}

// race inserts keys of one organization at the same time, of which change lets
// one in.
func (t test) race(refusal error, what string, change func(k *keystore.Key)) {
	t.Helper()
	organization := unique("org")
	keys := make([]*keystore.Key, racers)
	for i := range keys {
		keys[i] = newKey(organization)
		change(keys[i])
	}
	errs := atOnce(racers, func(i int) error { return t.tryInsert(keys[i]) })
	winner := keys[t.oneWins(errs, refusal, "a race of Inserts "+what)]
	for _, k := range keys {
		if k != winner && k.Digest != winner.Digest {
			t.unknown("Lookup of a key that lost the race")(t.Lookup(t.Context(), k.Digest))
		}
	}
	t.keeps(winner, "the key that won the race")
}

// insertEach inserts keys that do not stand in each other's way.
func (t test) insertEach(keys map[string]*keystore.Key) {
	t.Helper()
	for rule, k := range keys {
		if err := t.tryInsert(k); err != nil {
			t.Errorf("Insert of %s beside the others returned %v, want nil", rule, err)
		}
	}
}

var insertCases = []testCase{
	{"Insert/Version", func(t test) {
		k := newKey(unique("org"))
		k.Version = 7
		t.insert(k)
		if k.Version != 7 {
			t.Errorf("Insert set k.Version to %d, want the caller's key left alone", k.Version)
		}
		if got := t.find(k).Version; got != 1 {
			t.Errorf("Version after Insert is %d, want 1", got)
		}
	}},

	{"Insert/KeepsNothing", func(t test) {
		k := newKey(unique("org"))
		want := k.Clone()
		t.insert(k)
		spoil(k)
		t.keeps(want, "a key after the caller changed the one it had inserted")
	}},

	{"Insert/ExistingID", func(t test) {
		k := t.inserted()
		for _, organization := range []string{k.Organization, unique("org")} {
			twin := newKey(organization)
			twin.ID = k.ID
			t.refusedInsert(twin, k, issuing.ErrExists, "an ID that is taken, in whichever organization")
		}
	}},

	{"Insert/ExistingDigest", func(t test) {
		k, twin := t.inserted(), newKey(unique("org"))
		twin.Digest = k.Digest
		t.refusedInsert(twin, k, issuing.ErrExists, "a Digest that is taken")
	}},

	{"Insert/ExistingIssueToken", func(t test) {
		k := t.inserted()
		twin := newKey(k.Organization)
		twin.CreatedBy, twin.IssueToken = k.CreatedBy, k.IssueToken
		t.refusedInsert(twin, k, issuing.ErrExists, "an IssueToken that its creator used before in the organization")
	}},

	{"Insert/OtherIssueTokens", func(t test) {
		k := newKey(unique("org"))
		otherActor, otherOrganization := newKey(k.Organization), newKey(unique("org"))
		otherActor.IssueToken = k.IssueToken
		otherOrganization.CreatedBy, otherOrganization.IssueToken = k.CreatedBy, k.IssueToken
		none, noneAgain := newKey(k.Organization), newKey(k.Organization)
		none.CreatedBy, none.IssueToken = k.CreatedBy, ""
		noneAgain.CreatedBy, noneAgain.IssueToken = k.CreatedBy, ""
		t.insertEach(map[string]*keystore.Key{
			"an IssueToken": k, "another creator's use of the same IssueToken": otherActor,
			"another organization's use of the same IssueToken": otherOrganization,
			"an empty IssueToken":                               none, "a second empty IssueToken": noneAgain,
		})
	}},

	{"Insert/IssueTokenRace", func(t test) {
		actor, token := unique("user"), unique("token")
		t.race(issuing.ErrExists, "with one IssueToken", func(k *keystore.Key) {
			k.CreatedBy, k.IssueToken = actor, token
		})
	}},

	{"Insert/DigestRace", func(t test) {
		digest := newKey("").Digest
		t.race(issuing.ErrExists, "with one Digest", func(k *keystore.Key) { k.Digest = digest })
	}},

	{"Insert/SecondSuccessor", func(t test) {
		k := t.inserted()
		second, repeat := newKey(k.Organization), newKey(k.Organization)
		second.RotatedFrom = k.RotatedFrom
		t.refusedInsert(second, k, issuing.ErrRotated, "a second successor of one key")
		// A repeat of the first rotation has to find the key that it made.
		repeat.RotatedFrom, repeat.CreatedBy, repeat.IssueToken = k.RotatedFrom, k.CreatedBy, k.IssueToken
		t.refusedInsert(repeat, k, issuing.ErrExists, "a second successor with the IssueToken of the first")
	}},

	{"Insert/OtherSuccessors", func(t test) {
		k := newKey(unique("org"))
		otherOrganization, next := newKey(unique("org")), newKey(k.Organization)
		otherOrganization.RotatedFrom, next.RotatedFrom = k.RotatedFrom, k.ID
		none, noneAgain := newKey(k.Organization), newKey(k.Organization)
		none.RotatedFrom, noneAgain.RotatedFrom = "", ""
		t.insertEach(map[string]*keystore.Key{
			"the successor of a key": k, "a successor of the successor": next,
			"a successor of another organization's key with the same ID": otherOrganization,
			"a key that replaces none":                                   none, "a second key that replaces none": noneAgain,
		})
	}},

	{"Insert/SuccessorRace", func(t test) {
		old := unique("key")
		t.race(issuing.ErrRotated, "of successors of one key", func(k *keystore.Key) { k.RotatedFrom = old })
	}},

	{"Insert/Networks", func(t test) {
		var many []string
		for i := range 20 {
			many = append(many, fmt.Sprintf("2001:db8:%x::/48", 20-i))
		}
		for _, texts := range [][]string{nil, {"0.0.0.0/0", "::/0"}, {"10.0.0.0/8", "10.0.0.0/9", "10.0.0.0/8"},
			{"192.0.2.7/32", "2001:db8::7/128", "fe80::/10"}, many} {
			k := newKey(unique("org"))
			k.Networks = networks(texts...)
			t.survives(k, "the networks and their order")
		}
	}},

	{"Insert/Times", func(t test) {
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
			t.insert(k)
			for _, got := range t.keeps(k, "a key with these times") {
				if !got.LastUsedAt.Equal(c.used) {
					t.Errorf("got LastUsedAt %v, want %v as it was inserted", got.LastUsedAt, c.used)
				}
			}
		}
	}},
}
