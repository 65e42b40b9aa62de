package keystoretest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

var updateCases = []testCase{
	{"Update/Fields", func(t testing.TB, m issuing.Store) {
		k := newKey(unique("org"))
		bystander := newKey(k.Organization)
		insert(t, m, k, bystander)
		k.Name = "Weekly import"
		k.Scopes = []scope.Name{scope.ChatRead}
		k.Attributes = map[string]string{"plan": "free", "project": "9"}
		k.Networks = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		k.ExpiresAt = at(48 * time.Hour)
		k.RevokedAt = at(time.Hour)
		k.Suspended = true
		update(t, m, k)
		if k.Version != 1 {
			t.Errorf("Update set k.Version to %d, want the caller's key left alone", k.Version)
		}
		k.Version = 2
		same(t, "Find after Update", find(t, m, k), k)
		same(t, "Lookup after Update", lookup(t, m, k), k)

		k.Name, k.Scopes, k.ExpiresAt, k.RevokedAt, k.Suspended = "", nil, time.Time{}, time.Time{}, false
		k.Attributes, k.Networks = nil, nil
		update(t, m, k)
		k.Version = 3
		same(t, "Find after a second Update, which emptied every field it may,", find(t, m, k), k)
		same(t, "Find of another key of the organization", find(t, m, bystander), bystander)
	}},

	{"Update/FixedFields", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		changed := k.Clone()
		changed.Environment = keystore.Production
		changed.Hint = "zzzz"
		changed.Legacy = ""
		changed.CreatedAt = at(-time.Hour)
		changed.CreatedBy = unique("user")
		changed.IssueToken = unique("token")
		changed.RotatedFrom = unique("key")
		changed.LastUsedAt = at(0)
		update(t, m, changed)
		k.Version = 2
		got := find(t, m, k)
		same(t, "Find after an Update with fields that it must leave alone", got, k)
		if !got.LastUsedAt.IsZero() {
			t.Errorf("LastUsedAt after Update is %v, want it left to AddUses", got.LastUsedAt)
		}
	}},

	{"Update/Conflict", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		stale := k.Clone()
		k.Name = "first"
		update(t, m, k)
		k.Version = 2
		for _, version := range []int64{0, 1, 3} {
			stale.Name, stale.Version = "second", version
			wantError(t, m.Update(t.Context(), stale, newEntry(stale)), issuing.ErrConflict,
				"Update of a version that is not the stored one")
		}
		same(t, "Find after Updates that were refused", find(t, m, k), k)
	}},

	{"Update/Race", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		tries := make([]*keystore.Key, racers)
		errs := atOnce(racers, func(i int) error {
			tries[i] = k.Clone()
			tries[i].Name = unique("name")
			return m.Update(t.Context(), tries[i], newEntry(tries[i]))
		})
		winner := oneWins(t, errs, issuing.ErrConflict, "a race of Updates of one version")
		tries[winner].Version = 2
		same(t, "Find after the race", find(t, m, k), tries[winner])
	}},

	{"Update/Others", func(t testing.TB, m issuing.Store) {
		k, other := inserted(t, m), inserted(t, m)
		for _, c := range []struct {
			rule  string
			spoil func(k *keystore.Key)
		}{
			{"as another organization", func(k *keystore.Key) { k.Organization = other.Organization }},
			{"without an organization", func(k *keystore.Key) { k.Organization = "" }},
			{"with an id that no key has", func(k *keystore.Key) { k.ID = unique("key") }},
			{"with the digest of another key", func(k *keystore.Key) { k.Digest = other.Digest }},
		} {
			wrong := k.Clone()
			wrong.RevokedAt = at(0)
			c.spoil(wrong)
			wantError(t, m.Update(t.Context(), wrong, newEntry(wrong)), keystore.ErrNotFound, "Update "+c.rule)
		}
		same(t, "Find after Updates that were refused", find(t, m, k), k)
		same(t, "Find of the other organization's key", find(t, m, other), other)
	}},

	{"Update/SeenAtOnce", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		for range 10 {
			// Whatever answers Lookup quickly has the key by now.
			lookup(t, m, k)
			k.Suspended = !k.Suspended
			update(t, m, k)
			k.Version++
			if got := lookup(t, m, k); got.Suspended != k.Suspended {
				t.Fatalf("Lookup after Update returned Suspended %v, want %v: it sees every write that returned before",
					got.Suspended, k.Suspended)
			}
		}
	}},

	{"Update/KeepsNothing", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		k.Name = "kept"
		k.Scopes = []scope.Name{scope.ChatRead}
		k.Attributes = map[string]string{"plan": "free"}
		k.Networks = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		update(t, m, k)
		want := k.Clone()
		want.Version = 2
		k.Name = "changed"
		spoilShared(k)
		same(t, "Find, after the caller changed the key it had updated,", find(t, m, want), want)
		same(t, "Lookup, after the caller changed the key it had updated,", lookup(t, m, want), want)
	}},
}
