package idemsql_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// mustSay wants an error with each of the words, or none if there are no words.
func mustSay(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Errorf("%s: got %v, want an error with %q", what, err, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got %v, want it to say %q", what, err, word)
		}
	}
}

// The rest of what Check finds is tested in keysql, which has the same file.
func TestCheck(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, idemsql.Options{})
		mustSay(t, "with the table", s.Check(t.Context()))
		one := d.of(1).open(t)
		mustSay(t, "on one connection", d.on(one, idemsql.Options{}).Check(t.Context()))
		mustSay(t, "of another prefix", d.on(db, idemsql.Options{Prefix: "other_"}).Check(t.Context()),
			"idemsql: check: ", "other_idem", "call Migrate")
		execute(t, db, "ALTER TABLE sallyport_idem DROP COLUMN payload")
		mustSay(t, "without a column", s.Check(t.Context()), "payload", "call Migrate")
		_, err := s.Begin(t.Context(), claim("key"))
		mustSay(t, "Begin without a column", err, "payload", "call Migrate")
		execute(t, db, "DROP TABLE sallyport_idem")
		_, err = s.Begin(t.Context(), claim("key"))
		mustSay(t, "Begin without the table", err, "sallyport_idem", "call Migrate")
		_, _, err = s.Join(t.Context(), claim("key"), 0)
		mustSay(t, "Join without the table", err, "sallyport_idem", "call Migrate")
		mustSay(t, "without the table", s.Check(t.Context()), "sallyport_idem", "call Migrate")
	})
}

// Postgres has one column more.
func TestCheckSweepColumn(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, d database) {
		db := d.open(t)
		execute(t, db, "ALTER TABLE sallyport_idem DROP COLUMN sweep_at")
		mustSay(t, "without sweep_at", d.on(db, idemsql.Options{}).Check(t.Context()), "sweep_at", "call Migrate")
	})
}
