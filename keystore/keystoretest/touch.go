package keystoretest

import (
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func (t test) touch(uses ...keystore.Use) {
	t.Helper()
	t.noError(t.AddUses(t.Context(), uses), "AddUses")
}

func use(k *keystore.Key, at time.Time) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID, At: at}
}

func (t test) wantUsed(k *keystore.Key, want time.Time, rule string) {
	t.Helper()
	if got := t.find(k).LastUsedAt; !got.Equal(want) {
		t.Errorf("%s: LastUsedAt is %v, want %v", rule, got, want)
	}
}

var touchCases = []testCase{
	{"AddUses/Forward", func(t test) {
		k, now := t.inserted(), at(0)
		t.touch(use(k, now))
		t.wantUsed(k, now, "AddUses of a key that was never used")
		t.touch(use(k, now.Add(-time.Microsecond)))
		t.wantUsed(k, now, "AddUses with an earlier time")
		t.touch(use(k, now.Add(2*time.Microsecond)), use(k, now.Add(time.Microsecond)))
		t.wantUsed(k, now.Add(2*time.Microsecond), "AddUses with two later times, the latest first")
	}},

	{"AddUses/Others", func(t test) {
		k, other := t.inserted(), t.inserted()
		now := at(0)
		t.touch()
		t.touch(
			keystore.Use{Organization: other.Organization, ID: k.ID, At: now},
			keystore.Use{Organization: k.Organization, ID: unique("key"), At: now},
			use(other, now),
		)
		t.wantUsed(k, time.Time{}, "AddUses of the key as another organization")
		t.wantUsed(other, now, "AddUses of a key beside uses that have to be ignored")
		t.same("Lookup of the key that was not touched", t.lookup(k), k)
	}},

	{"AddUses/Many", func(t test) {
		// As many uses as Uses hands over in one call.
		k, now := t.inserted(), at(0)
		uses := make([]keystore.Use, 1000)
		for i := range uses {
			uses[i] = keystore.Use{Organization: k.Organization, ID: unique("key"), At: now}
		}
		uses[len(uses)/2] = use(k, now)
		t.touch(uses...)
		t.wantUsed(k, now, "AddUses of 1000 keys")
	}},

	{"AddUses/NothingElse", func(t test) {
		k := t.inserted()
		read := t.find(k)
		t.touch(use(k, at(0)))
		t.same("Find after AddUses", t.find(k), k)
		read.RevokedAt = at(-time.Minute)
		t.noError(t.tryUpdate(read), "Update of a key that was touched since it was read, which is no conflict,")
		used := at(time.Second)
		t.touch(use(k, used))
		read.Version = 2
		t.same("Find, after a revoked key was touched,", t.find(k), read)
		t.wantUsed(k, used, "AddUses of a key that is revoked")
	}},

	{"AddUses/RevokeRace", func(t test) {
		for range 5 {
			k, now := t.inserted(), at(0)
			revoked := k.Clone()
			revoked.RevokedAt = now
			t.allWin(atOnce(racers, func(i int) error {
				if i == racers/2 {
					return t.tryUpdate(revoked)
				}
				return t.AddUses(t.Context(), []keystore.Use{use(k, now.Add(time.Duration(i)*time.Second))})
			}), "AddUses and Update")
			revoked.Version = 2
			t.same("Find, after a key was touched while it was revoked,", t.find(k), revoked)
			t.wantUsed(k, now.Add((racers-1)*time.Second), "concurrent calls of AddUses")
		}
	}},
}
