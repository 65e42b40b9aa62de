package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// Handlers that hold a transaction and use the pool beside it get what they
// need, because half of it is left to them.
func TestHalfThePool(t *testing.T) {
	inBoth(t, func(t *testing.T, d database) {
		for _, test := range []struct{ pool, atOnce int }{{4, 2}, {5, 2}, {1, 1}} {
			t.Run(strconv.Itoa(test.pool), func(t *testing.T) {
				var running, most atomic.Int64
				var once sync.Once
				full := make(chan struct{})
				s := newServer(t, d.of(test.pool), joined, func(w http.ResponseWriter, r *http.Request, s *server) {
					n := running.Add(1)
					defer running.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					if int(n) == test.atOnce {
						once.Do(func() { close(full) })
					}
					<-full // as many at once as there may be
					if test.pool > 1 {
						if _, err := s.db.ExecContext(r.Context(), "SELECT pg_sleep(0.02)"); err != nil {
							t.Error(err)
						}
					}
					create(w, r, s)
				})
				var wg sync.WaitGroup
				for i := range 4 * test.pool {
					wg.Go(func() { s.post(t.Name()+strconv.Itoa(i), "title").mustBe(t, 201, "") })
				}
				wg.Wait()
				if got := int(most.Load()); got != test.atOnce {
					t.Errorf("of a pool of %d got %d joined requests at once, want %d", test.pool, got, test.atOnce)
				}
			})
		}
	})
}

// What is known, or held by a transaction of this store, is answered while all
// turns are taken.
func TestKnownOutOfTurn(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		store := d.on(d.of(2).open(t), idemsql.Options{})
		done := claim("done")
		_, j := join(t, store, done, idem.Claimed)
		mustEnd(t, j, finished("answer"))
		running := claim("running")
		_, j = join(t, store, running, idem.Claimed)
		for range 2 { // the key of the first is free for the second
			if r, _ := join(t, store, again(done), idem.Done); string(r.Payload) != "answer" || !r.Retained {
				t.Errorf("got the payload %q, retained %t, want the answer", r.Payload, r.Retained)
			}
		}
		if r, _ := join(t, store, again(running), idem.InProgress); r.Fingerprint != ([32]byte{}) || r.RetryAfter != 0 {
			t.Errorf("got %+v, want in progress and no more", r)
		}
		mustEnd(t, j, outcomeFree)
	})
}

// A Join that gets no turn says so, also when the handler before it takes longer
// than the database may. How long it waits is tested beside the queue.
func TestNoTurn(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		db, store := d.of(1).store(t)
		_, j := join(t, store, claim("running"), idem.Claimed)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := claim("another")
		if _, _, err := store.Join(ctx, c, time.Second/10); !errors.Is(err, idem.ErrNoTurn) {
			t.Errorf("got error %v, want ErrNoTurn", err)
		}
		mustEnd(t, j, outcomeFree)
		if _, j, err := store.Join(t.Context(), c, patience); err != nil {
			t.Errorf("with a turn: %v", err)
		} else {
			mustEnd(t, j, outcomeFree)
		}
		mustBeIdle(t, db)
	})
}

// A database that does not answer holds a Join for its own part of the time
// only, and is no want of turns. Meanwhile a second one of the key is told that
// it is in progress.
func TestHungDatabaseAtJoin(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		store := hungStore(t, d)
		c := claim("key")
		within(t, "two Joins", func() {
			errs := make(chan error, 2)
			for range 2 {
				go func() {
					r, _, err := store.Join(t.Context(), again(c), 100*time.Millisecond)
					if err == nil && r.State != idem.InProgress || errors.Is(err, idem.ErrNoTurn) {
						t.Errorf("got %v, error %v, want in progress or the error of the deadline", r.State, err)
					}
					errs <- err
				}()
			}
			if err := errors.Join(<-errs, <-errs); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want that of the deadline", err)
			}
		})
	})
}

// A Settle without an answer holds the only connection: a Join that waits for
// its turn gives up, though it cannot ask the database itself.
func TestHungDatabaseAtSettle(t *testing.T) {
	inServers(t, func(t *testing.T, d database) {
		faulty, next := d.faulty()
		db := faulty.of(1).open(t)
		store := d.on(db, idemsql.Options{})
		_, j := join(t, store, claim("first"), idem.Claimed)
		next.set(sqltest.Lose)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		settled := make(chan error)
		go func() { settled <- j.Settle(ctx, finished("answer")) }()
		for next.isToCome() {
			runtime.Gosched()
		}
		within(t, "the second Join", func() {
			_, _, err := store.Join(t.Context(), claim("second"), 100*time.Millisecond)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrNoTurn) {
				t.Errorf("got error %v, want that the database does not answer", err)
			}
		})
		cancel()
		if err := <-settled; !errors.Is(err, idem.ErrCommitUnknown) {
			t.Errorf("Settle: got error %v, want ErrCommitUnknown", err)
		}
		mustBeIdle(t, db)
	})
}

// A handler that waits for what it holds itself gets an error in bounded time,
// and the operator a word about it.
func TestHandlerWaitsForItself(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		var inside error
		o := options{Options: joined.Options, handler: 3 * time.Second}
		s := newServer(t, d.of(1), o, func(w http.ResponseWriter, r *http.Request, s *server) {
			_, inside = insert(r.Context(), s.db, "title")
			create(w, r, s)
		})
		within(t, "the request", func() { s.post("key", "title").mustBe(t, 500, "") })
		if !errors.Is(inside, context.DeadlineExceeded) {
			t.Errorf("the handler's own statement: got error %v, want its deadline", inside)
		}
		s.log.mustSay(t, "may be waiting for itself")
		serverOn(t, d, s.db, idemsql.Options{}, joined, create).post("key", "title").mustBe(t, 201, "")
		mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
	})
}

// A handler is slow, and not said to wait for itself, while nothing has begun to
// wait for a connection, or the pool has one left.
func TestSlowHandlerWaitsForNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name        string
		pool        int
		held, waits bool // a connection besides, and a wait for another one
		released    bool // the one that was held
		said        bool
	}{
		{"a full pool", 1, false, false, false, false},
		{"a wait", 1, false, true, false, true},
		{"a full pool of two", 2, true, false, false, false},
		{"a wait for one of two", 2, true, true, false, true},
		{"a wait that is over", 2, true, true, true, false},
	} {
		file := sqliteFile(t)
		synctest.Test(t, func(t *testing.T) {
			db := file.open(t)
			defer db.Close()
			db.SetMaxOpenConns(row.pool)
			var l logged
			store := idemsql.SQLite(db, idemsql.Options{Logger: slog.New(slog.NewTextHandler(&l, nil))})
			_, j := join(t, store, claim("key"), idem.Claimed)
			ctx, cancel := context.WithCancel(t.Context())
			use := func() (conn *sql.Conn) {
				conn, _ = db.Conn(ctx)
				return conn
			}
			var held *sql.Conn
			if row.held {
				held = use()
			}
			if row.waits {
				go func() {
					if conn := use(); conn != nil {
						conn.Close()
					}
				}()
				synctest.Wait()
			}
			if row.released {
				held.Close()
			}
			time.Sleep(2 * time.Second)
			l.mu.Lock()
			text := l.text.String()
			l.mu.Unlock()
			if said := strings.Contains(text, "may be waiting for itself"); said != row.said {
				t.Errorf("%s: the log says %q", row.name, text)
			}
			cancel()
			if row.held && !row.released {
				held.Close()
			}
			mustEnd(t, j, outcomeFree)
		})
	}
}

// With connections to spare SQLite's busy_timeout ends the wait.
func TestHandlerWritesBesideItsTransaction(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	db, err := sql.Open("sqlite", sqliteDSN(d.file, 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var inside error
	s := serverOn(t, d, db, idemsql.Options{}, joined, func(w http.ResponseWriter, r *http.Request, s *server) {
		_, inside = insert(r.Context(), s.db, "beside")
		create(w, r, s)
	})
	s.post("key", "title").mustBe(t, 201, "")
	if inside == nil {
		t.Error("a write beside the transaction succeeded, want SQLITE_BUSY")
	}
	mustCount(t, s.db, "SELECT count(*) FROM tasks", 1)
}
