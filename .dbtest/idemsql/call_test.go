package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A caller may leave at the very moment at which it gets the claim.
func TestJoinerLeaves(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.of(2).open(t), idemsql.Options{})
		var typical time.Duration
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			leaves := time.AfterFunc(typical*time.Duration(90+i%20)/100, cancel)
			if i < 5 {
				leaves.Stop()
			}
			start := time.Now()
			_, j, err := store.Join(ctx, claim(strconv.Itoa(i)), 0)
			switch {
			case err == nil:
				if typical = time.Since(start); j.Settle(t.Context(), outcomeFree) != nil {
					t.Error("Settle failed")
				}
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		_, j, err := store.Join(ctx, claim("last"), 0)
		if err != nil {
			t.Fatalf("a turn was lost: %v", err)
		}
		j.Settle(t.Context(), outcomeFree)
		elsewhere := d.on(d.open(t), idemsql.Options{})
		for i := range 100 {
			for j = nil; j == nil; { // until the server has noticed that a connection is closed
				if _, j, err = elsewhere.Join(ctx, claim(strconv.Itoa(i)), 0); err != nil {
					t.Fatalf("a key is still taken: %v", err)
				}
			}
			j.Settle(t.Context(), outcomeFree)
		}
	})
}

// SQLite waits for the file longer than a caller may: the caller is answered,
// and what comes late holds nothing.
func TestContextEndsWait(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	db, err := sql.Open("sqlite", sqliteDSN(d.file, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store := d.on(db, idemsql.Options{})
	c, gone := claim("held"), claim("gone")
	begin(t, store, c, idem.Claimed)
	writer, err := d.open(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"Begin":  func(ctx context.Context) error { _, err := store.Begin(ctx, claim("other")); return err },
		"Join":   func(ctx context.Context) error { _, _, err := store.Join(ctx, claim("joined"), 0); return err },
		"Extend": func(ctx context.Context) error { return store.Extend(ctx, c.Key, c.Token, time.Minute) },
		"Settle": func(ctx context.Context) error { return store.Settle(ctx, c.Key, c.Token, finished("answer")) },
		"free":   func(ctx context.Context) error { return store.Settle(ctx, gone.Key, gone.Token, outcomeFree) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "idemsql: ") {
			t.Errorf("%s: got error %v, want one of idemsql that wraps the deadline", name, err)
		}
		cancel()
	}
	within(t, "Run", func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := store.Run(ctx); err != nil {
			t.Errorf("Run: got error %v, want none", err)
		}
	})
	if _, err := writer.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	_, j := join(t, store, claim("next"), idem.Claimed) // its turn came: the one that was late gave it up
	mustEnd(t, j, outcomeFree)
	// A claim that came late is freed, also when whoever asked for it has freed
	// it before.
	mustBeIdle(t, db)
	for deadline := time.Now().Add(patience); count(t, db, "SELECT count(*) FROM sallyport_idem") != 1; {
		if time.Now().After(deadline) {
			t.Fatal("a claim of which nobody knows stays")
		}
	}
}

// hungStore returns a store whose database accepts connections and never
// answers.
func hungStore(t *testing.T, d database) store {
	w := &sqltest.Wire{Request: func(*sqltest.Conn, []byte) sqltest.Fault { return sqltest.Lose }}
	return d.on(d.through(w).open(t), idemsql.Options{})
}

// The retention of a joined answer begins when it is stored, not when its
// transaction began.
func TestRetentionOfJoined(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		db, store := d.store(t)
		c := claim("key")
		_, j := join(t, store, c, idem.Claimed)
		tx, _ := inTx(j.Context(t.Context()))
		execute(t, tx, "INSERT INTO tasks (id, title, made_for) VALUES ('of the transaction', '', now()::text)")
		execute(t, tx, "SELECT pg_sleep(1)")
		mustEnd(t, j, finished("answer"))
		mustCount(t, db, `
		SELECT count(*) FROM sallyport_idem, tasks
		WHERE expires_at >= made_for::timestamptz + interval '1 hour 1 second'`, 1)
	})
}

// A handler may take longer than its answer is kept.
func TestRetentionShorterThanTheHandler(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		c.Lease, c.Retention = 20*time.Millisecond, 20*time.Millisecond
		_, j := join(t, store, c, idem.Claimed)
		tx, _ := inTx(j.Context(t.Context()))
		for start := time.Now(); time.Since(start) < 2*c.Retention; {
			if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Settle(t.Context(), finished("answer")); err != nil {
			t.Errorf("Settle: got error %v", err)
		}
		begin(t, store, again(c), idem.Done)
	})
}

// When the context of Settle is done, nothing is saved and the key is free.
func TestSettleTooLate(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		_, store := d.store(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, j := join(t, store, claim("key"), idem.Claimed)
		cancel()
		err := j.Settle(ctx, finished("answer"))
		if !errors.Is(err, context.Canceled) || errors.Is(err, idem.ErrCommitUnknown) {
			t.Errorf("got error %v, want one that says that nothing was saved", err)
		}
		within(t, "freeing the key", func() { // the server hears of it by the end of the connection
			for {
				if r, err := store.Begin(t.Context(), claim("key")); err != nil || r.State == idem.Claimed {
					return
				}
			}
		})
	})
}
