package idemsql_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// deadlocked makes the transaction of the handler the victim of a deadlock, and
// returns the error that the handler gets.
func deadlocked(t *testing.T, r *http.Request, s *server) error {
	tx, _ := idemsql.Tx(r.Context())
	if _, err := insert(r.Context(), tx, "before the deadlock"); err != nil {
		t.Error(err)
	}
	other, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer other.Rollback()
	// The one that has changed more rows survives.
	for range 20 {
		insert(t.Context(), other, "heavy")
	}
	execute(t, other, "UPDATE tasks SET title = 'a' WHERE id = 'a'")
	if _, err := tx.ExecContext(r.Context(), "UPDATE tasks SET title = 'b' WHERE id = 'b'"); err != nil {
		t.Error(err)
	}
	waits := make(chan error)
	go func() {
		_, err := other.ExecContext(t.Context(), "UPDATE tasks SET title = 'b' WHERE id = 'b'")
		waits <- err
	}()
	_, err = tx.ExecContext(r.Context(), "UPDATE tasks SET title = 'a' WHERE id = 'a'")
	if err := <-waits; err != nil {
		t.Error(err)
	}
	return err
}

// A deadlock takes the whole transaction back. What a handler writes that
// overlooks it does not stand, and its key is free. An answer of 409 is kept.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	for name, overlooked := range map[string]bool{"overlooked": true, "handled": false} {
		beside(t, name, func(t *testing.T) {
			s := newServer(t, mariadb(t), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
				if (!overlooked || s.runs.Load() == 1) && deadlocked(t, r, s) == nil {
					t.Error("there was no deadlock")
				}
				if overlooked {
					create(w, r, s)
					return
				}
				w.WriteHeader(http.StatusConflict)
				io.WriteString(w, "somebody was quicker")
			})
			execute(t, s.db, "INSERT INTO tasks (id, title) VALUES ('a', ''), ('b', '')")
			rows, status := 2, 409
			if overlooked {
				s.post("key", "title").mustBe(t, 503, "idempotency_commit_unknown")
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 2)
				mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 0)
				rows, status = 3, 201
			}
			first := s.post("key", "title")
			first.mustBe(t, status, "")
			s.post("key", "title").mustReplay(t, first)
			mustCount(t, s.db, "SELECT count(*) FROM tasks", rows)
		})
	}
}

// However a joined request ends, its connection is as it was: it holds no lock,
// and what is written on it is committed.
func TestConnectionIsGivenBack(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	db := d.open(t)
	db.SetMaxOpenConns(1)
	store := d.on(db, idemsql.Options{})
	refused := finished("answer")
	refused.RollBack = true
	for name, end := range map[string]func(c idem.Claim, j idem.Transaction) error{
		"committed":   func(_ idem.Claim, j idem.Transaction) error { return j.Settle(t.Context(), finished("answer")) },
		"refused":     func(_ idem.Claim, j idem.Transaction) error { return j.Settle(t.Context(), refused) },
		"rolled back": func(_ idem.Claim, j idem.Transaction) error { return j.Settle(t.Context(), outcomeFree) },
		"ended by the handler": func(_ idem.Claim, j idem.Transaction) error {
			tx, _ := idemsql.Tx(j.Context(t.Context()))
			tx.Rollback()
			j.Settle(t.Context(), finished("answer"))
			return nil
		},
		"in another database": func(_ idem.Claim, j idem.Transaction) error {
			tx, _ := idemsql.Tx(j.Context(t.Context()))
			execute(t, tx, "USE information_schema")
			return j.Settle(t.Context(), finished("answer"))
		},
		"known": func(c idem.Claim, j idem.Transaction) error {
			err := j.Settle(t.Context(), finished("answer"))
			join(t, store, again(c), idem.Done)
			return err
		},
	} {
		c := claim(name)
		_, j := join(t, store, c, idem.Claimed)
		tx, _ := idemsql.Tx(j.Context(t.Context()))
		var id int
		if err := tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if err := end(c, j); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var same, autocommit, locks bool
		err := db.QueryRowContext(t.Context(), "SELECT CONNECTION_ID() = ?, @@autocommit, RELEASE_ALL_LOCKS() > 0",
			id).Scan(&same, &autocommit, &locks)
		if err != nil || !same || !autocommit || locks {
			t.Errorf("%s: the same connection %t, autocommit %t, locks %t, %v, want true, true, false",
				name, same, autocommit, locks, err)
		}
	}
}

// A key of one database is not in progress in another one of the server.
func TestDatabasesDoNotMeet(t *testing.T) {
	t.Parallel()
	here, there := mariadb(t), mariadb(t)
	c := claim("key")
	_, j := join(t, here.on(here.open(t), idemsql.Options{}), c, idem.Claimed)
	_, k := join(t, there.on(there.open(t), idemsql.Options{}), again(c), idem.Claimed)
	for _, j := range []idem.Transaction{j, k} {
		mustEnd(t, j, outcomeFree)
	}
}

// A connection that may hold the lock of a key does not keep it.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	db := d.watched(t, func(ctx context.Context, c driver.Conn, statement string) error {
		if !strings.Contains(statement, " GET_LOCK(") {
			return nil
		}
		rows, err := c.(driver.QueryerContext).QueryContext(ctx, statement, nil)
		if err == nil {
			rows.Close()
		}
		return cmp.Or(err, errors.New("the answer was lost"))
	})
	db.SetMaxOpenConns(1)
	c := claim("key")
	if _, _, err := d.on(db, idemsql.Options{}).Join(t.Context(), c, 0); err == nil {
		t.Error("Join without an answer: got no error")
	}
	if n := db.Stats().OpenConnections; n != 1 {
		t.Fatalf("%d connections are open, want the one", n)
	}
	_, j := join(t, d.on(d.open(t), idemsql.Options{}), again(c), idem.Claimed)
	mustEnd(t, j, outcomeFree)
}

// The server does not answer the end of a transaction: Settle gives up, its
// connection is closed, and its turn and its key are free.
func TestLostRollback(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	for name, test := range map[string]struct {
		settlement idem.Settlement
		at         int64 // which COMMIT or ROLLBACK is lost; the last is that of the driver
		dead       bool  // the context has ended before
		want       idem.State
	}{
		"rolled back":             {outcomeFree, 1, false, idem.Claimed},
		"rolled back, the driver": {outcomeFree, 2, false, idem.Claimed},
		"refused":                 {refusal, 1, false, idem.Claimed},
		"refused, the driver":     {refusal, 3, false, idem.Done},
		"committed":               {finished("answer"), 1, false, idem.Claimed},
		"committed, the driver":   {finished("answer"), 2, false, idem.Done},
		"too late":                {finished("answer"), 1, true, idem.Claimed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var after atomic.Int64
			wire := &sqltest.Wire{Request: func(_ *sqltest.Conn, request []byte) sqltest.Fault {
				ends := bytes.Contains(request, []byte("COMMIT")) || bytes.Contains(request, []byte("ROLLBACK"))
				if !ends || after.Add(-1) != 0 {
					return sqltest.None
				}
				cancel()
				return sqltest.Deafen
			}}
			db := d.through(wire).of(1).open(t)
			store, c := d.on(db, idemsql.Options{}), claim(name)
			_, j := join(t, store, c, idem.Claimed)
			after.Store(test.at)
			if test.dead {
				cancel()
			}
			within(t, "Settle", func() {
				err := j.Settle(ctx, test.settlement)
				saved, unknown := test.want == idem.Done, name == "committed"
				if saved != (err == nil) || unknown != errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("Settle: got error %v; saved: %t, unknown: %t", err, saved, unknown)
				}
			})
			if after.Load() > 0 {
				t.Error("no request was lost")
			}
			mustBeIdle(t, db)
			within(t, "a repeat", func() { // the server hears of it by the end of the connection
				for r := (idem.Record{State: idem.InProgress}); r.State == idem.InProgress; {
					var err error
					if r, j, err = store.Join(t.Context(), again(c), 0); err != nil {
						t.Error(err)
						return
					}
					if r.State != idem.InProgress && r.State != test.want {
						t.Errorf("a repeat: got %v, want %v", r.State, test.want)
					}
				}
			})
			if j != nil {
				mustEnd(t, j, outcomeFree)
			}
		})
	}
}

// A driver may have no method for queries.
func TestPlainDriver(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	db := sqltest.Wrap(t, d.open(t), func(c driver.Conn) driver.Conn { return struct{ driver.Conn }{c} })
	store := d.on(db, idemsql.Options{})
	c := claim("key")
	for _, settlement := range []idem.Settlement{outcomeFree, finished("answer")} {
		_, j := join(t, store, again(c), idem.Claimed)
		mustEnd(t, j, settlement)
	}
	join(t, store, again(c), idem.Done)
}

// Whatever the connections of a program are set to, keys are compared byte for
// byte and times are the same.
func TestSuiteWithSettings(t *testing.T) {
	t.Parallel()
	for name, set := range sqltest.Settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mariadb(t)
			d.my = d.my.Clone()
			set(d.my)
			suite(d, d.open(t)).Run(t)
		})
	}
}

// A look that another request has made out of date by the next statement is no
// error: the claim begins again.
func TestOvertakenInMySQL(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	plain := d.open(t)
	for at, want := range map[string]idem.State{ // the statement before which it happens
		"INSERT INTO sallyport_idem": idem.InProgress, "UPDATE sallyport_idem": idem.Claimed,
		"SELECT 1, fingerprint": idem.Claimed,
	} {
		c := claim(at)
		if want == idem.Claimed {
			begin(t, d.on(plain, idemsql.Options{}), c, idem.Claimed)
			d.advance(t, plain, 2*time.Hour)
		}
		tries := 0
		store := d.on(d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
			statement = strings.ReplaceAll(statement, "`"+d.my.DBName+"`.", "")
			if !strings.HasPrefix(strings.TrimSpace(statement), at) {
				return nil
			}
			if tries++; tries == 1 && want == idem.Claimed {
				execute(t, plain, "DELETE FROM sallyport_idem")
			} else if tries == 1 {
				begin(t, d.on(plain, idemsql.Options{}), c, idem.Claimed)
			}
			return nil
		}), idemsql.Options{})
		begin(t, store, again(c), want)
		if tries == 0 {
			t.Errorf("there was no %q", at)
		}
	}
}

// A connection without a default database is told so, and not that another
// server migrates.
func TestMySQLWithoutDatabase(t *testing.T) {
	t.Parallel()
	d := mariadb(t)
	d.my = d.my.Clone()
	d.my.DBName = ""
	err := idemsql.MySQL(d.open(t), idemsql.Options{}).Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "No database selected") {
		t.Errorf("Migrate without a database returned %v", err)
	}
}
