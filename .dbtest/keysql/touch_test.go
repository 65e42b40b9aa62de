package keysql_test

import (
	"database/sql"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
)

func uses(keys []*keystore.Key, at time.Time) []keystore.Use {
	all := make([]keystore.Use, len(keys))
	for i, k := range keys {
		all[i] = keystore.Use{Organization: k.Organization, ID: k.ID, At: at}
	}
	return all
}

// Servers that write the same uses in different orders must not wait for each
// other in a circle. So each locks keys by their ids: one that waits for a key
// holds those before it, and none behind it.
func TestTouchLocksInOrder(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		testTouchLocksInOrder(t, postgres(t), func(db *sql.DB) int {
			return len(values(t, db, "SELECT 1 FROM pg_stat_activity WHERE application_name = "+
				"current_setting('application_name') AND wait_event_type = 'Lock'"))
		})
	})
	t.Run("mariadb", func(t *testing.T) {
		testTouchLocksInOrder(t, mariadb(t), func(db *sql.DB) int { return lockWaits(t, db) })
	})
}

func testTouchLocksInOrder(t *testing.T, d database, waits func(*sql.DB) int) {
	db := d.open(t)
	keys := inserted(t, d.store(t), "acme", 100)
	slices.SortFunc(keys, func(a, b *keystore.Key) int { return strings.Compare(a.ID, b.ID) })
	middle := keys[len(keys)/2]

	holder := begun(t, db)
	execute(t, holder, "SELECT 1 FROM sallyport_keys WHERE id = '"+middle.ID+"' FOR UPDATE")
	touched := make(chan error, 1)
	batch := uses(keys, time.Now())
	rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	go func() { touched <- d.store(t).AddUses(t.Context(), batch) }()
	eventually(t, "AddUses never waits for the key that is locked", func() bool { return waits(db) > 0 })
	free := values(t, db, "SELECT id FROM sallyport_keys ORDER BY id FOR UPDATE SKIP LOCKED")
	if want := keys[len(keys)/2+1:]; len(free) != len(want) || string(free[0]) != want[0].ID {
		t.Errorf("%d keys are free while AddUses waits for the middle one of %d, want the %d behind it", len(free),
			len(keys), len(want))
	}
	if err := holder.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-touched; err != nil {
		t.Errorf("AddUses returned %v, want nil", err)
	}
}

// A batch has no limit that a database's limit of parameters would set.
func TestTouchMany(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		all := make([]keystore.Use, 22_000)
		for i := range all {
			all[i] = keystore.Use{Organization: "acme", ID: "none", At: k.CreatedAt}
		}
		all[len(all)-1].ID = k.ID
		addUses(t, store, all)
		if got := lookup(t, store, k).LastUsedAt; !got.Equal(k.CreatedAt) {
			t.Errorf("LastUsedAt is %v, want %v", got, k.CreatedAt)
		}
	})
}

// A use is written whatever else its batch holds, and so are the scopes that
// the key needed. One at a time that a batch cannot hold is an error, and not
// written.
func TestTouchOddUses(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		odd := newKey("acme")
		odd.ID = "replacement \uFFFD"
		mustInsert(t, store, odd)
		at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.UTC)
		addUses(t, store, []keystore.Use{
			{Organization: "acme", ID: "nul \x00", At: at}, {Organization: "acme", ID: "replacement \xff", At: at},
			{Organization: "\xff", ID: k.ID, At: at}, {Organization: "acme", ID: k.ID, At: at},
		})
		if got := lookup(t, store, k).LastUsedAt; !got.Equal(at.Truncate(time.Microsecond)) {
			t.Errorf("LastUsedAt is %v, want %v", got, at)
		}
		if got := lookup(t, store, odd).LastUsedAt; !got.IsZero() {
			t.Errorf("a key was touched under an id that is not its own, at %v", got)
		}
		use := observed(k, time.Unix(0, 0))
		use.Scopes = append(use.Scopes, "nul \x00", "\xff")
		addUses(t, store, []keystore.Use{use})
		u, err := store.Usage(t.Context(), "acme", k.ID)
		if day, ok := u.Scopes[scope.TasksRead]; err != nil || len(u.Scopes) != 1 || !ok || !day.Equal(use.At) {
			t.Errorf("Usage returned %+v, %v, want tasks:read on the first day of 1970", u, err)
		}
		ahead := time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		err = store.AddUses(t.Context(), []keystore.Use{observed(odd, ahead)})
		if got := lookup(t, store, odd).LastUsedAt; err != nil && !got.IsZero() || err == nil && !got.Equal(ahead) {
			t.Errorf("LastUsedAt is %v after AddUses returned %v", got, err)
		}
	})
}

func observed(k *keystore.Key, at time.Time) keystore.Use {
	return keystore.Use{Organization: k.Organization, ID: k.ID, At: at, Requests: 1, Scopes: []scope.Name{scope.TasksRead}}
}

func count(t *testing.T, db *sql.DB, from string) int {
	t.Helper()
	return len(values(t, db, "SELECT 1 FROM "+from))
}

// Days that are over go, of keys that are not used any more too.
func TestTouchSweeps(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		db := d.open(t)
		keys := inserted(t, store, "acme", 2)
		uses := make([]keystore.Use, 1200)
		for i := range uses {
			uses[i] = observed(keys[0], time.Now().AddDate(0, 0, -31-i))
		}
		addUses(t, store, append(uses, observed(keys[0], time.Now().AddDate(0, 0, -28))))
		for _, left := range []int{202, 2, 2} {
			addUses(t, store, []keystore.Use{observed(keys[1], time.Now())})
			if got := count(t, db, "sallyport_keys_days"); got != left {
				t.Errorf("%d days are left, want %d: AddUses removes 1000 of those that are over", got, left)
			}
		}
	})
}

// What is known of the use of a key goes with the key.
func TestUsageGoesWithItsKey(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		keys := inserted(t, store, "acme", 2)
		uses := []keystore.Use{observed(keys[0], time.Now()), observed(keys[1], time.Now())}
		addUses(t, store, uses)
		db := d.open(t)
		execute(t, db, "DELETE FROM sallyport_keys WHERE id = '"+keys[0].ID+"'")
		addUses(t, store, uses)
		scopes, days := count(t, db, "sallyport_keys_scopes"), count(t, db, "sallyport_keys_days")
		if scopes != 1 || days != 1 {
			t.Errorf("of a key that is there and one that was deleted there are %d scopes and %d days, want one each",
				scopes, days)
		}
	})
}

// Uses are written while their organization is erased: neither fails, and none
// is left.
func TestTouchBesideErase(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		db := d.open(t)
		for range 2 {
			keys := inserted(t, store, "acme", 150)
			var writers sync.WaitGroup
			var touches atomic.Int64
			var erased atomic.Bool
			for w := range 3 {
				writers.Go(func() {
					for i := 0; !erased.Load(); i++ {
						var uses []keystore.Use
						for j, k := range keys {
							if (i+j+w)%3 != 0 { // some of their rows are new
								uses = append(uses, observed(k, time.Now().AddDate(0, 0, -i%20)))
							}
						}
						if err := store.AddUses(t.Context(), uses); err != nil {
							t.Errorf("AddUses returned %v, want nil", err)
						}
						touches.Add(1)
					}
				})
			}
			eventually(t, "no use is written", func() bool { return touches.Load() > 3 })
			if n, _, err := store.Erase(t.Context(), "acme", erasure); err != nil || n != len(keys) {
				t.Errorf("Erase returned %d and %v, want %d and nil", n, err, len(keys))
			}
			erased.Store(true)
			writers.Wait()
			if scopes, days := count(t, db, "sallyport_keys_scopes"), count(t, db, "sallyport_keys_days"); scopes+days != 0 {
				t.Errorf("%d scopes and %d days are left of keys that were erased", scopes, days)
			}
		}
	})
}
