package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
)

// What a joined request leaves behind follows from its answer.
func TestJoinedOutcomes(t *testing.T) {
	for _, test := range []struct {
		name    string
		end     func(w http.ResponseWriter, r *http.Request)
		status  int
		kept    bool // the answer is replayed
		rows    int  // of each run
		options options
	}{
		{"created", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) }, 201, true, 1, joined},
		{"nothing written", func(w http.ResponseWriter, r *http.Request) {}, 200, true, 1, joined},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(303) }, 303, true, 1, joined},
		{"refused", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(422) }, 422, true, 0, joined},
		{"not begun", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(429) }, 429, false, 0, joined},
		{"said so", func(w http.ResponseWriter, r *http.Request) {
			middleware.FreeKey(r.Context())
			w.WriteHeader(201)
		}, 201, false, 0, joined},
		{"failed", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) }, 502, false, 0, joined},
		{"panicked", func(w http.ResponseWriter, r *http.Request) { panic("oops") }, 500, false, 0, joined},
		{"deadline", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(201) }, 503, false, 0,
			options{Options: joined.Options, handler: 500 * time.Millisecond}},
		{"large", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 1<<20)) }, 200, true, 1, joined},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				s := newServer(t, d, test.options, func(w http.ResponseWriter, r *http.Request, s *server) {
					// Whatever the handler's deadline is.
					if _, ok := createOnly(w, r.WithContext(context.WithoutCancel(r.Context()))); ok {
						test.end(w, r)
					}
				})
				first := s.post("key", "title")
				if first.status != test.status {
					t.Errorf("got %d %s, want %d", first.status, first.body, test.status)
				}
				second := s.post("key", "title")
				runs := 2
				if test.kept {
					second.mustReplay(t, first)
					runs = 1
				}
				if got := int(s.runs.Load()); got != runs {
					t.Errorf("got %d runs, want %d", got, runs)
				}
				mustCount(t, s.db, "SELECT count(*) FROM tasks", runs*test.rows)
				records := 0
				if test.kept {
					records = 1
				}
				mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", records)
				if n := s.db.Stats().InUse; n != 0 {
					t.Errorf("%d connections are in use afterwards, want 0", n)
				}
			})
		})
	}
}

// A handler may get an error from the database, which in Postgres ends what its
// transaction can do, and answer like any other.
func TestHandledDatabaseError(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		s := newServer(t, d, joined, func(w http.ResponseWriter, r *http.Request, s *server) {
			tx, _ := idemsql.Tx(r.Context())
			if _, err := insert(r.Context(), tx, "before the error"); err != nil {
				t.Error(err)
			}
			if _, err := tx.ExecContext(r.Context(), "INSERT INTO tasks (id, title) VALUES ('taken', 'second')"); err == nil {
				t.Error("the unique violation was no error")
			}
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, "there is one")
		})
		execute(t, s.db, "INSERT INTO tasks (id, title) VALUES ('taken', 'first')")
		first := s.post("key", "title")
		first.mustBe(t, 409, "")
		s.post("key", "title").mustReplay(t, first)
		mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
		mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem WHERE state = 3", 1)
	})
}

// A handler that overlooks the error gets no answer out: the transaction cannot
// be committed.
func TestOverlookedDatabaseError(t *testing.T) {
	s := newServer(t, postgres(t), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
		tx, _ := idemsql.Tx(r.Context())
		insert(r.Context(), tx, "before the error")
		tx.ExecContext(r.Context(), "SELECT 1/0")
		w.WriteHeader(http.StatusCreated)
	})
	for range 2 {
		s.post("key", "title").mustBe(t, 503, "idempotency_store_unavailable")
	}
	mustCount(t, s.db, "SELECT count(*) FROM tasks", 0)
	mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 0)
}

// COMMIT itself is refused: that proves that nothing was committed.
func TestRefusedCommit(t *testing.T) {
	test := func(t *testing.T, d database) {
		s := newServer(t, d, joined, func(w http.ResponseWriter, r *http.Request, s *server) {
			tx, _ := idemsql.Tx(r.Context())
			if s.runs.Load() == 1 {
				if _, err := tx.ExecContext(r.Context(), "INSERT INTO parts (task) VALUES ('missing')"); err != nil {
					t.Error(err)
				}
			}
			create(w, r, s)
		})
		s.db.SetMaxOpenConns(1) // whose state is seen by the next request
		if d.name == "sqlite" {
			execute(t, s.db, "PRAGMA foreign_keys = ON")
		}
		execute(t, s.db, "CREATE TABLE parts (task text REFERENCES tasks (id) DEFERRABLE INITIALLY DEFERRED)")
		s.post("key", "title").mustBe(t, 503, "idempotency_store_unavailable")
		mustCount(t, s.db, "SELECT count(*) FROM tasks", 0)
		first := s.post("key", "title")
		first.mustBe(t, 201, "")
		s.post("key", "title").mustReplay(t, first)
		mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
	}
	t.Run("sqlite", func(t *testing.T) { test(t, sqliteFile(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, postgres(t)) })
}

// Whoever ends the transaction of the request is told loudly, and nothing runs
// twice because of it.
func TestHandlerEndsTransaction(t *testing.T) {
	for _, test := range []struct {
		name      string
		committed bool
		end       func(w http.ResponseWriter, r *http.Request)
	}{
		{"Commit", true, func(w http.ResponseWriter, r *http.Request) { tx, _ := idemsql.Tx(r.Context()); tx.Commit() }},
		{"Rollback", false, func(w http.ResponseWriter, r *http.Request) { tx, _ := idemsql.Tx(r.Context()); tx.Rollback() }},
		{"ROLLBACK", false, func(w http.ResponseWriter, r *http.Request) {
			tx, _ := idemsql.Tx(r.Context())
			tx.ExecContext(r.Context(), "ROLLBACK")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				s := newServer(t, d, options{Options: idem.Options{Join: true, Wait: -1}}, func(w http.ResponseWriter, r *http.Request, s *server) {
					if _, ok := createOnly(w, r); ok {
						if s.runs.Load() == 1 {
							test.end(w, r)
						}
						w.WriteHeader(http.StatusCreated)
					}
				})
				s.post("key", "title").mustBe(t, 503, "idempotency_commit_unknown")
				s.log.mustSay(t, "a handler ended the transaction")
				second := s.post("key", "title")
				if !test.committed {
					second.mustBe(t, 201, "")
					mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
					return
				}
				second.mustBe(t, 409, "idempotency_in_progress")
				d.advance(t, s.db, 2*patience)
				s.post("key", "title").mustBe(t, 409, "idempotency_outcome_unknown")
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
			})
		})
	}
}

// A request without a key has no transaction.
func TestNoKeyNoTransaction(t *testing.T) {
	s := newServer(t, sqliteFile(t), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
		if _, ok := idemsql.Tx(r.Context()); ok {
			t.Error("got a transaction, want none")
		}
	})
	s.post("", "title").mustBe(t, 200, "")
}

// ending returns a pool whose transactions end by a statement just before they
// are committed.
func ending(t *testing.T, d database, by string) *sql.DB {
	return d.watched(t, func(ctx context.Context, c driver.Conn, statement string) error {
		if statement != "COMMIT" {
			return nil
		}
		_, err := c.(driver.ExecerContext).ExecContext(ctx, by, nil)
		return err
	})
}

// A connection in an unknown state does not go back to the pool: the next
// request would begin in what the last one left.
func TestDoubtfulConnectionsAreClosed(t *testing.T) {
	d := sqliteFile(t)
	for name, test := range map[string]struct {
		db      *sql.DB
		end     func(t *testing.T, tx *sql.Tx)
		unknown bool // whether something may have been committed
	}{
		"the transaction cannot be rolled back": {d.open(t), func(t *testing.T, tx *sql.Tx) { execute(t, tx, "ROLLBACK") }, true},
		// The transaction ends on its own just before it is committed, as SQLite
		// does when the disk is full.
		"nor after a failed commit":       {ending(t, d, "ROLLBACK"), func(*testing.T, *sql.Tx) {}, false},
		"a commit took effect and failed": {ending(t, d, "COMMIT"), func(*testing.T, *sql.Tx) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			defer test.db.Close()
			test.db.SetMaxOpenConns(1)
			// It is gone with the connection.
			execute(t, test.db, "CREATE TEMP TABLE of_the_connection (n integer)")
			store := idemsql.SQLite(test.db, idemsql.Options{Logger: slog.New(slog.DiscardHandler)})
			_, j := join(t, store, claim(name), idem.Claimed)
			tx, _ := idemsql.Tx(j.Context(t.Context()))
			test.end(t, tx)
			if err := j.Settle(t.Context(), finished("answer")); err == nil || errors.Is(err, idem.ErrCommitUnknown) != test.unknown {
				t.Errorf("Settle: got error %v; ErrCommitUnknown: want %t", err, test.unknown)
			}
			if _, err := test.db.ExecContext(t.Context(), "INSERT INTO of_the_connection VALUES (1)"); err == nil {
				t.Error("the connection is still in the pool")
			}
		})
	}
}
