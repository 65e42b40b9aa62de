package idemsql_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// The rest of what Check finds is tested in keysql, which has the same file.
func TestCheck(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, idemsql.Options{})
		sqltest.MustSay(t, "with the table", s.Check(t.Context()))
		one := d.of(1).open(t)
		sqltest.MustSay(t, "on one connection", d.on(one, idemsql.Options{}).Check(t.Context()))
		sqltest.MustSay(t, "of another prefix", d.on(db, idemsql.Options{Prefix: "other_"}).Check(t.Context()),
			"idemsql: check: ", "other_idem", "call Migrate")
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

// Postgres has one column more.
func TestCheckSweepColumn(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, d database) {
		db := d.open(t)
		execute(t, db, "ALTER TABLE sallyport_idem DROP COLUMN sweep_at")
		sqltest.MustSay(t, "without sweep_at", d.on(db, idemsql.Options{}).Check(t.Context()), "sweep_at", "call Migrate")
	})
}
