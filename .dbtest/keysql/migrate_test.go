package keysql_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/internal/sqlschema"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// inEachEmpty runs f as a subtest on an empty database of each kind.
func inEachEmpty(t *testing.T, f func(t *testing.T, d database)) {
	inEachTransactional(t, f)
	beside(t, "mariadb", func(t *testing.T) { f(t, emptyMariaDB(t)) })
}

// inEachTransactional leaves out what cannot take a schema back.
func inEachTransactional(t *testing.T, f func(t *testing.T, d database)) {
	t.Parallel()
	beside(t, "sqlite", func(t *testing.T) {
		d := emptySQLite(filepath.Join(t.TempDir(), "keys.db"))
		// Two connections that begin a WAL at once do not wait for each other,
		// whatever busy_timeout says: one gets SQLITE_BUSY.
		if err := d.open(t).PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, d)
	})
	beside(t, "postgres", func(t *testing.T) { f(t, emptyPostgres(t)) })
}

func migrate(t testing.TB, s *keysql.Store) {
	t.Helper()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate returned %v, want nil", err)
	}
}

const laterStep = "ALTER TABLE sallyport_keys ADD COLUMN note text;\n\n" +
	"CREATE TABLE sallyport_keys_later (id integer);\n"

// later is the schema of a version after this one.
func (d database) later(t testing.TB) sqlschema.Schema {
	t.Helper()
	return sqlschema.Schema{
		Table: "sallyport_keys",
		Steps: append(d.store(t).Schema(), laterStep),
		Engine: map[string]sqlschema.Engine{"sqlite": sqlschema.SQLite(), "postgres": sqlschema.Postgres(),
			"mariadb": sqlschema.MySQL()}[d.name],
	}
}

// statements are those that Migrate runs for a step of the schema.
func (d database) statements(step string) []string {
	if d.name == "mariadb" {
		return strings.Split(strings.TrimSpace(step), ";\n\n")
	}
	return []string{step}
}

func TestMigrateAtOnce(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		const servers = 8
		later := d.later(t)
		errs := make([]error, servers)
		var mu sync.Mutex
		times := make(map[string]int) // each statement was run
		run := func(what string) error {
			mu.Lock()
			defer mu.Unlock()
			times[what]++
			return nil
		}
		start := make(chan struct{})
		var running sync.WaitGroup
		for i := range servers {
			db := d.breaking(t, run)
			running.Go(func() {
				<-start
				errs[i] = later.Migrate(t.Context(), db)
			})
		}
		close(start)
		running.Wait()
		for _, err := range errs {
			if err != nil {
				t.Errorf("Migrate, called by %d servers at once, returned %v, want nil", servers, err)
			}
		}
		for i, step := range later.Steps {
			for _, statement := range d.statements(step) {
				if times[statement] != 1 {
					t.Errorf("a statement of step %d ran %d times, want once:\n%s", i+1, times[statement], statement)
				}
			}
		}
	})
}

func TestMigrateToLater(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		if err := d.later(t).Migrate(t.Context(), d.open(t)); err != nil {
			t.Fatal(err)
		}
		// A server that has not been updated yet: it works, and its Migrate
		// says that it does not know the tables.
		sqltest.MustSay(t, "an older server", store.Migrate(t.Context()),
			"of version 102 and this package knows none after 101: update the server")
		lookup(t, store, k)
		inserted(t, store, "acme", 1)
		execute(t, d.open(t), "UPDATE sallyport_keys SET note = 'there'")
	})
}

// Tables of the development before the first release are left as they are, also
// those that Migrate had not finished. The error says how to go on with them. A
// version that none of this package made is an error and not a panic.
func TestMigrateFromDevelopment(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		for _, row := range []struct{ set, want string }{
			{"version = 1", "of version 1, from the development before v0.1.0"},
			{"version = 99", "of version 99, from the development before v0.1.0"},
			{map[string]string{"mariadb": "version = 0, begun = 1"}[d.name], "that Migrate did not make"},
		} {
			execute(t, d.open(t), "UPDATE sallyport_keys_schema SET "+cmp.Or(row.set, "version = 0"))
			err := store.Migrate(t.Context())
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("%s: got %v, want an error that says where the tables are from", row.set, err)
			}
			d.heed(t, err)
			migrate(t, store)
			lookup(t, store, k)
		}
		execute(t, d.open(t), "UPDATE sallyport_keys_schema SET version = -1")
		sqltest.MustSay(t, "from no version", store.Migrate(t.Context()), "version -1")
		execute(t, d.open(t), "DELETE FROM sallyport_keys_schema")
		sqltest.MustSay(t, "without a row", store.Migrate(t.Context()), "cannot be read")
	})
}

// heed runs the statement that an error of Migrate ends with, and looks for the
// section that it names.
func (d database) heed(t testing.TB, err error) {
	t.Helper()
	_, section, _ := strings.Cut(err.Error(), "GUIDES.md, ")
	section, _, _ = strings.Cut(section, ")")
	guide, failed := os.ReadFile("../../.github/GUIDES.md")
	if failed != nil || !strings.Contains(string(guide), "\n## "+section+"\n") {
		t.Errorf("the guide has no section %q, %v", section, failed)
	}
	_, statement, _ := strings.Cut(err.Error(), " then run ")
	execute(t, d.open(t), statement)
}

// Lookups wait behind a migration that waits for a transaction, and go on when
// its context ends. The next call finishes it.
func TestMigrateGivesUp(t *testing.T) {
	t.Parallel()
	waits := map[string]string{
		"postgres": "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'sallyport_keys'::regclass",
		"mariadb": "SELECT 1 FROM information_schema.processlist WHERE db = DATABASE() AND state = 'Waiting for " +
			"table metadata lock'",
	}
	for name, empty := range map[string]func(testing.TB) database{"postgres": emptyPostgres, "mariadb": emptyMariaDB} {
		t.Run(name, func(t *testing.T) {
			d := empty(t)
			later, db := d.later(t), d.open(t)
			migrate(t, d.store(t))
			tx := begun(t, db)
			execute(t, tx, "SELECT 1 FROM sallyport_keys")
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			migrated := make(chan error)
			go func() { migrated <- later.Migrate(ctx, d.open(t)) }()
			eventually(t, "Migrate never waits for the transaction", func() bool { return len(values(t, db, waits[name])) > 0 })
			found := make(chan error)
			go func() {
				_, err := db.ExecContext(t.Context(), "SELECT 1 FROM sallyport_keys") // as an earlier version
				found <- err
			}()
			eventually(t, "Lookup never waits for Migrate", func() bool { return len(values(t, db, waits[name])) > 1 })
			giveUp()
			if err := <-migrated; !errors.Is(err, context.Canceled) {
				t.Errorf("Migrate returned %v, want %v", err, context.Canceled)
			}
			if err := <-found; err != nil {
				t.Error(err)
			}
			tx.Rollback()
			if err := later.Migrate(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMigrateIsOneStep(t *testing.T) {
	inEachTransactional(t, func(t *testing.T, d database) {
		later := d.later(t)
		execute(t, d.open(t), "CREATE TABLE sallyport_keys_later (id integer)") // which the last step wants to make
		if err := later.Migrate(t.Context(), d.open(t)); err == nil {
			t.Fatal("Migrate with a statement that fails returned nil, want its error")
		}
		if _, err := d.open(t).ExecContext(t.Context(), "SELECT 1 FROM sallyport_keys"); err == nil {
			t.Error("a migration that failed left a table behind, want all of it undone")
		}
		execute(t, d.open(t), "DROP TABLE sallyport_keys_later")
		if err := later.Migrate(t.Context(), d.open(t)); err != nil {
			t.Fatal(err)
		}
		inserted(t, d.store(t), "acme", 1)
	})
}

// withRights returns a store of a role in Postgres that has these rights.
func (d database) withRights(t testing.TB, rights string) *keysql.Store {
	t.Helper()
	admin, db := d.open(t), d.open(t)
	schema := string(values(t, admin, "SELECT current_schema()")[0])
	names := strings.NewReplacer("$schema", schema, "$role", schema+"_role")
	execute(t, admin, names.Replace(
		"CREATE ROLE $role; GRANT USAGE ON SCHEMA $schema TO $role; GRANT "+rights+" TO $role"))
	t.Cleanup(func() {
		if _, err := admin.Exec(names.Replace("DROP OWNED BY $role; DROP ROLE $role")); err != nil {
			t.Error(err)
		}
	})
	db.SetMaxOpenConns(1)
	execute(t, db, names.Replace("SET ROLE $role"))
	return d.wrap(db, keysql.Options{})
}

// Who may use the keys and not the version is told so.
func TestMigrateWithoutRightOnTheVersion(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	k := inserted(t, d.store(t), "acme", 1)[0]
	store := d.withRights(t, "SELECT, INSERT, UPDATE ON sallyport_keys, sallyport_keys_audit")
	sqltest.MustSay(t, "migrate", store.Migrate(t.Context()), "the version of the tables cannot be read",
		"permission denied")
	update(t, store, lookup(t, store, k).Clone())
}

func TestSchemaByHand(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		for _, statements := range store.Schema() {
			execute(t, d.tool(t), statements)
		}
		update(t, store, inserted(t, store, "acme", 1)[0])
		// Migrate cannot know how far they were brought.
		err := store.Migrate(t.Context())
		if err == nil || !strings.Contains(err.Error(), "a table sallyport_keys that Migrate did not make") {
			t.Fatalf("Migrate after Schema returned %v, want an error that says what to do", err)
		}
		d.heed(t, err)
		migrate(t, store)
	})
}

// The rights that the guide names are enough for all but Migrate.
func TestRightsOfTheGuide(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	store := d.withRights(t, "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA $schema")
	since := present(t, store)
	k := inserted(t, store, "acme", 1)[0]
	k.RevokedAt = time.Now()
	update(t, store, k)
	addUses(t, store, []keystore.Use{observed(k, time.Now())})
	if u, err := store.Usage(t.Context(), "acme", k.ID); err != nil || len(u.Days) != 1 {
		t.Errorf("Usage returned %+v, %v", u, err)
	}
	changes(t, store, since)
	migrate(t, store) // of a current schema
}
