package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// What a joined request leaves behind follows from its answer.
func TestJoinedOutcomes(t *testing.T) {
	t.Parallel()
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
				if n := inUse(s.db); n != 0 {
					t.Errorf("%d connections are in use afterwards, want 0", n)
				}
			})
		})
	}
}

// endTx ends the transaction of a request by its method, or where that refuses to
// by a statement.
func endTx(ctx context.Context, by string) {
	if tx, ok := idempgx.Tx(ctx); ok {
		tx.Exec(ctx, by)
	} else if tx, _ := idemsql.Tx(ctx); by == "COMMIT" {
		tx.Commit()
	} else {
		tx.Rollback()
	}
}

// Whoever ends the transaction of the request is told loudly, and nothing runs
// twice because of it.
func TestHandlerEndsTransaction(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		committed bool
		end       func(w http.ResponseWriter, r *http.Request)
	}{
		{"Commit", true, func(w http.ResponseWriter, r *http.Request) { endTx(r.Context(), "COMMIT") }},
		{"Rollback", false, func(w http.ResponseWriter, r *http.Request) { endTx(r.Context(), "ROLLBACK") }},
		{"ROLLBACK", false, func(w http.ResponseWriter, r *http.Request) {
			tx, _ := inTx(r.Context())
			tx.ExecContext(r.Context(), "ROLLBACK")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inEach(t, func(t *testing.T, d database) {
				s := newServer(t, d, options{Options: idem.Options{Join: true, Wait: -1}},
					func(w http.ResponseWriter, r *http.Request, s *server) {
						if _, ok := createOnly(w, r, s); ok {
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

// A route with a Runner of its own has leases over the store of the others: a
// repeat gets its stream.
func TestStreamWithLeasesBesideJoined(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		stream := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "of a task")
			http.NewResponseController(w).Flush()
		}
		s := newServer(t, d, joined, func(w http.ResponseWriter, r *http.Request, _ *server) { stream(w, r) })
		s.HandleFunc("POST /api/v1/tasks/{$}", middleware.Require(scope.TasksWrite),
			func(w http.ResponseWriter, r *http.Request) {
				if _, ok := inTx(r.Context()); ok {
					t.Error("got a transaction, want none")
				}
				stream(w, r)
			},
			middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{
				Runner: idem.NewRunner(s.store, idem.Options{}),
			}})
		leased := func() answer {
			r, w := newPost(t.Context(), "", s.token, "leased", ""), httptest.NewRecorder()
			r.URL.Path += "/"
			s.ServeHTTP(w, r)
			return answer{w.Code, w.Body.String(), w.Header()}
		}
		first := leased()
		first.mustBe(t, 200, "")
		leased().mustReplay(t, first)
		s.post("joined", "").mustBe(t, 200, "")
		s.post("joined", "").mustBe(t, 409, "idempotency_response_not_retained")
	})
}

// A request without a key has no transaction.
func TestNoKeyNoTransaction(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	inBoth(t, func(t *testing.T, d database) {
		other := d.on(d.open(t), idemsql.Options{})
		for name, take := range map[string]func(t *testing.T, c idem.Claim) (end func()){
			"joined": func(t *testing.T, c idem.Claim) func() {
				_, j := join(t, other, c, idem.Claimed)
				return func() {
					if err := j.Settle(t.Context(), finished("of the other")); err != nil {
						t.Error(err)
					}
				}
			},
			"with a lease": func(t *testing.T, c idem.Claim) func() {
				begin(t, other, c, idem.Claimed)
				return func() {
					if err := other.Settle(t.Context(), c.Key, c.Token, finished("of the other")); err != nil {
						t.Error(err)
					}
				}
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
				if n := inUse(db); n != 0 {
					t.Errorf("%d connections are in use afterwards, want 0", n)
				}
			})
		}
	})
}

// When the connection breaks as the reply is stored, nobody knows.
func TestKeepUnknown(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	broken := errors.New("broken")
	db := d.watched(t, func(_ context.Context, _ driver.Conn, statement string) error {
		if isKeep(statement) {
			return broken
		}
		return nil
	})
	store := idemsql.Postgres(db, idemsql.Options{})
	c := claim("key")
	_, j := join(t, store, c, idem.Claimed)
	if err := j.Settle(t.Context(), refusal); !errors.Is(err, idem.ErrCommitUnknown) || !errors.Is(err, broken) {
		t.Errorf("Settle: got error %v, want ErrCommitUnknown and the driver's", err)
	}
	_, j = join(t, store, again(c), idem.Claimed)
	j.Settle(t.Context(), outcomeFree)
}

// A second attempt that is refused replaces the unknown outcome of the first.
func TestKeepTakenOver(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		begin(t, store, c, idem.Claimed)
		if err := store.Settle(t.Context(), c.Key, c.Token, idem.Settlement{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
		second := again(c)
		second.Reexecute = true
		r, j := join(t, store, second, idem.Claimed)
		if r.Attempt != 2 {
			t.Errorf("got attempt %d, want 2", r.Attempt)
		}
		if err := j.Settle(t.Context(), refusal); err != nil {
			t.Error(err)
		}
		if r := begin(t, store, again(c), idem.Done); string(r.Payload) != "refused" {
			t.Errorf("got the payload %q, want the refusal", r.Payload)
		}
	})
}

// Two keys can share the number of a lock. The second is told that it is in
// flight until the first has ended, and then has a claim of its own.
func TestKeysThatShareALock(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		a, b := claim("a"), claim("b")
		copy(b.Key[:4], a.Key[:4])
		_, j := join(t, store, a, idem.Claimed)
		if r, _ := join(t, store, b, idem.InProgress); r.Fingerprint != ([32]byte{}) {
			t.Errorf("got the fingerprint %x, want none: it is another key's", r.Fingerprint)
		}
		begin(t, store, again(b), idem.InProgress)
		if err := j.Settle(t.Context(), finished("of a")); err != nil {
			t.Fatal(err)
		}
		_, j = join(t, store, again(b), idem.Claimed)
		if err := j.Settle(t.Context(), finished("of b")); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[idem.Claim]string{a: "of a", b: "of b"} {
			if r := begin(t, store, again(c), idem.Done); string(r.Payload) != want {
				t.Errorf("got the payload %q, want %q", r.Payload, want)
			}
		}
	})
}

// A reply may be empty.
func TestKeepEmpty(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.open(t), idemsql.Options{})
		c := claim("key")
		_, j := join(t, store, c, idem.Claimed)
		empty := refusal
		empty.Payload = nil
		if err := j.Settle(t.Context(), empty); err != nil {
			t.Fatal(err)
		}
		if r := begin(t, store, again(c), idem.Done); len(r.Payload) != 0 {
			t.Errorf("got the payload %q, want none", r.Payload)
		}
	})
}
