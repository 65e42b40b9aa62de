package idemsql_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
)

// The server ends the session of a request that runs: it gets an error, leaves
// nothing, and the next one stands.
func TestServerEndsSession(t *testing.T) {
	t.Parallel()
	const (
		pgPID, pgLive = "SELECT pg_backend_pid()", "SELECT count(*) FROM pg_stat_activity WHERE pid = %d"
		myPID, myLive = "SELECT CONNECTION_ID()", "SELECT count(*) FROM information_schema.processlist WHERE id = %d"
		pgEnd, pgIdle = "SELECT pg_terminate_backend(%d)", "SET idle_in_transaction_session_timeout = 100"
		notSaved      = "idempotency_store_unavailable"
	)
	// Without statements to prepare, so that COMMIT is on its way when the error
	// comes.
	native := func(t testing.TB) database { return postgres(t).native().mode(pgx.QueryExecModeExec) }
	for _, test := range []struct {
		name string
		open func(t testing.TB) database
		pid  string
		end  string // ends the session from outside
		set  string // makes the server end it, because the transaction is idle
		live string // asks how many sessions are left of it
		code string // what a client is told if the handler does not notice
	}{
		{"pg_terminate_backend", postgres, pgPID, pgEnd, "", pgLive, notSaved},
		{"pg_terminate_backend, pgx", native, pgPID, pgEnd, "", pgLive, "idempotency_commit_unknown"},
		{"idle_in_transaction_session_timeout", postgres, pgPID, "", pgIdle, pgLive, notSaved},
		{"idle_in_transaction_session_timeout, pgx", native, pgPID, "", pgIdle, pgLive, notSaved},
		{"KILL", mariadb, myPID, "KILL %d", "", myLive, notSaved},
		{"idle_transaction_timeout", mariadb, myPID, "", "SET idle_transaction_timeout = 1", myLive, notSaved},
	} {
		for _, goesOn := range []bool{false, true} {
			name := test.name + ", and the handler is done"
			if goesOn {
				name = test.name + ", and the handler goes on"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newServer(t, test.open(t), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
					tx, _ := inTx(r.Context())
					if s.runs.Load() > 1 {
						create(w, r, s)
						return
					}
					if _, err := insert(r.Context(), tx, "of the first"); err != nil {
						t.Error(err)
					}
					pid, err := countIn(r.Context(), test.pid)
					if err != nil {
						t.Error(err)
					}
					if test.end != "" {
						if _, err := s.db.Exec(fmt.Sprintf(test.end, pid)); err != nil {
							t.Error(err)
						}
					}
					if test.set != "" {
						if _, err := tx.ExecContext(r.Context(), test.set); err != nil {
							t.Error(err)
						}
					}
					for n := 1; n > 0; {
						if err := s.db.QueryRow(fmt.Sprintf(test.live, pid)).Scan(&n); err != nil {
							t.Error(err)
							return
						}
					}
					if goesOn {
						create(w, r, s)
						return
					}
					w.WriteHeader(http.StatusCreated)
				})
				if test.code != notSaved { // what looks at the role would find out
					warm(t, s.store)
				}
				if goesOn {
					s.post("key", "title").mustBe(t, 500, "")
				} else {
					s.post("key", "title").mustBe(t, 503, test.code)
				}
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 0)
				next := s.post("key", "title")
				next.mustBe(t, 201, "")
				s.post("key", "title").mustReplay(t, next)
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
			})
		}
	}
}

// The connection breaks exactly at COMMIT: the client is told that nobody
// knows, and a repeat finds out.
func TestConnectionBreaksAtCommit(t *testing.T) {
	for _, test := range []struct {
		name      string
		fault     sqltest.Fault
		code      string
		committed int
	}{
		{"before", sqltest.BreakBefore, "idempotency_commit_unknown", 0},
		{"after", sqltest.BreakAfter, "idempotency_commit_unknown", 1},
		{"session terminated after", sqltest.Terminate, "idempotency_commit_unknown", 1},
		{"rolled back", sqltest.Refuse, "idempotency_store_unavailable", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			cut := func(t *testing.T, d database) {
				faulty, next := d.faulty()
				s := newServer(t, faulty, charged, create)
				first := s.post("warm up", "warm up")
				first.mustBe(t, 201, "")

				next.set(test.fault)
				s.post("key", "key").mustBe(t, 503, test.code)
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 1+test.committed)
				mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 1+test.committed)

				again := s.post("key", "key")
				again.mustBe(t, 201, "")
				if again.replayed() != (test.committed == 1) {
					t.Errorf("the next try: got replayed %t, committed before: %d", again.replayed(), test.committed)
				}
				mustCount(t, s.db, "SELECT count(*) FROM tasks", 2)
				mustBeIdle(t, s.db)
				newBiller().mustMatch(t, d, map[string]answer{"warm up": first, "key": again})
			}
			inServers(t, cut)
			for _, mode := range poolerModes {
				t.Run("pgx in mode "+mode.String(), func(t *testing.T) { cut(t, postgres(t).native().mode(mode)) })
			}
		})
	}
}

// COMMIT hangs: the request ends with the store's timeout all the same, and
// gives its connection back.
func TestCommitHangs(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		faulty, next := d.faulty()
		o := charged
		o.Options.Timeout = 2 * time.Second
		s, patient := newServer(t, faulty, o, create), newServer(t, d, charged, create)
		next.set(sqltest.Lose)
		key, late := "", lateness(t)
		for i := 0; next.isToCome(); i++ { // the timeout may end what comes before COMMIT
			key = strconv.Itoa(i)
			within(t, "the request", func() {
				begun := time.Now()
				a := s.post(key, key)
				if !next.isToCome() {
					a.mustBe(t, 503, "idempotency_commit_unknown")
				}
				if took := time.Since(begun); took > promised+late() {
					t.Errorf("got the answer after %v, want it within %v", took, promised)
				}
			})
		}
		mustBeIdle(t, s.db)
		again := patient.post(key, key)
		again.mustBe(t, 201, "")
		mustCount(t, patient.db, "SELECT count(*) FROM tasks", 1)
		newBiller().mustMatch(t, d, map[string]answer{key: again})
	})
}

// mustBeIdle wants all connections back soon: a call that was given up may
// still be on its way.
func mustBeIdle(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(patience); inUse(db) > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are in use afterwards, want 0", inUse(db))
		}
	}
}
