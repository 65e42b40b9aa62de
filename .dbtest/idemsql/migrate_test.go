package idemsql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
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
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		mustMigrate(t, "again", store)
		begin(t, store, again(c), idem.InProgress)
		ctx, giveUp := context.WithCancel(t.Context())
		giveUp()
		if err := store.Migrate(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Migrate whose context is done returned %v", err)
		}
	})
}

func TestSchemaByHand(t *testing.T) {
	t.Parallel()
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

// Postgres reads the texts of checks for each write. The longest prefix makes
// names that it takes whole.
func TestTableWithoutChecks(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	db := d.open(t)
	mustMigrate(t, "the longest prefix", idemsql.Postgres(db, idemsql.Options{Prefix: strings.Repeat("x", 40)}))
	mustCount(t, db, `
		SELECT count(*) FROM pg_constraint
		WHERE contype = 'c' AND connamespace = current_schema()::regnamespace`, 0)
	mustCount(t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE '%idem'", 2)
}

// Servers that migrate at once do so once, also where a transaction sees what
// there was when it began.
func TestMigrateAtOnceWithOldSnapshots(t *testing.T) {
	t.Parallel()
	d := inPostgres(pgtest.Schema(t)).with("default_transaction_isolation", "repeatable read")
	var running sync.WaitGroup
	start := make(chan struct{})
	for range 8 {
		store := idemsql.Postgres(d.open(t), idemsql.Options{})
		running.Go(func() {
			<-start
			mustMigrate(t, "one of 8 servers", store)
		})
	}
	close(start)
	running.Wait()
	mustCount(t, d.open(t), "SELECT count(*) FROM sallyport_idem_schema", 1)
}
