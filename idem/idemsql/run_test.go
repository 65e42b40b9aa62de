package idemsql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// Run removes all that has expired when it starts and then every minute, goes
// on after an error, and ends with its context.
func TestRun(t *testing.T) {
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
			file.fill(t, db, n)
			file.advance(t, db, 48*time.Hour)
		}
		const rows = "SELECT count(*) FROM sallyport_idem"

		if !store.Swept().IsZero() {
			t.Errorf("swept at %v, before Run", store.Swept())
		}
		expire(2*idemsql.SweepSize + 5)
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
		if got := log.lines(); got != 3 {
			t.Errorf("got %d lines of the log, want 3: at once, and after one and two minutes", got)
		}
		cancel()
		if err := store.Run(ctx); err != nil {
			t.Errorf("got error %v, want none", err)
		}
		if got := log.lines(); got != 3 {
			t.Errorf("got %d lines of the log after a Run whose context was over, want 3", got)
		}
	})
}

// A sweep that is cut short by the end of the context is no error to log.
func TestRunEndsWithinSweep(t *testing.T) {
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
