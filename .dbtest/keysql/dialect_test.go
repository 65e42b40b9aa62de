package keysql_test

import (
	"context"
	"database/sql"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// Whatever the connections of a program are set to, keys are compared byte for
// byte, times are the same, and rows are counted and locked as they should be.
// How the driver writes texts or counts rows has to do with neither the
// isolation nor each other, so that one run tries two of them.
func TestSuiteWithSettings(t *testing.T) {
	t.Parallel()
	settings := maps.Clone(sqltest.Settings)
	for one, other := range map[string]string{"latin1": "clientFoundRows", "interpolateParams": "serializable"} {
		first, second := settings[one], settings[other]
		settings[one+" and "+other] = func(c *mysql.Config) { first(c); second(c) }
		delete(settings, one)
		delete(settings, other)
	}
	for name, set := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mariadbWith(t, set).migrated(t)
			d.suite(d.store(t)).Run(t)
		})
	}
}

// A change or an insert waits for a transaction that has changed or inserted a
// key, so that nothing becomes visible with a number that readers have passed.
func TestFeedWaitsForTransactions(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	store, db := d.store(t), d.open(t)
	old := inserted(t, store, "acme", 2)
	made := []*keystore.Key{{Digest: seeded("acme", 1)}, newKey("acme")}
	for name, row := range map[string]struct {
		first  string
		second func(ctx context.Context, s *keysql.Store) error
		keys   []*keystore.Key
	}{
		"Update": {
			"UPDATE sallyport_keys SET suspended = true WHERE id = '" + old[0].ID + "'",
			func(ctx context.Context, s *keysql.Store) error { return s.Update(ctx, old[1], newEntry(old[1])) },
			old,
		},
		"Insert": {
			seeding(d, "acme", 1),
			func(ctx context.Context, s *keysql.Store) error { return s.Insert(ctx, made[1], newEntry(made[1]), 0) },
			made,
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := present(t, store)
			tx := begun(t, db)
			execute(t, tx, row.first)
			written := make(chan error)
			go func() { written <- row.second(t.Context(), d.store(t)) }()
			eventually(t, name+" never waits for the transaction", func() bool { return lockWaits(t, db) > 0 })
			changed, next := changes(t, store, start)
			if len(changed) > 0 {
				t.Errorf("the feed named %d keys while nothing was committed", len(changed))
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
			changed, _ = changes(t, store, next)
			for _, k := range row.keys {
				wantNamed(t, changed, k, "a change after a reader had come")
			}
		})
	}
}

// Update is sent again after a deadlock, which has taken it back.
func TestUpdateAfterDeadlock(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	store, db := d.store(t), d.open(t)
	keys := inserted(t, store, "acme", 3)
	tx := begun(t, db)
	execute(t, tx, "UPDATE sallyport_keys SET suspended = true WHERE id IN ('"+keys[0].ID+"', '"+keys[2].ID+"')")
	updated := make(chan error)
	go func() { updated <- d.store(t).Update(t.Context(), keys[1], newEntry(keys[1])) }()
	eventually(t, "Update never waits for the transaction", func() bool { return lockWaits(t, db) > 0 })
	// Update holds the key and waits for the counter, which the transaction
	// holds.
	execute(t, tx, "UPDATE sallyport_keys SET last_used_at = 1 WHERE id = '"+keys[1].ID+"'")
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-updated; err != nil {
		t.Errorf("Update returned %v after a deadlock, want nil", err)
	}
}

var asking sync.Mutex

// lockWaits returns how many transactions of the database wait for a lock.
// InnoDB renews what it says of them when nobody has asked for 0.1 s.
func lockWaits(t testing.TB, db *sql.DB) int {
	t.Helper()
	asking.Lock()
	defer asking.Unlock()
	values(t, db, "SELECT SLEEP(0.15)")
	return len(values(t, db, `
		SELECT 1 FROM information_schema.innodb_trx AS t
		JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id
		WHERE p.db = DATABASE() AND t.trx_state = 'LOCK WAIT'`))
}

// A server that is not strict would cut off what is too long, and so give a key
// to another organization.
func TestTooLong(t *testing.T) {
	t.Parallel()
	d := mariadbWith(t, func(c *mysql.Config) { c.Params = map[string]string{"sql_mode": "''"} }).migrated(t)
	store := d.store(t)
	long := strings.Repeat("x", 513)
	wantRefused(t, store, identifiers(long), func(string) []string { return []string{"longer than 512 bytes"} })
	k := newKey(long[:512])
	k.ID, k.CreatedBy, k.IssueToken, k.RotatedFrom = long[:512], long[:512], long[:512], long[:512]
	k.Name = strings.Repeat(long, 200)
	e := newEntry(k)
	e.ID = "act_1"
	if err := store.Insert(t.Context(), k, e, 0); err != nil {
		t.Fatal(err)
	}
	if got := lookup(t, store, k); got.Name != k.Name || got.Organization != k.Organization {
		t.Error("a key of long texts came back as another")
	}
	if err := store.AddUses(t.Context(), uses([]*keystore.Key{k, {Organization: long + long, ID: long + long}},
		k.CreatedAt)); err != nil {
		t.Error(err)
	}
	if got := lookup(t, store, k); !got.LastUsedAt.Equal(k.CreatedAt) {
		t.Errorf("LastUsedAt is %v, want %v", got.LastUsedAt, k.CreatedAt)
	}
}
