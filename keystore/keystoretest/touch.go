package keystoretest

import (
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func touch(t testing.TB, m issuing.Store, uses ...keystore.Use) {
	t.Helper()
	if err := m.AddUses(t.Context(), uses); err != nil {
		t.Fatalf("AddUses returned %v, want nil", err)
	}
}

func use(k *keystore.Key, at time.Time) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID, At: at}
}

func wantUsed(t testing.TB, m issuing.Store, k *keystore.Key, want time.Time, rule string) {
	t.Helper()
	if got := find(t, m, k).LastUsedAt; !got.Equal(want) {
		t.Errorf("%s: LastUsedAt is %v, want %v", rule, got, want)
	}
}

var touchCases = []testCase{
	{"AddUses/Forward", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		now := at(0)
		touch(t, m, use(k, now))
		wantUsed(t, m, k, now, "AddUses of a key that was never used")
		touch(t, m, use(k, now.Add(-time.Microsecond)))
		wantUsed(t, m, k, now, "AddUses with an earlier time")
		touch(t, m, use(k, now.Add(2*time.Microsecond)), use(k, now.Add(time.Microsecond)))
		wantUsed(t, m, k, now.Add(2*time.Microsecond), "AddUses with two later times, the latest first")
	}},

	{"AddUses/Others", func(t testing.TB, m issuing.Store) {
		k, other := inserted(t, m), inserted(t, m)
		now := at(0)
		touch(t, m)
		touch(t, m,
			keystore.Use{Organization: other.Organization, ID: k.ID, At: now},
			keystore.Use{Organization: k.Organization, ID: unique("key"), At: now},
			use(other, now),
		)
		wantUsed(t, m, k, time.Time{}, "AddUses of the key as another organization")
		wantUsed(t, m, other, now, "AddUses of a key beside uses that have to be ignored")
		same(t, "Lookup of the key that was not touched", lookup(t, m, k), k)
	}},

	{"AddUses/Many", func(t testing.TB, m issuing.Store) {
		// As many uses as Uses hands over in one call.
		k := inserted(t, m)
		now := at(0)
		uses := make([]keystore.Use, 1000)
		for i := range uses {
			uses[i] = keystore.Use{Organization: k.Organization, ID: unique("key"), At: now}
		}
		uses[len(uses)/2] = use(k, now)
		touch(t, m, uses...)
		wantUsed(t, m, k, now, "AddUses of 1000 keys")
	}},

	{"AddUses/NothingElse", func(t testing.TB, m issuing.Store) {
		k := inserted(t, m)
		read := find(t, m, k)
		touch(t, m, use(k, at(0)))
		same(t, "Find after AddUses", find(t, m, k), k)
		read.RevokedAt = at(-time.Minute)
		if err := m.Update(t.Context(), read, newEntry(read)); err != nil {
			t.Fatalf("Update of a key that was touched since it was read returned %v, want nil: a use is no conflict",
				err)
		}
		used := at(time.Second)
		touch(t, m, use(k, used))
		read.Version = 2
		same(t, "Find, after a revoked key was touched,", find(t, m, k), read)
		wantUsed(t, m, k, used, "AddUses of a key that is revoked")
	}},

	{"AddUses/RevokeRace", func(t testing.TB, m issuing.Store) {
		for range 5 {
			k := inserted(t, m)
			now := at(0)
			revoked := k.Clone()
			revoked.RevokedAt = now
			errs := atOnce(racers, func(i int) error {
				if i == racers/2 {
					return m.Update(t.Context(), revoked, newEntry(revoked))
				}
				return m.AddUses(t.Context(), []keystore.Use{use(k, now.Add(time.Duration(i)*time.Second))})
			})
			for _, err := range errs {
				if err != nil {
					t.Errorf("AddUses or Update, while the other is running, returned %v, want nil", err)
				}
			}
			revoked.Version = 2
			same(t, "Find, after a key was touched while it was revoked,", find(t, m, k), revoked)
			wantUsed(t, m, k, now.Add((racers-1)*time.Second), "concurrent calls of AddUses")
		}
	}},
}
