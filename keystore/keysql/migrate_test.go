package keysql_test

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// inEachEmpty runs f as a subtest on an empty database of each kind.
func inEachEmpty(t *testing.T, f func(t *testing.T, d database)) {
	t.Run("sqlite", func(t *testing.T) { f(t, emptySQLite(filepath.Join(t.TempDir(), "keys.db"))) })
	t.Run("postgres", func(t *testing.T) { f(t, emptyPostgres(t)) })
}

func migrate(t testing.TB, s *keysql.Store) {
	t.Helper()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("Migrate returned %v, want nil", err)
	}
}

// Whoever forgets to migrate is told so, and not that each key is wrong.
func TestNotMigrated(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		_, err := d.store(t).Lookup(t.Context(), keystore.Digest{})
		if err == nil || errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("Lookup in a database without tables returned %v, want an error that says so", err)
		}
	})
}

func TestMigrateAgain(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		migrate(t, store)
		k := inserted(t, store, "acme", 1)[0]
		migrate(t, store)
		migrate(t, d.store(t))
		lookup(t, store, k)
	})
}

func TestMigrateAtOnce(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		const servers = 8
		errs := make([]error, servers)
		start := make(chan struct{})
		var running sync.WaitGroup
		for i := range servers {
			// A later version, so that there are two steps to be taken once.
			store := d.store(t).WithStep("CREATE TABLE once (number integer); INSERT INTO once VALUES (1)")
			running.Go(func() {
				<-start
				errs[i] = store.Migrate(t.Context())
			})
		}
		close(start)
		running.Wait()
		for _, err := range errs {
			if err != nil {
				t.Errorf("Migrate, called by %d servers at once, returned %v, want nil", servers, err)
			}
		}
		var rows int
		if err := d.open(t).QueryRowContext(t.Context(), "SELECT count(*) FROM once").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("the second step ran %d times (%v), want once", rows, err)
		}
	})
}

func TestMigrateToLater(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		migrate(t, store)
		k := inserted(t, store, "acme", 1)[0]
		later := store.WithStep("ALTER TABLE sallyport_keys ADD COLUMN note text")
		migrate(t, later)
		migrate(t, later)
		migrate(t, store) // a server that has not been updated yet, restarted
		lookup(t, store, k)
		inserted(t, store, "acme", 1)
		execute(t, d.open(t), "UPDATE sallyport_keys SET note = 'there'")
	})
}

func TestMigrateIsOneStep(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		if err := store.WithStep("CREATE TABLE half (number integer); SELECT no_such_function()").Migrate(t.Context()); err == nil {
			t.Fatal("Migrate with a statement that fails returned nil, want its error")
		}
		if _, err := d.open(t).ExecContext(t.Context(), "SELECT 1 FROM half"); err == nil {
			t.Error("a migration that failed left a table behind, want all of it undone")
		}
		migrate(t, store)
		inserted(t, store, "acme", 1)
	})
}

// A server without the right to change the schema can call Migrate as well, also
// one that is older than the schema.
func TestMigrateWithoutRights(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.db")
	writer := emptySQLite(file).migrated(t).store(t)
	k := inserted(t, writer, "acme", 1)[0]
	migrate(t, writer.WithStep("CREATE TABLE later (number integer)"))
	reader := keysql.SQLite(opened(t, "file:"+file+"?mode=ro"))
	migrate(t, reader)
	lookup(t, reader, k)
}

func TestSchemaByHand(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		for _, statements := range store.Schema() {
			execute(t, d.open(t), statements)
		}
		update(t, store, inserted(t, store, "acme", 1)[0])
	})
}
