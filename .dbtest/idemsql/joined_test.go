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
			middleware.ExecutionFrom(r.Context()).Free()
			w.WriteHeader(201)
		}, 201, false, 0, joined},
		{"failed", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) }, 502, false, 0, joined},
		{"panicked", func(w http.ResponseWriter, r *http.Request) { panic("oops") }, 500, false, 0, joined},
		{"deadline", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 503, false, 0,
			options{Options: joined.Options, handler: 500 * time.Millisecond}},
		{"late", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(201) }, 201, true, 1,
			options{Options: joined.Options, handler: 500 * time.Millisecond}},
		{"large", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, strings.Repeat("x", 1<<20))
		}, 200, true, 1, joined},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				s := newServer(t, d, test.options, func(w http.ResponseWriter, r *http.Request, s *server) {
					// Whatever the handler's deadline is.
					if _, ok := createOnly(w, r.WithContext(context.WithoutCancel(r.Context())), s); ok {
						test.end(w, r)
					}
				})
				first := s.post("key", "title")
				if first.status != test.status {
					t.Errorf("got %d %s, want %d", first.status, first.body, test.status)
				}
				second := s.post("key", "title")
				runs, records := 2, 0
				if test.kept {
					second.mustReplay(t, first)
					runs, records = 1, 1
				}
				if got := int(s.runs.Load()); got != runs {
					t.Errorf("got %d runs, want %d", got, runs)
				}
				mustCount(t, s.db, "SELECT count(*) FROM tasks", runs*test.rows)
				mustCount(t, s.db, "SELECT count(*) FROM sallyport_idem", records)
				mustBeIdle(t, s.db)
				if without := s.post("", "title"); !strings.Contains(without.body, "a transaction: false") {
					t.Errorf("without a key: got %d %s", without.status, without.body)
				}
			})
		})
	}
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
	t.Parallel()
	d := sqliteFile(t)
	for name, test := range map[string]struct {
		db      *sql.DB
		end     func(t *testing.T, tx *sql.Tx)
		unknown bool // whether something may have been committed
	}{
		"the transaction cannot be rolled back": {d.open(t), func(t *testing.T, tx *sql.Tx) {
			execute(t, tx, "ROLLBACK")
		}, true},
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
			if err := j.Settle(t.Context(), finished("answer")); err == nil ||
				errors.Is(err, idem.ErrCommitUnknown) != test.unknown {
				t.Errorf("Settle: got error %v; ErrCommitUnknown: want %t", err, test.unknown)
			}
			if _, err := test.db.ExecContext(t.Context(), "INSERT INTO of_the_connection VALUES (1)"); err == nil {
				t.Error("the connection is still in the pool")
			}
		})
	}
}

func TestWithTx(t *testing.T) {
	t.Parallel()
	if tx, ok := idemsql.Tx(t.Context()); ok || tx != nil {
		t.Errorf("without a transaction: got %v", tx)
	}
	want := new(sql.Tx)
	if tx, ok := idemsql.Tx(idemsql.WithTx(t.Context(), want)); !ok || tx != want {
		t.Errorf("got %p, %t, want %p", tx, ok, want)
	}
}

// refusal is the settlement of a joined request that answered with a 4xx.
var refusal = idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte("refused"), Retention: time.Hour,
	RollBack: true}

// isKeep reports whether a statement stores a reply after a rollback: it is the
// only one that stores one without having claimed the key.
func isKeep(statement string) bool {
	return strings.Contains(statement, "INSERT") && strings.Contains(statement, "1, 3,")
}

// Between the rollback and the reply another request may take the key. It then
// owns it, and nothing of the first one remains.
func TestTakenBeforeKept(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		other := d.on(d.open(t), idemsql.Options{})
		for name, take := range map[string]func(t *testing.T, c idem.Claim) (end func()){
			"joined": func(t *testing.T, c idem.Claim) func() {
				_, j := join(t, other, c, idem.Claimed)
				return func() { mustEnd(t, j, finished("of the other")) }
			},
			"with a lease": func(t *testing.T, c idem.Claim) func() {
				begin(t, other, c, idem.Claimed)
				return func() { mustSettle(t, other, c, finished("of the other")) }
			},
		} {
			t.Run(name, func(t *testing.T) {
				c := claim(name)
				var end func()
				db := d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
					if isKeep(statement) {
						end = take(t, again(c))
					}
					return nil
				})
				store := d.on(db, idemsql.Options{})
				_, j := join(t, store, c, idem.Claimed)
				if err := j.Settle(t.Context(), refusal); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
					t.Errorf("Settle: got error %v, want one that says that nothing was kept", err)
				}
				begin(t, store, again(c), idem.InProgress)
				end()
				if r := begin(t, store, again(c), idem.Done); string(r.Payload) != "of the other" {
					t.Errorf("got the payload %q, want the other's", r.Payload)
				}
				mustBeIdle(t, db)
			})
		}
	})
}

// A second attempt that is refused replaces the unknown outcome of the first. Its
// reply may be empty.
func TestKeepTakenOver(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		for _, payload := range [][]byte{[]byte("refused"), nil} {
			c, refused := claim(string(payload)), refusal
			begin(t, store, c, idem.Claimed)
			mustSettle(t, store, c, idem.Settlement{Retention: time.Hour})
			second := again(c)
			second.Reexecute, refused.Payload = true, payload
			r, j := join(t, store, second, idem.Claimed)
			if r.Attempt != 2 {
				t.Errorf("got attempt %d, want 2", r.Attempt)
			}
			mustEnd(t, j, refused)
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != string(payload) {
				t.Errorf("got the payload %q, want %q", r.Payload, payload)
			}
		}
	})
}

// Two keys can share the number of a lock. The second is told that it is in
// flight until the first has ended, and then has a claim of its own.
func TestKeysThatShareALock(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		a, b := claim("a"), claim("b")
		copy(b.Key[:4], a.Key[:4])
		_, j := join(t, store, a, idem.Claimed)
		if r, _ := join(t, store, b, idem.InProgress); r.Fingerprint != ([32]byte{}) {
			t.Errorf("got the fingerprint %x, want none: it is another key's", r.Fingerprint)
		}
		begin(t, store, again(b), idem.InProgress)
		mustEnd(t, j, finished("of a"))
		_, j = join(t, store, again(b), idem.Claimed)
		mustEnd(t, j, finished("of b"))
		for c, want := range map[idem.Claim]string{a: "of a", b: "of b"} {
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != want {
				t.Errorf("got the payload %q, want %q", r.Payload, want)
			}
		}
	})
}
