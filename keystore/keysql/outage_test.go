package keysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// calls returns each method with arguments that fit k.
func calls(s *keysql.Store, k *keystore.Key) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Lookup": func(ctx context.Context) error { _, err := s.Lookup(ctx, k.Digest); return err },
		"Find":   func(ctx context.Context) error { _, err := s.Find(ctx, k.Organization, k.ID); return err },
		"FindIssued": func(ctx context.Context) error {
			_, err := s.FindIssued(ctx, k.Organization, k.CreatedBy, k.IssueToken)
			return err
		},
		"List":    func(ctx context.Context) error { _, err := s.List(ctx, k.Organization, keystore.Page{}); return err },
		"Insert":  func(ctx context.Context) error { return s.Insert(ctx, newKey(k.Organization)) },
		"Update":  func(ctx context.Context) error { return s.Update(ctx, k) },
		"Touch":   func(ctx context.Context) error { return s.Touch(ctx, uses([]*keystore.Key{k}, time.Now())) },
		"Changes": func(ctx context.Context) error { _, _, err := s.Changes(ctx, ""); return err },
		"Migrate": func(ctx context.Context) error { return s.WithStep("CREATE TABLE later (number integer)").Migrate(ctx) },
	}
}

// isAnswer reports whether err says something about a key.
func isAnswer(err error) bool {
	return errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrExists) || errors.Is(err, keystore.ErrConflict)
}

func TestAway(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		closed := d.open(t)
		closed.Close()
		for kind, db := range map[string]*sql.DB{"closed": closed, "not there": d.away(t)} {
			for method, call := range calls(d.wrap(db, keysql.Options{}), newKey("acme")) {
				if err := call(t.Context()); err == nil || isAnswer(err) || errors.Is(err, sql.ErrNoRows) {
					t.Errorf("%s of a database that is %s returned %v, want an error that says nothing about the key", method, kind, err)
				}
			}
		}
	})
}

// The deadline holds while somebody else has locked everything.
func TestDeadline(t *testing.T) {
	lock := map[string]string{
		"mariadb":  "LOCK TABLES sallyport_keys WRITE, sallyport_keys_changes WRITE, sallyport_keys_schema WRITE",
		"postgres": "LOCK TABLE sallyport_keys, sallyport_keys_schema IN ACCESS EXCLUSIVE MODE",
		"sqlite":   "DELETE FROM sallyport_keys WHERE false",
	}
	reads := map[string]bool{"Lookup": true, "Find": true, "FindIssued": true, "List": true, "Changes": true}
	inEach(t, func(t *testing.T, d database) {
		store := d.store(t)
		k := inserted(t, store, "acme", 1)[0]
		db := d.open(t)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		execute(t, tx, lock[d.name])
		for method, call := range calls(store, k) {
			if method == "Migrate" && d.name == "sqlite" {
				continue // waits as long as busy_timeout says
			}
			// In SQLite a writer locks no reader out.
			if d.name == "sqlite" && reads[method] {
				if err := call(t.Context()); err != nil {
					t.Errorf("%s beside a writer returned %v, want an answer", method, err)
				}
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := call(ctx) // which would not return, if it did not heed ctx
			cancel()
			// Of Migrate the driver may say in its own words that time is up.
			if err == nil || method != "Migrate" && !errors.Is(err, context.DeadlineExceeded) || isAnswer(err) {
				t.Errorf("%s with a deadline of 50ms, while all is locked, returned %v, want the deadline's error", method, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		db.Close() // MariaDB's locks belong to the session
		lookup(t, store, k)
	})
}

// Backends that the server ends, as it does when it is restarted, cost errors
// or nothing. They never make a key unknown, and the store needs no help to
// go on.
func TestBackendsKilled(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		d := postgres(t)
		testBackendsKilled(t, d, func(admin *sql.DB) {
			execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()")
		})
	})
	t.Run("mariadb", func(t *testing.T) {
		d := mariadb(t)
		testBackendsKilled(t, d, func(admin *sql.DB) {
			for _, id := range values(t, admin, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()") {
				admin.ExecContext(t.Context(), "KILL "+string(id)) // an error when it has gone by itself
			}
		})
	})
}

func testBackendsKilled(t *testing.T, d database, end func(admin *sql.DB)) {
	store, admin := d.store(t), d.open(t)
	k := inserted(t, store, "acme", 1)[0]
	stop := make(chan struct{})
	var running sync.WaitGroup
	var answered, failed atomic.Int64
	for range 6 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got, err := store.Lookup(t.Context(), k.Digest)
				switch {
				case err == nil && got.ID == k.ID:
					answered.Add(1)
				case isAnswer(err) || errors.Is(err, sql.ErrNoRows):
					t.Errorf("Lookup while its connection was ended returned %v", err)
				default:
					failed.Add(1)
				}
			}
		})
	}
	for range 20 {
		before := answered.Load()
		end(admin)
		eventually(t, "no lookup succeeds any more after connections were ended", func() bool { return answered.Load() > before+10 })
	}
	close(stop)
	running.Wait()
	t.Logf("%d lookups were answered and %d failed", answered.Load(), failed.Load())
}

// A driver may report a statement that was interrupted as one that found
// nothing. A request whose client has gone must not make a key unknown.
func TestInterruptedIsNotUnknown(t *testing.T) {
	db := sql.OpenDB(interrupted{})
	defer db.Close()
	for method, call := range calls(keysql.SQLite(db, keysql.Options{}), newKey("acme")) {
		if method != "Lookup" && method != "Find" && method != "FindIssued" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || isAnswer(err) {
			t.Errorf("%s that was interrupted returned %v, want %v", method, err, context.DeadlineExceeded)
		}
		cancel()
		if err := call(t.Context()); err != keystore.ErrNotFound {
			t.Errorf("%s that found nothing returned %v, want %v", method, err, keystore.ErrNotFound)
		}
	}
}

// interrupted is a driver whose queries take until the context's deadline, if
// it has one, and find nothing.
type interrupted struct{}

func (i interrupted) Connect(context.Context) (driver.Conn, error) { return i, nil }
func (i interrupted) Driver() driver.Driver                        { return nil }
func (i interrupted) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (i interrupted) Close() error                                 { return nil }
func (i interrupted) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }

func (i interrupted) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	if _, ok := ctx.Deadline(); ok {
		<-ctx.Done()
	}
	return i, nil
}

func (i interrupted) Columns() []string         { return make([]string, 16) }
func (i interrupted) Next([]driver.Value) error { return io.EOF }
