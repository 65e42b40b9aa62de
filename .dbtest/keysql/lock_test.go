package keysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

const migrationLock = "LEFT(CONCAT('sallyport_keys ', DATABASE()), 64)"

// locked returns a session that has the lock.
func locked(t *testing.T, d database) *sql.Conn {
	t.Helper()
	other, err := d.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	execute(t, other, "DO GET_LOCK("+migrationLock+", 0)")
	return other
}

// Where no transaction holds the steps together, one server at a time takes
// them, and others wait for the lock of its session.
func TestMigrateWaitsForTheLock(t *testing.T) {
	t.Parallel()
	d := emptyMariaDB(t)
	db, other := d.open(t), locked(t, d)
	migrated := make(chan error, 1)
	go func() { migrated <- d.store(t).Migrate(t.Context()) }()
	eventually(t, "Migrate never waits for the lock", func() bool {
		select {
		case err := <-migrated:
			t.Fatalf("Migrate returned %v while another server had the lock", err)
		default:
		}
		return len(values(t, db, "SELECT 1 FROM information_schema.processlist "+
			"WHERE db = DATABASE() AND state = 'User lock'")) > 0
	})
	if tables := values(t, db, "SHOW TABLES"); len(tables) > 0 {
		t.Errorf("there are %d tables while another server has the lock, want none", len(tables))
	}
	execute(t, other, "DO RELEASE_LOCK("+migrationLock+")")
	if err := <-migrated; err != nil {
		t.Errorf("Migrate, when the lock was free, returned %v", err)
	}
}

// impatient waits for the lock no time at all.
type impatient struct{ driver.Conn }

func (c impatient) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	query = strings.Replace(query, ", 3600)", ", 0)", 1)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

// A server that does not get the lock changes nothing.
func TestMigrateWithoutTheLock(t *testing.T) {
	t.Parallel()
	d := emptyMariaDB(t)
	locked(t, d)
	db := sqltest.Wrap(t, d.open(t), func(c driver.Conn) driver.Conn { return impatient{c} })
	err := d.wrap(db, keysql.Options{}).Migrate(t.Context())
	sqltest.MustSay(t, "without the lock", err, "another server has been migrating")
	if tables := values(t, d.open(t), "SHOW TABLES"); len(tables) > 0 {
		t.Errorf("there are %d tables, want none", len(tables))
	}
}

// The connection lives on when Migrate fails: the lock must not live on with it,
// also when the context has ended.
func TestMigrateGivesTheLockBack(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"done": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			d := emptyMariaDB(t)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			db := d.breaking(t, func(what string) error {
				if !fails || !strings.HasPrefix(what, "UPDATE") {
					return nil
				}
				giveUp()
				return errBroken
			})
			if err := d.wrap(db, keysql.Options{}).Migrate(ctx); (err != nil) != fails {
				t.Errorf("Migrate returned %v, want an error %t", err, fails)
			}
			if n := db.Stats().OpenConnections; n != 1 {
				t.Fatalf("%d connections are open, want that of Migrate", n)
			}
			if free := values(t, d.open(t), "SELECT IS_FREE_LOCK("+migrationLock+")")[0]; string(free) != "1" {
				t.Errorf("IS_FREE_LOCK returned %s, want 1", free)
			}
		})
	}
}
