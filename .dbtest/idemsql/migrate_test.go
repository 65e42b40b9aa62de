package idemsql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
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
		begin(t, store, again(c), idem.InProgress)
		ctx, giveUp := context.WithCancel(t.Context())
		giveUp()
		if err := store.Migrate(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Migrate whose context is done returned %v", err)
		}
	})
}

// tables are all that Migrate makes.
var tables = []string{"sallyport_idem", "sallyport_idem_schema", "sallyport_used", "sallyport_usage"}

func TestSchemaByHand(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		for _, table := range tables {
			execute(t, db, "DROP TABLE "+table)
		}
		if d.my != nil {
			db = d.with("multiStatements", "true").open(t)
		}
		for _, step := range store.Schema() {
			execute(t, db, step)
		}
		begin(t, store, claim("key"), idem.Claimed)
	})
}

// New tables get into the schema of the first, also where others come before it in
// the search_path by now; Check looks there too.
func TestMigrateInItsSchema(t *testing.T) {
	t.Parallel()
	conf := pgtest.Schema(t)
	own, other := conf.RuntimeParams["search_path"], pgtest.Schema(t).RuntimeParams["search_path"]
	old := inPostgres(conf)
	db := old.open(t)
	mustMigrate(t, "the first", old.on(db, idemsql.Options{}))
	execute(t, db, "DROP TABLE sallyport_used")
	execute(t, db, "DROP TABLE sallyport_usage")
	execute(t, db, "UPDATE sallyport_idem_schema SET version = 100")
	d := old.with("search_path", other+", "+own)
	s := d.on(d.open(t), keepsAll)
	mustMigrate(t, "the next", s)
	sqltest.MustSay(t, "after Migrate", s.Check(t.Context()))
	if err := s.Count(t.Context(), idem.NewAccount("acme", "key"), 5); err != nil {
		t.Error(err)
	}
	folds(t, db, s)
	mustUse(t, s, "acme", 5)

	execute(t, db, "ALTER TABLE sallyport_used SET SCHEMA "+other)
	sqltest.MustSay(t, "in two schemas", s.Check(t.Context()), "call Migrate")
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

// Two stores in one database do not see each other's claims, locks, replies or
// schema. Which prefixes are valid is tested beside the code of keysql.
func TestPrefix(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		plain, other := d.on(db, idemsql.Options{}), d.on(db, idemsql.Options{Prefix: strings.Repeat("x", 40)})
		c := claim("key")
		if _, err := other.Begin(t.Context(), c); err == nil {
			t.Error("Begin without the table: got no error")
		}
		mustMigrate(t, "another prefix", other)
		mustMigrate(t, "another prefix, again", other)
		for _, step := range other.Schema() {
			if strings.Contains(step, "sallyport_") {
				t.Errorf("the schema still has the prefix sallyport_:\n%s", step)
			}
		}

		_, j := join(t, plain, c, idem.Claimed)
		if d.name != "sqlite" { // which has one writer
			// Not fatal: the end of the test would wait for the open
			// transaction.
			if r, k, err := other.Join(t.Context(), again(c), 0); k == nil {
				t.Errorf("Join: got %v, error %v, want claimed", r.State, err)
			} else if err := k.Settle(t.Context(), outcomeFree); err != nil {
				t.Error(err)
			}
		}
		mustEnd(t, j, finished("of the first"))
		_, j = join(t, other, again(c), idem.Claimed)
		mustEnd(t, j, refusal)
		for store, want := range map[store]string{plain: "of the first", other: "refused"} {
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != want {
				t.Errorf("got the payload %q, want %q", r.Payload, want)
			}
		}

		leased := claim("leased")
		begin(t, other, leased, idem.Claimed)
		begin(t, plain, again(leased), idem.Claimed)
		if err := other.Extend(t.Context(), leased.Key, leased.Token, leased.Lease); err != nil {
			t.Error(err)
		}
		mustSettle(t, other, leased, finished("answer"))
		begin(t, plain, again(leased), idem.InProgress)
		freed := claim("freed")
		begin(t, other, freed, idem.Claimed)
		mustSettle(t, other, freed, outcomeFree)
		d.advance(t, db, 48*3600e9) // of the default prefix
		theirs := "SELECT count(*) FROM " + strings.Repeat("x", 40) + "idem"
		kept := count(t, db, theirs)
		swept(t, other)
		mustCount(t, db, theirs, kept)
		sweep(t, plain, db, 2)
	})
}

// The rest of what Check finds is tested in keysql.
func TestCheck(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, s := d.store(t)
		sqltest.MustSay(t, "with the table", s.Check(t.Context()))
		one := d.of(1).open(t)
		sqltest.MustSay(t, "on one connection", d.on(one, idemsql.Options{}).Check(t.Context()))
		sqltest.MustSay(t, "of another prefix", d.on(db, idemsql.Options{Prefix: "other_"}).Check(t.Context()),
			"idemsql: check: ", "other_idem", "call Migrate")
		if d.conf != nil { // which has one column more
			execute(t, db, "ALTER TABLE sallyport_idem RENAME COLUMN sweep_at TO sweep")
			sqltest.MustSay(t, "without sweep_at", s.Check(t.Context()), "sweep_at", "call Migrate")
			execute(t, db, "ALTER TABLE sallyport_idem RENAME COLUMN sweep TO sweep_at")
		}
		execute(t, db, "ALTER TABLE sallyport_idem DROP COLUMN payload")
		sqltest.MustSay(t, "without a column", s.Check(t.Context()), "payload", "call Migrate")
		_, err := s.Begin(t.Context(), claim("key"))
		sqltest.MustSay(t, "Begin without a column", err, "payload", "call Migrate")
		execute(t, db, "DROP TABLE sallyport_idem")
		_, err = s.Begin(t.Context(), claim("key"))
		sqltest.MustSay(t, "Begin without the table", err, "sallyport_idem", "call Migrate")
		_, _, err = s.Join(t.Context(), claim("key"), 0)
		sqltest.MustSay(t, "Join without the table", err, "sallyport_idem", "call Migrate")
		sqltest.MustSay(t, "without the table", s.Check(t.Context()), "sallyport_idem", "call Migrate")
	})
}
