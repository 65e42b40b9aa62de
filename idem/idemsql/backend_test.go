package idemsql_test

import (
	"database/sql"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// The server ends the session of a request that runs: it gets an error, leaves nothing, and the next one stands.
func TestServerEndsSession(t *testing.T) {
	for _, test := range []struct {
		name string
		open func(d database) database
		end  func(t *testing.T, s *server, pid int)
	}{
		{"pg_terminate_backend", func(d database) database { return d }, func(t *testing.T, s *server, pid int) {
			var ended bool
			if err := s.db.QueryRow("SELECT pg_terminate_backend($1, 5000)", pid).Scan(&ended); err != nil || !ended {
				t.Errorf("pg_terminate_backend: got %t, error %v", ended, err)
			}
		}},
		{"idle_in_transaction_session_timeout",
			func(d database) database { return d.with("idle_in_transaction_session_timeout", "100") },
			func(t *testing.T, s *server, pid int) {
				for n := 1; n > 0; {
					if err := s.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n); err != nil {
						t.Error(err)
						return
					}
				}
			}},
	} {
		for _, goesOn := range []bool{false, true} {
			name := test.name + ", and the handler is done"
			if goesOn {
				name = test.name + ", and the handler goes on"
			}
			t.Run(name, func(t *testing.T) {
				d := postgres(t)
				s := newServer(t, test.open(d), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
					tx, _ := idemsql.Tx(r.Context())
					if s.runs.Load() > 1 {
						create(w, r, s)
						return
					}
					if _, err := insert(r.Context(), tx, "of the first"); err != nil {
						t.Error(err)
					}
					var pid int
					if err := tx.QueryRowContext(r.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
						t.Error(err)
					}
					test.end(t, s, pid)
					if goesOn {
						create(w, r, s)
						return
					}
					w.WriteHeader(http.StatusCreated)
				})
				if goesOn {
					s.post("key", "title").mustBe(t, 500, "")
				} else {
					s.post("key", "title").mustBe(t, 503, "idempotency_store_unavailable")
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

// The connection breaks exactly at COMMIT: the client is told that nobody knows, and a repeat finds out.
func TestConnectionBreaksAtCommit(t *testing.T) {
	for _, test := range []struct {
		name      string
		fault     fault
		committed int
	}{
		{"before", before, 0},
		{"after", after, 1},
		{"session terminated after", terminated, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := postgres(t)
			proxy := newProxy(t, d.conf.Host, d.conf.Port)
			s := newServer(t, d.at(proxy.port), joined, create)
			s.post("warm up", "title").mustBe(t, 201, "")

			proxy.atNextCommit(test.fault)
			s.post("key", "title").mustBe(t, 503, "idempotency_commit_unknown")
			mustCount(t, s.db, "SELECT count(*) FROM tasks", 1+test.committed)
			mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", 1+test.committed)

			again := s.post("key", "title")
			again.mustBe(t, 201, "")
			if again.replayed() != (test.committed == 1) {
				t.Errorf("the next try: got replayed %t, committed before: %d", again.replayed(), test.committed)
			}
			mustCount(t, s.db, "SELECT count(*) FROM tasks", 2)
			mustBeIdle(t, s.db)
		})
	}
}

// COMMIT hangs: the request ends within the store's timeout all the same, and gives its connection back.
func TestCommitHangs(t *testing.T) {
	d := postgres(t)
	proxy := newProxy(t, d.conf.Host, d.conf.Port)
	o := joined
	o.StoreTimeout = 300 * time.Millisecond
	s := newServer(t, d.at(proxy.port), o, create)
	s.post("warm up", "title").mustBe(t, 201, "")
	proxy.atNextCommit(hang)
	within(t, 5*time.Second, "the request", func() {
		s.post("key", "title").mustBe(t, 503, "idempotency_commit_unknown")
	})
	mustBeIdle(t, s.db)
	s.post("key", "title").mustBe(t, 201, "")
	mustCount(t, s.db, "SELECT count(*) FROM tasks", 2)
}

// mustBeIdle wants all connections back soon: a call that was given up may still be on its way.
func mustBeIdle(t *testing.T, db *sql.DB) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); db.Stats().InUse > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are in use afterwards, want 0", db.Stats().InUse)
		}
	}
}
