package idemsql_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

func mustMigrate(t testing.TB, what string, s interface{ Migrate(context.Context) error }) {
	t.Helper()
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("%s: Migrate returned %v", what, err)
	}
}

func TestMigrateAgain(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		mustMigrate(t, "again", store)
		begin(t, store, again(c), idem.InFlight)
		ctx, giveUp := context.WithCancel(t.Context())
		giveUp()
		if err := store.Migrate(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Migrate whose context is done returned %v", err)
		}
	})
}

func TestSchemaByHand(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		store := d.on(db, idemsql.Options{})
		execute(t, db, "DROP TABLE sallyport_idem")
		execute(t, db, "DROP TABLE sallyport_idem_schema")
		for _, step := range store.Schema() {
			execute(t, db, step)
		}
		begin(t, store, claim("key"), idem.Claimed)
	})
}

// Rows of the first version are swept when their time is over, and its servers
// can go on.
func TestMigrateSweepAt(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	store := idemsql.Postgres(db, idemsql.Options{})
	execute(t, db, "DROP TABLE sallyport_idem, sallyport_idem_schema")
	execute(t, db, store.Schema()[0])
	execute(t, db, "CREATE TABLE sallyport_idem_schema (version integer NOT NULL)")
	execute(t, db, "INSERT INTO sallyport_idem_schema VALUES (1)")
	row := func(key string) {
		execute(t, db, `
			INSERT INTO sallyport_idem (request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload)
			VALUES (sha256('`+key+`'), '', sha256(''), 1, 3, now(), now() + interval '1 hour', '')`)
	}
	row("before")
	mustMigrate(t, "the second version", store)
	row("after")
	sweep(t, store, db, 0)
	d.advance(t, db, 25*time.Hour)
	sweep(t, store, db, 2)
}

// The checks of the first version are gone from a table with any prefix.
func TestMigrateAwayChecks(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	mustMigrate(t, "the longest prefix", idemsql.Postgres(db, idemsql.Options{Prefix: strings.Repeat("x", 40)}))
	mustCount(t, db, `
		SELECT count(*) FROM pg_constraint
		WHERE contype = 'c' AND connamespace = current_schema()::regnamespace`, 0)
	mustCount(t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE '%idem'", 2)
}

// What has been released is in databases: a changed text would leave those as
// they are, and their version would say otherwise.
func TestSchemaIsFrozen(t *testing.T) {
	db := sqliteFile(t).open(t)
	for name, test := range map[string]struct {
		store *idemsql.Store
		want  []string // SHA-256 of each text, its first 8 bytes
	}{
		"sqlite": {idemsql.SQLite(db, idemsql.Options{}), []string{"0e5c0fa9c555c290"}},
		"postgres": {idemsql.Postgres(db, idemsql.Options{}),
			[]string{"75542063cb936421", "86ecd748ad4e73bd", "5e146d2749142d43"}},
		"mysql": {idemsql.MySQL(db, idemsql.Options{}), []string{"fc88fbcf0e5ac69a"}},
	} {
		for i, step := range test.store.Schema() {
			got := fmt.Sprintf("%.8x", sha256.Sum256([]byte(step)))
			switch {
			case i >= len(test.want):
				t.Errorf("%s: step %d is new: add %s to this test when it is released", name, i+1, got)
			case got != test.want[i]:
				t.Errorf("%s: the text of step %d has changed (%s): restore it, and add a new step for what is to change",
					name, i+1, got)
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
	for _, file := range []string{"check.go", "migration.go", "mysqlerror.go", "prefix.go"} {
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
