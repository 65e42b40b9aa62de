package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// runs has Run work in so many processes, as it were, until the test ends it.
func (d database) runs(t testing.TB, n int, o idemsql.Options) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		s := d.on(d.open(t), o)
		all.Go(func() { s.Run(ctx) })
	}
	return func() { cancel(); all.Wait() }
}

// Several processes add up at the same time, beside those that claim and settle:
// each charge is added once, and billed once.
func TestFoldsAtOnce(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.on(db, keepsAll)
		end := d.runs(t, 3, keepsAll)
		defer end()
		const clients, each = 4, 100
		var crowd sync.WaitGroup
		for client := range clients {
			crowd.Go(func() {
				for i := range each {
					c := of("acme", 1, claim(fmt.Sprint(client, " ", i)))
					if i%2 > 0 {
						begin(t, s, c, idem.Claimed)
						mustSettle(t, s, c, using(3, finished("answer")))
						continue
					}
					_, j, err := s.Join(t.Context(), c, time.Minute)
					if err != nil || j == nil {
						t.Errorf("Join: %v", err)
						return
					}
					mustEnd(t, j, using(3, finished("answer")))
				}
			})
		}
		var billed []int64
		joined := make(chan struct{})
		go func() { crowd.Wait(); close(joined) }()
		for going := true; going; {
			select {
			case <-joined:
				going = false
			default:
				billed = append(billed, bill(t, s)...)
			}
			if used, _, err := s.Used(t.Context(), idem.NewAccount("acme"), time.Time{}); err != nil || used%3 != 0 ||
				used > 3*clients*each {
				t.Errorf("%d units are used, error %v", used, err)
			}
		}
		folds(t, db, s)
		if billed = append(billed, bill(t, s)...); len(billed) != clients*each {
			t.Errorf("got %d charges, want %d", len(billed), clients*each)
		}
		mustUse(t, s, "acme", 3*clients*each)
	})
}

// A charge whose transaction stays open while 1,000 later ones are added up, read
// and acknowledged is read too.
func TestSlowTransaction(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		s := d.on(d.open(t), keepsAll)
		defer d.runs(t, 2, keepsAll)()
		_, slow := join(t, s, of("acme", 1000, claim("slow")), idem.Claimed)
		begun := time.Now()
		account := idem.NewAccount("acme", "key")
		seen := make(map[string]int)
		var last int64
		read := func(until func() bool) {
			t.Helper()
			for deadline := time.Now().Add(patience); !until(); {
				if time.Now().After(deadline) {
					t.Fatalf("after %v there are %d charges", patience, len(seen))
				}
				some, err := s.Charges(t.Context(), 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range some {
					if c.Number <= last {
						t.Errorf("after charge %d comes %d", last, c.Number)
					}
					seen[c.ID]++
					last = c.Number
				}
				if err := s.Acknowledge(t.Context(), last); err != nil {
					t.Fatal(err)
				}
			}
		}
		var counted sync.WaitGroup
		for range 4 {
			counted.Go(func() {
				for range 250 {
					if err := s.Count(t.Context(), account, 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		read(func() bool { return len(seen) == 1000 && time.Since(begun) > 3*time.Second })
		mustUse(t, s, "acme", 1000)
		mustEnd(t, slow, using(1000, finished("answer")))
		mustUse(t, s, "acme", 2000)
		read(func() bool { return len(seen) == 1001 })
		counted.Wait()
		for id, n := range seen {
			if n != 1 {
				t.Errorf("the charge %s was read %d times", id, n)
			}
		}
		mustUse(t, s, "acme", 2000)
	})
}

// At whichever statement it ends, and also when nobody knows whether it was
// committed, the next one adds up what is left and nothing twice.
func TestFoldThatFails(t *testing.T) {
	in(t, func(t *testing.T, d database) {
		db := d.open(t)
		whole := d.on(db, keepsAll)
		var at, fails, step atomic.Int64
		var commits atomic.Bool
		broken := d.on(d.of(40).watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
			if strings.Contains(statement, "DELETE") || statement == sqltest.Row {
				return nil // the sweep would be tried again after a minute
			}
			if i := step.Add(1) - at.Load(); 0 <= i && i < fails.Load() {
				if statement == "COMMIT" {
					commits.Store(true)
				}
				return errors.New("broken at " + statement)
			}
			return nil
		}), keepsAll)
		used := int64(0)
		for i := range int64(18) { // from the look to COMMIT: once alone, and once with what would undo it
			n := i%9 + 1
			fails.Store(i/9 + 1)
			if err := whole.Count(t.Context(), idem.NewAccount("acme", "key"), n); err != nil {
				t.Fatal(err)
			}
			used += n
			at.Store(n)
			step.Store(0)
			swept(t, broken)
			mustUse(t, whole, "acme", used)
			folds(t, db, whole)
			mustUse(t, whole, "acme", used)
			mustBill(t, whole, n)
		}
		if !commits.Load() {
			t.Error("no COMMIT was broken")
		}
		mustBeIdle(t, db)
	}, "sqlite", "postgres", "mariadb")
}

// The answer to COMMIT is lost, or it says that the session ends.
func TestFoldWithoutAnswer(t *testing.T) {
	in(t, func(t *testing.T, d database) {
		db := d.open(t)
		whole := d.on(db, keepsAll)
		over, next := d.faulty()
		s := d.on(over.open(t), keepsAll)
		for i, fault := range []sqltest.Fault{sqltest.BreakAfter, sqltest.FailWrite, sqltest.Terminate, sqltest.Refuse} {
			if err := whole.Count(t.Context(), idem.NewAccount("acme", "key"), 5); err != nil {
				t.Fatal(err)
			}
			next.set(fault)
			run(t, s, func() bool { return !next.isToCome() && s.Swept().Compare(time.Time{}) > 0 })
			folds(t, db, whole)
			mustUse(t, whole, "acme", int64(i+1)*5)
			mustBill(t, whole, 5)
		}
	}, "postgres", "mariadb")
}

// The lock of who adds up does not outlive a machine that vanishes, where Postgres
// can see to that.
func TestFoldThatHangs(t *testing.T) {
	in(t, func(t *testing.T, d database) {
		db := d.open(t)
		limit := ""
		s := d.on(d.watched(t, func(ctx context.Context, c driver.Conn, statement string) error {
			if strings.Contains(statement, "SKIP LOCKED") && strings.Contains(statement, "account IS NOT NULL") {
				found, err := c.(driver.QueryerContext).QueryContext(ctx,
					"SELECT current_setting('idle_in_transaction_session_timeout')", nil)
				if err != nil {
					return err
				}
				defer found.Close()
				value := make([]driver.Value, 1)
				err = found.Next(value)
				limit = fmt.Sprint(value[0])
				return err
			}
			return nil
		}), keepsAll)
		if err := s.Count(t.Context(), idem.NewAccount("acme", "key"), 5); err != nil {
			t.Fatal(err)
		}
		folds(t, db, s)
		mustUse(t, s, "acme", 5)
		if limit != "1min" {
			t.Errorf("who adds up may be idle for %q, want 1min", limit)
		}
	}, "postgres")
}

// Tables of the previous version keep their rows, which then have no units.
func TestMigrateToUnits(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, s := d.store(t)
		c, held := claim("done"), claim("held")
		begin(t, s, c, idem.Claimed)
		begin(t, s, held, idem.Claimed)
		mustSettle(t, s, c, finished("answer"))
		execute(t, db, "DROP TABLE sallyport_used")
		execute(t, db, "DROP TABLE sallyport_usage")
		index := "DROP INDEX sallyport_idem_account"
		if d.my != nil {
			index += " ON sallyport_idem"
		}
		execute(t, db, index)
		for _, column := range []string{"account", "began", "units"} {
			execute(t, db, "ALTER TABLE sallyport_idem DROP COLUMN "+column)
		}
		execute(t, db, "UPDATE sallyport_idem_schema SET version = 100")
		sqltest.MustSay(t, "before Migrate", s.Check(t.Context()), "call Migrate")

		next := d.on(d.open(t), keepsAll)
		mustMigrate(t, "of the previous version", next)
		sqltest.MustSay(t, "after Migrate", next.Check(t.Context()))
		begin(t, next, again(c), idem.Done)
		mustSettle(t, next, held, using(5, finished("answer")))
		units := of("acme", 5, claim("units"))
		begin(t, next, units, idem.Claimed)
		mustSettle(t, next, units, using(7, finished("answer")))
		mustUse(t, next, "acme", 7)
		folds(t, db, next)
		mustUse(t, next, "acme", 7)
		mustBill(t, next, 7)
	})
}

// In MySQL a step may be interrupted after each of its statements. Who makes
// columns and index before, in Postgres, is not hindered.
func TestMigrateToUnitsAgain(t *testing.T) {
	in(t, func(t *testing.T, d database) {
		db, s := d.store(t)
		execute(t, db, "DROP TABLE sallyport_usage")
		if d.conf != nil {
			execute(t, db, "DROP TABLE sallyport_used")
		}
		execute(t, db, "UPDATE sallyport_idem_schema SET version = 100")
		mustMigrate(t, "again", s)
		mustUse(t, s, "acme", 0)
		mustCount(t, db, "SELECT count(*) FROM sallyport_used", 1)
		mustBill(t, s)
	}, "postgres", "mariadb")
}

// Run looks each second from the first Used on, and with each sweep before that;
// a database without units is not asked more.
func TestRunAddsUp(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		for _, row := range []struct {
			name  string
			o     idemsql.Options
			first func(s store)
			adds  bool
		}{
			{"nothing", idemsql.Options{}, func(store) {}, false},
			{"kept", keepsAll, func(store) {}, true},
			{"used", idemsql.Options{}, func(s store) { mustUse(t, s, "acme", 0) }, true},
			{"there", idemsql.Options{}, func(s store) { s.Count(t.Context(), idem.NewAccount("acme"), 1) }, true},
		} {
			db := d.open(t)
			execute(t, db, "DELETE FROM sallyport_used WHERE day > 0")
			s := d.on(d.open(t), row.o)
			row.first(s)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- s.Run(ctx) }()
			for s.Swept().IsZero() && ctx.Err() == nil {
				<-time.After(time.Millisecond)
			}
			if err := d.on(db, idemsql.Options{}).Count(t.Context(), idem.NewAccount("other"), 1); err != nil {
				t.Error(err)
			}
			added := func() bool {
				return count(t, db, "SELECT count(*) FROM sallyport_idem WHERE account IS NOT NULL") == 0
			}
			for deadline := time.Now().Add(2 * time.Second); row.adds && !added() && time.Now().Before(deadline.Add(patience)) ||
				!row.adds && time.Now().Before(deadline); {
				<-time.After(10 * time.Millisecond)
			}
			if added() != row.adds {
				t.Errorf("%s: added up %t, want %t", row.name, !row.adds, row.adds)
			}
			cancel()
			<-ended
			execute(t, db, "DELETE FROM sallyport_idem")
		}
	})
}

// A fold reads few rows by the index, whatever else is in the table.
func TestFoldUsesIndex(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		if d.pgx {
			return
		}
		db := d.open(t)
		var due, used string
		s := d.on(d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
			switch {
			case strings.Contains(statement, "ORDER BY account LIMIT 1"),
				strings.Contains(statement, "ORDER BY r.account LIMIT"):
				due = statement
			case strings.Contains(statement, "coalesce(sum"):
				used = statement
			}
			return nil
		}), idemsql.Options{})
		d.fill(t, db, 5000, aDay)
		execute(t, db, map[bool]string{true: "ANALYZE TABLE sallyport_idem", false: "ANALYZE"}[d.my != nil])
		mustUse(t, s, "acme", 0)
		folds(t, db, s)
		for _, statement := range []string{due, used} {
			if plan := d.plan(t, db, statement); !strings.Contains(plan, "sallyport_idem_account") {
				t.Errorf("%s\nis run by\n%s", statement, plan)
			}
		}
	})
}

// plan returns how the database would run a statement.
func (d database) plan(t testing.TB, db *sql.DB, statement string) string {
	t.Helper()
	explain := map[string]string{"sqlite": "EXPLAIN QUERY PLAN ", "postgres": "EXPLAIN ", "mariadb": "EXPLAIN "}[d.name]
	var args []any
	for i, value := range []any{[]byte("a\x00"), []byte("a\x01"), 2, 3} {
		if strings.Contains(statement, fmt.Sprint("$", i+1)) || strings.Contains(statement, fmt.Sprint("?", i+1)) {
			args = append(args, value)
		}
	}
	if len(args) == 1 {
		args[0] = 500
	}
	found, err := db.QueryContext(t.Context(), explain+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer found.Close()
	columns, _ := found.Columns()
	var lines []string
	for found.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := found.Scan(values...); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			lines = append(lines, v.(*sql.NullString).String)
		}
	}
	return strings.Join(slices.Compact(lines), " ")
}
