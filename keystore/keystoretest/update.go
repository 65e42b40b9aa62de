package keystoretest

import (
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// edit changes every field of k that Update may change, but for its ends.
func edit(k *keystore.Key) {
	k.Name, k.Scopes = "Weekly import", []scope.Name{scope.ChatRead}
	k.Attributes = map[string]string{"plan": "free", "project": "9"}
	k.Networks = networks("198.51.100.0/24")
}

var updateCases = []testCase{
	{"Update/Fields", func(t test) {
		k := newKey(unique("org"))
		bystander := newKey(k.Organization)
		t.insert(k, bystander)
		edit(k)
		k.ExpiresAt, k.RevokedAt, k.Suspended = at(48*time.Hour), at(time.Hour), true
		t.noError(t.tryUpdate(k), "Update")
		if k.Version != 1 {
			t.Errorf("Update set k.Version to %d, want the caller's key left alone", k.Version)
		}
		k.Version = 2
		t.keeps(k, "a key that was updated")

		k.Name, k.Scopes, k.ExpiresAt, k.RevokedAt, k.Suspended = "", nil, time.Time{}, time.Time{}, false
		k.Attributes, k.Networks = nil, nil
		t.update(k)
		t.keeps(k, "a key after a second Update, which emptied every field it may,")
		t.keeps(bystander, "another key of the organization")
	}},

	{"Update/FixedFields", func(t test) {
		k := t.inserted()
		changed := k.Clone()
		changed.Environment, changed.Hint, changed.Legacy = keystore.Production, "zzzz", ""
		changed.CreatedAt, changed.CreatedBy = at(-time.Hour), unique("user")
		changed.IssueToken, changed.RotatedFrom = unique("token"), unique("key")
		changed.LastUsedAt = at(0)
		t.update(changed)
		k.Version = 2
		got := t.find(k)
		t.same("Find after an Update with fields that it must leave alone", got, k)
		if !got.LastUsedAt.IsZero() {
			t.Errorf("LastUsedAt after Update is %v, want it left to AddUses", got.LastUsedAt)
		}
	}},

	{"Update/Conflict", func(t test) {
		k := t.inserted()
		stale := k.Clone()
		k.Name = "first"
		t.update(k)
		for _, version := range []int64{0, 1, 3} {
			stale.Name, stale.Version = "second", version
			t.wantError(t.tryUpdate(stale), issuing.ErrConflict, "Update of a version that is not the stored one")
		}
		t.keeps(k, "a key after Updates that were refused")
	}},

	{"Update/Race", func(t test) {
		k := newKey(unique("org"))
		first := t.insert(k)
		tries, entries := make([]*keystore.Key, racers), make([]issuing.AuditEntry, racers)
		errs := atOnce(racers, func(i int) error {
			tries[i] = k.Clone()
			tries[i].Name = unique("name")
			entries[i] = newEntry(tries[i])
			return t.Update(t.Context(), tries[i], entries[i])
		})
		i := t.oneWins(errs, issuing.ErrConflict, "a race of Updates of one version")
		tries[i].Version, first.KeyName = 2, tries[i].Name
		t.keeps(tries[i], "the key after the race")
		t.wantAudit("Audit after the race", t.audit(k.Organization, issuing.AuditQuery{}), entries[i], first)
	}},

	{"Update/Others", func(t test) {
		k, other := t.inserted(), t.inserted()
		for rule, wrong := range map[string]func(k *keystore.Key){
			"as another organization":        func(k *keystore.Key) { k.Organization = other.Organization },
			"without an organization":        func(k *keystore.Key) { k.Organization = "" },
			"with an id that no key has":     func(k *keystore.Key) { k.ID = unique("key") },
			"with the digest of another key": func(k *keystore.Key) { k.Digest = other.Digest },
		} {
			changed := k.Clone()
			changed.RevokedAt = at(0)
			wrong(changed)
			t.wantError(t.tryUpdate(changed), keystore.ErrNotFound, "Update "+rule)
		}
		t.keeps(k, "a key after Updates that were refused")
		t.keeps(other, "the other organization's key")
	}},

	{"Update/SeenAtOnce", func(t test) {
		k := t.inserted()
		for range 10 {
			// Whatever answers Lookup quickly has the key by now.
			t.lookup(k)
			k.Suspended = !k.Suspended
			t.update(k)
			if got := t.lookup(k); got.Suspended != k.Suspended {
				t.Fatalf("Lookup after Update returned Suspended %v, want %v: it sees every write that returned before",
					got.Suspended, k.Suspended)
			}
		}
	}},

	{"Update/KeepsNothing", func(t test) {
		k := t.inserted()
		edit(k)
		t.update(k)
		want := k.Clone()
		spoil(k)
		t.keeps(want, "a key after the caller changed the one it had updated")
	}},
}
