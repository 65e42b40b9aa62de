package idemsql_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// mustMigrate wants nil, or an error that says each of the words.
func mustMigrate(t testing.TB, what string, s *idemsql.Store, words ...string) {
	t.Helper()
	err := s.Migrate(t.Context())
	if (err == nil) != (len(words) == 0) {
		t.Errorf("%s: Migrate returned %v, want the words %q", what, err, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: Migrate returned %v, want the word %q", what, err, w)
		}
	}
}

func TestMigrateAgain(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		mustMigrate(t, "again", store)
		begin(t, store, again(c), idem.InFlight)
	})
}

func TestMigrateAtOnce(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		execute(t, db, "DROP TABLE sallyport_idem")
		execute(t, db, "DROP TABLE sallyport_idem_schema")
		var running sync.WaitGroup
		for range 8 {
			store := d.on(d.open(t), idemsql.Options{})
			running.Go(func() { mustMigrate(t, "8 servers at once", store) })
		}
		running.Wait()
		begin(t, d.on(db, idemsql.Options{}), claim("key"), idem.Claimed)
	})
}

// A server that is older than the tables works on, and its Migrate says that it
// does not know them.
func TestMigrateToLater(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		n := len(store.Schema())
		mustMigrate(t, "a later version", store.WithStep("ALTER TABLE sallyport_idem ADD COLUMN note integer"))
		mustMigrate(t, "the older version", store, fmt.Sprintf("of version %d and this package knows none after %d: update the server", n+1, n))
		begin(t, store, again(c), idem.InFlight)
	})
}

func TestMigrateFromNoVersion(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		execute(t, db, "UPDATE sallyport_idem_schema SET version = -1")
		mustMigrate(t, "a version that nobody made", store, "version -1")
		execute(t, db, "DELETE FROM sallyport_idem_schema")
		mustMigrate(t, "no version", store, "cannot be read from sallyport_idem_schema")
	})
}

func TestSchemaByHand(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		execute(t, db, "DROP TABLE sallyport_idem")
		execute(t, db, "DROP TABLE sallyport_idem_schema")
		if _, err := store.Begin(t.Context(), claim("key")); err == nil {
			t.Error("Begin without a table: got no error")
		}
		for _, step := range store.Schema() {
			execute(t, db, step)
		}
		begin(t, store, claim("key"), idem.Claimed)
		// Migrate cannot know how far they were brought.
		mustMigrate(t, "after Schema", store, "a table sallyport_idem that Migrate did not make", "into sallyport_idem_schema")
		execute(t, db, fmt.Sprintf("UPDATE sallyport_idem_schema SET version = %d", len(store.Schema())))
		mustMigrate(t, "with the version written by hand", store)
	})
}

// A role that may use the table and not the version is told so.
func TestMigrateWithoutRightOnTheVersion(t *testing.T) {
	d := postgres(t)
	admin := d.open(t)
	schema := d.conf.RuntimeParams["search_path"]
	role := schema + "_role"
	execute(t, admin, "CREATE ROLE "+role)
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := d.open(t).ExecContext(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	execute(t, admin, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	execute(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON sallyport_idem TO "+role)
	db := d.open(t)
	db.SetMaxOpenConns(1)
	execute(t, db, "SET ROLE "+role)
	store := d.on(db, idemsql.Options{})
	mustMigrate(t, "a role without the right", store, "cannot be read from sallyport_idem_schema", "permission denied")
	begin(t, store, claim("key"), idem.Claimed)
}

// Rows of the first version are swept when their time is over, and its servers
// can go on.
func TestMigrateSweepAt(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	store := d.on(db, idemsql.Options{})
	execute(t, db, "DROP TABLE sallyport_idem, sallyport_idem_schema")
	mustMigrate(t, "the first version", store.Version(1))
	row := func(key string) {
		execute(t, db, `
			INSERT INTO sallyport_idem (request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload)
			VALUES (sha256('`+key+`'), '', sha256(''), 1, 3, now(), now() + interval '1 hour', '')`)
	}
	row("before")
	mustMigrate(t, "the second version", store)
	row("after")
	sweep(t, store, 0)
	d.advance(t, db, 25*time.Hour)
	sweep(t, store, 2)
}

// Keyed requests wait behind a migration that waits for a transaction, and go
// on when its context ends. The next call finishes it.
func TestMigrateGivesUp(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	store := d.on(db, idemsql.Options{})
	execute(t, db, "DROP TABLE sallyport_idem, sallyport_idem_schema")
	mustMigrate(t, "the version before", store.Version(2))
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	execute(t, reader, "SELECT 1 FROM sallyport_idem")
	waitFor := func(n int, what string) {
		deadline := time.Now().Add(patience)
		for count(t, db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'sallyport_idem'::regclass") < n {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	migrated, begun := make(chan error, 1), make(chan error, 1)
	go func() { migrated <- store.Migrate(ctx) }()
	waitFor(1, "Migrate never waits for the transaction")
	go func() {
		_, err := store.Begin(t.Context(), claim("key"))
		begun <- err
	}()
	waitFor(2, "Begin never waits for Migrate")
	giveUp()
	if err := <-migrated; !errors.Is(err, context.Canceled) {
		t.Errorf("Migrate returned %v, want %v", err, context.Canceled)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
	reader.Rollback()
	mustMigrate(t, "again", store)
}

// The checks of the first version are gone from a table with any prefix.
func TestMigrateAwayChecks(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	mustMigrate(t, "the longest prefix", idemsql.Postgres(db, idemsql.Options{Prefix: strings.Repeat("x", 40)}))
	mustCount(t, db, "SELECT count(*) FROM pg_constraint WHERE contype = 'c' AND connamespace = current_schema()::regnamespace", 0)
	mustCount(t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE '%idem'", 2)
}

// The first text of version 1 was replaced: tables that it made have no column
// request_key, and are of a version that Migrate knows.
func TestMigrateFromHalvedKeys(t *testing.T) {
	for _, test := range []struct {
		open           func(testing.TB) database
		bytes, integer string
		time, more     string
	}{
		{sqliteFile, "BLOB", "INTEGER", "INTEGER", " STRICT"},
		{postgres, "bytea", "integer", "timestamptz", " WITH (fillfactor = 85)"},
	} {
		t.Run(test.bytes, func(t *testing.T) {
			d := test.open(t)
			db := d.open(t)
			store := d.on(db, idemsql.Options{})
			words := strings.NewReplacer("BYTES", test.bytes, "INTEGER", test.integer, "TIME", test.time)
			execute(t, db, "DROP TABLE sallyport_idem")
			execute(t, db, words.Replace(`
				CREATE TABLE sallyport_idem (
					partition_hash BYTES NOT NULL,
					digest         BYTES NOT NULL,
					token          BYTES NOT NULL,
					fingerprint    BYTES NOT NULL,
					attempt        INTEGER NOT NULL,
					state          INTEGER NOT NULL CHECK (state IN (1, 3, 4)),
					lease_ends     TIME NOT NULL,
					expires_at     TIME NOT NULL,
					payload        BYTES NOT NULL,
					PRIMARY KEY (digest, partition_hash)
				)`)+test.more)
			execute(t, db, "CREATE INDEX sallyport_idem_expiry ON sallyport_idem (expires_at)")
			// A Migrate that did not look may have brought it to any version.
			for version := range len(store.Schema()) {
				execute(t, db, fmt.Sprintf("UPDATE sallyport_idem_schema SET version = %d", version+1))
				mustMigrate(t, "a table of the first text", store, "the table sallyport_idem is from before 2026-11-22", "max(expires_at)", "drop sallyport_idem and sallyport_idem_schema")
			}
			mustCount(t, db, "SELECT count(*) FROM sallyport_idem", 0)
			execute(t, db, "DROP TABLE sallyport_idem")
			execute(t, db, "DROP TABLE sallyport_idem_schema")
			mustMigrate(t, "after what the error says", store)
			begin(t, store, claim("key"), idem.Claimed)
		})
	}
}

// What has been released is in databases: a changed text would leave those as
// they are, and their version would say otherwise.
func TestSchemaIsFrozen(t *testing.T) {
	db := sqliteFile(t).open(t)
	for name, test := range map[string]struct {
		store *idemsql.Store
		want  []string // SHA-256 of each text, its first 8 bytes
	}{
		"sqlite":   {idemsql.SQLite(db, idemsql.Options{}), []string{"0e5c0fa9c555c290"}},
		"postgres": {idemsql.Postgres(db, idemsql.Options{}), []string{"75542063cb936421", "86ecd748ad4e73bd", "5e146d2749142d43"}},
		"mysql":    {idemsql.MySQL(db, idemsql.Options{}), []string{"fc88fbcf0e5ac69a"}},
	} {
		for i, step := range test.store.Schema() {
			got := fmt.Sprintf("%.8x", sha256.Sum256([]byte(step)))
			switch {
			case i >= len(test.want):
				t.Errorf("%s: step %d is new: add %s to this test when it is released", name, i+1, got)
			case got != test.want[i]:
				t.Errorf("%s: the text of step %d has changed (%s): restore it, and add a new step for what is to change", name, i+1, got)
			}
		}
		if n := len(test.store.Schema()); n < len(test.want) {
			t.Errorf("%s: there are %d steps and were %d: no step may go", name, n, len(test.want))
		}
	}
}

// What keysql and idemsql share stands in both, word for word. The tests of it
// are those of keysql.
func TestSharedWithKeysql(t *testing.T) {
	for _, file := range []string{"migration.go", "mysqlerror.go", "prefix.go"} {
		ours, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.ReadFile("../../keystore/keysql/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimPrefix(string(ours), "package idemsql\n") != strings.TrimPrefix(string(theirs), "package keysql\n") {
			t.Errorf("%s differs from that of keysql; only the package may", file)
		}
	}
}
