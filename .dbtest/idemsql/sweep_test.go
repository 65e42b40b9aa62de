package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// sweepSize is how many rows a sweep removes at most. Run then begins another.
const sweepSize = 1000

// run has Run work until a condition holds.
func run(t testing.TB, s store, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for deadline := time.Now().Add(patience); !until(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v of Run it is not done", patience)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: got error %v", err)
	}
}

// swept has Run sweep once.
func swept(t testing.TB, s store) {
	t.Helper()
	before := s.Swept()
	run(t, s, func() bool { return s.Swept().After(before) })
}

// sweep wants Run to remove so many rows, fewer than a sweep removes at most.
func sweep(t testing.TB, s store, db *sql.DB, want int) {
	t.Helper()
	before := count(t, db, rows)
	swept(t, s)
	if got := before - count(t, db, rows); got != want {
		t.Errorf("Run removed %d rows, want %d", got, want)
	}
}

const rows = "SELECT count(*) FROM sallyport_idem"

// The row of a joined request is swept by its own retention, and not by that for
// which its transaction may run.
func TestSweep(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		sweep(t, store, db, 0)
		old, kept := claim("old"), claim("kept")
		kept.Retention = 3 * time.Hour
		begin(t, store, old, idem.Claimed)
		begin(t, store, kept, idem.Claimed)
		_, j := join(t, store, claim("joined"), idem.Claimed)
		mustEnd(t, j, finished("answer"))
		sweep(t, store, db, 0)
		d.advance(t, db, 2*time.Hour)
		sweep(t, store, db, 2)
		sweep(t, store, db, 0)
		begin(t, store, again(kept), idem.Unknown)
		begin(t, store, again(old), idem.Claimed)
	})
}

// A sweep removes so many rows and no more, and those first whose time ended
// first. Run goes on until none is left. Rows that are kept for longer than
// their claim said do not fill a sweep: it looks at others in their place.
func TestSweepIsBounded(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		for _, kept := range []int{0, 600, 1400} {
			if kept > 0 && d.conf == nil {
				continue // no database but Postgres sweeps by a time of its own
			}
			db := d.open(t)
			var mu sync.Mutex
			var left, first []int // rows before each statement, and those that ended first
			store := d.on(d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
				if !strings.Contains(statement, "DELETE") {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				var all, oldest int
				err := db.QueryRow(rows).Scan(&all)
				if err == nil {
					err = db.QueryRow(rows + " WHERE attempt <= " + strconv.Itoa(kept+sweepSize)).Scan(&oldest)
				}
				left, first = append(left, all), append(first, oldest)
				return err
			}), idemsql.Options{})
			d.fill(t, db, 2*sweepSize+5+kept, aDay)
			d.advance(t, db, 48*time.Hour)
			wantLeft, wantFirst := []int{2*sweepSize + 5, sweepSize + 5, 5}, []int{sweepSize, 0, 0}
			if kept > 0 { // the first sweep removes 400 rows and then 600
				execute(t, db, "UPDATE sallyport_idem SET expires_at = now() + interval '1 day' WHERE attempt <= "+
					strconv.Itoa(kept))
				wantLeft, wantFirst = []int{2605, 2205, 1605, 605}, []int{1600, 1200, 600, 600}
			}
			if kept > sweepSize { // it removes none at first, then 600 and 400
				wantLeft, wantFirst = []int{3405, 3405, 2805, 2405, 1405}, []int{2400, 2400, 1800, 1400, 1400}
			}
			run(t, store, func() bool { return count(t, db, rows) == kept })
			mu.Lock()
			if !slices.Equal(left, wantLeft) || !slices.Equal(first, wantFirst) {
				t.Errorf("%d kept: before the statements there were %v rows, %v of them the oldest, want %v and %v", kept,
					left, first, wantLeft, wantFirst)
			}
			mu.Unlock()
			if kept > 0 {
				mustCount(t, db, rows+" WHERE sweep_at <> expires_at", 0)
			}
			execute(t, db, "DELETE FROM sallyport_idem")
		}
	})
}

const aDay = 24 * 60 * 60

// fill puts n settled rows into the table, numbered in the order in which they
// expire: so many seconds from now, and then one a second.
func (d database) fill(t testing.TB, db execer, n, seconds int) {
	t.Helper()
	columns, values, from := "", "", ""
	switch {
	case d.conf != nil:
		columns = ", sweep_at"
		values = `sha256((n::text || random()::text)::bytea), '\x00', sha256('f'), n, 3, now(), {at},
			decode(repeat('7b', 400), 'hex'), {at}`
		values = strings.ReplaceAll(values, "{at}", "now() + ({s} + n) * interval '1 second'")
		from = "generate_series(1, {n}) AS n"
	case d.my != nil:
		values = `UNHEX(SHA2(CONCAT(n, RAND()), 256)), UNHEX('00'), UNHEX(SHA2('f', 256)), n, 3, 0,
			(UNIX_TIMESTAMP() + {s} + n) * 1000000, REPEAT('{', 400)`
		from = "JSON_TABLE(CONCAT('[', REPEAT('0,', {n} - 1), '0]'), '$[*]' COLUMNS (n FOR ORDINALITY)) AS s"
	default:
		values = "randomblob(32), x'00', zeroblob(32), n, 3, 0, (unixepoch() + {s} + n) * 1000000, zeroblob(400)"
		from = "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {n}) SELECT n FROM s)"
	}
	execute(t, db, strings.NewReplacer("{n}", strconv.Itoa(n), "{s}", strconv.Itoa(seconds)).Replace(
		"INSERT INTO sallyport_idem (request_key, token, fingerprint, attempt, state, lease_ends, expires_at, payload"+
			columns+") SELECT "+values+" FROM "+from))
}

// Settling and renewing a claim changes no indexed column.
func TestSettleIsHOT(t *testing.T) {
	d := postgres(t)
	db := d.open(t)
	db.SetMaxOpenConns(1)
	store := d.on(db, idemsql.Options{})
	for i := range 50 {
		c := of("acme", 5, claim(strconv.Itoa(i)))
		begin(t, store, c, idem.Claimed)
		if err := store.Extend(t.Context(), c.Key, c.Token, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		mustSettle(t, store, c, using(7, finished(strings.Repeat("x", 400))))
	}
	mustCount(t, db, `
		SELECT count(*) FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = 'sallyport_idem'::regclass AND a.attname NOT IN ('request_key', 'sweep_at', 'account')`, 0)
	var updates, hot int
	within(t, "the server's count", func() {
		for updates < 100 {
			err := db.QueryRowContext(t.Context(), `
				SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
				WHERE relid = 'sallyport_idem'::regclass`).Scan(&updates, &hot)
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	if hot < 90 {
		t.Errorf("%d of %d updates were HOT, want nearly all", hot, updates)
	}
}

// A sweep neither waits for a request that reuses an expired row nor takes the
// row from under it.
func TestSweepWhileServing(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		c := claim("reused")
		begin(t, store, c, idem.Claimed)
		begin(t, store, claim("other"), idem.Claimed)
		d.advance(t, db, 2*time.Hour)
		_, j := join(t, store, again(c), idem.Claimed)
		sweep(t, store, db, 1)
		mustEnd(t, j, finished("answer"))
		sweep(t, store, db, 0)
		begin(t, store, again(c), idem.Done)
	})
}

// Run removes all that has expired when it starts and then every minute, goes
// on after an error, and ends with its context.
func TestRun(t *testing.T) {
	t.Parallel()
	file := sqliteFile(t)
	synctest.Test(t, func(t *testing.T) {
		db, err := file.pool() // not before: its goroutines belong to the bubble
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var log logged
		store := idemsql.SQLite(db, idemsql.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		expire := func(n int) {
			file.fill(t, db, n, aDay)
			file.advance(t, db, 48*time.Hour)
		}

		if !store.Swept().IsZero() {
			t.Errorf("swept at %v, before Run", store.Swept())
		}
		expire(2*sweepSize + 5)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- store.Run(ctx) }()
		synctest.Wait()
		mustCount(t, db, rows, 0)

		expire(7)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		mustCount(t, db, rows, 7)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		mustCount(t, db, rows, 0)

		execute(t, db, "ALTER TABLE sallyport_idem RENAME TO away")
		time.Sleep(time.Minute)
		synctest.Wait()
		log.mustSay(t, "the next sweep tries again")
		if got, want := store.Swept(), time.Now().Add(-time.Minute); !got.Equal(want) {
			t.Errorf("swept at %v, want the last sweep that succeeded, %v", got, want)
		}
		execute(t, db, "ALTER TABLE away RENAME TO sallyport_idem")
		expire(3)
		time.Sleep(time.Minute)
		synctest.Wait()
		mustCount(t, db, rows, 0)

		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got error %v, want none", err)
		}
	})
}

// A pause between tries: a database that is away is not asked all the time, and
// the end of the context is no error to log.
func TestRunWithoutDatabase(t *testing.T) {
	t.Parallel()
	file := sqliteFile(t)
	synctest.Test(t, func(t *testing.T) {
		db, err := file.pool()
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		var log logged
		store := idemsql.SQLite(db, idemsql.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		if err := store.Run(ctx); err != nil {
			t.Errorf("got error %v, want none", err)
		}
		if got := log.lines(); got != 6 { // of the sweep, and of what it adds up before
			t.Errorf("got %d lines of the log, want 6: two at once, and two after one and two minutes", got)
		}
	})
}

// A sweep that is cut short by the end of the context is no error to log.
func TestRunEndsWithinSweep(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	db := sqliteFile(t).watched(t, func(context.Context, driver.Conn, string) error {
		cancel()
		return errors.New("interrupted")
	})
	var log logged
	store := idemsql.SQLite(db, idemsql.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := store.Run(ctx); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	if got := log.lines(); got != 0 {
		t.Errorf("got %d lines of the log, want none", got)
	}
}
