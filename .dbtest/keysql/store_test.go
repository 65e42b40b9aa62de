package keysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/keystore/keystoretest"
	"github.com/sallyport-go/sallyport/scope"
)

func TestSuite(t *testing.T) {
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		d.suite(store).Run(t)
	})
}

func (d database) suite(store *keysql.Store) keystoretest.Suite {
	return keystoretest.Suite{
		New:         func(*testing.T) issuing.Store { return store },
		Unavailable: func(t *testing.T) issuing.Store { return d.wrap(d.away(t), keysql.Options{}) },
	}
}

func TestSuiteOnOneConnection(t *testing.T) {
	t.Parallel()
	store := keysql.SQLite(sqliteMemory(t), keysql.Options{})
	migrate(t, store)
	database{wrap: keysql.SQLite, away: func(t testing.TB) *sql.DB {
		db := sqliteMemory(t)
		db.Close()
		return db
	}}.suite(store).Run(t)
}

// A program that ends and starts again finds every key as it was, and a
// position in the feed is still one.
func TestRestart(t *testing.T) {
	t.Parallel()
	d := emptySQLite(filepath.Join(t.TempDir(), "keys.db"))
	db := d.open(t)
	store := d.wrap(db, keysql.Options{})
	migrate(t, store)
	keys := inserted(t, store, "acme", 20)
	start := present(t, store)
	keys[3].RevokedAt, keys[3].ExpiresAt, keys[3].Scopes = time.Now(), time.Now().Add(time.Hour), nil
	update(t, store, keys[3])
	addUses(t, store, uses(keys[:7], time.Now()))
	before, err := store.List(t.Context(), "acme", issuing.Query{})
	if err != nil || len(before.Keys) != len(keys) {
		t.Fatalf("List returned %d keys and %v, want %d", len(before.Keys), err, len(keys))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	store = d.store(t)
	migrate(t, store)
	after, err := store.List(t.Context(), "acme", issuing.Query{})
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("List after a restart returned %d keys and %v, not what it returned before", len(after.Keys), err)
	}
	changed, _ := changes(t, store, start)
	wantNamed(t, changed, keys[3], "a change from before the restart")
}

var errBroken = errors.New("the connection broke")

// breaking returns a pool of one connection that breaks where next says so: it is
// asked before each statement, each row and the end of them, and each COMMIT.
func (d database) breaking(t testing.TB, next func(what string) error) *sql.DB {
	t.Helper()
	db := sqltest.Watch(t, d.open(t), func(ctx context.Context, c driver.Conn, what string) error {
		if what == "ROLLBACK" {
			return nil
		}
		err := next(what)
		if err != nil && what == "COMMIT" {
			c.(driver.ExecerContext).ExecContext(ctx, "ROLLBACK", nil)
		}
		return err
	})
	db.SetMaxOpenConns(1)
	return db
}

// Migrate returns the error of each of its statements, and the next one finishes
// what it began, from nothing and from an earlier version. In MySQL, where each
// statement stands by itself, it finds those before it done and not recorded.
func TestMigrateThatBreaksOff(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store, later := d.store(t), d.later(t)
		breakOff := func(least int, migrate func(db *sql.DB) error) {
			for at := 1; ; at++ {
				statements, failed := 0, ""
				db := d.breaking(t, func(what string) error {
					// The lock of MySQL ends with the connection too.
					if what == sqltest.Row || strings.HasPrefix(what, "DO RELEASE_LOCK") {
						return nil
					}
					if statements++; statements == at {
						failed = what
						return errBroken
					}
					return nil
				})
				err := migrate(db)
				db.Close() // of so many
				if failed == "" {
					if err != nil || at < least {
						t.Errorf("Migrate returned %v after %d statements, want nil after %d or more", err, statements, least)
					}
					return
				}
				if !errors.Is(err, errBroken) {
					t.Errorf("Migrate, when %q failed, returned %v, want its error", failed, err)
				}
			}
		}
		wantFeed := func() *keystore.Key {
			start := present(t, store)
			k := inserted(t, store, "acme", 1)[0]
			changed, next := changes(t, store, start)
			wantNamed(t, changed, k, "a new key after the migration")
			update(t, store, k)
			changed, _ = changes(t, store, next)
			wantNamed(t, changed, k, "a change after the migration")
			return k
		}
		breakOff(6, func(db *sql.DB) error { return d.wrap(db, keysql.Options{}).Migrate(t.Context()) })
		before := wantFeed()
		breakOff(6, func(db *sql.DB) error { return later.Migrate(t.Context(), db) })
		wantFeed()
		lookup(t, store, before)
		if d.name == "mariadb" { // all statements are done, and none is recorded
			execute(t, d.open(t), "UPDATE sallyport_keys_schema SET version = 0")
			if err := later.Migrate(t.Context(), d.open(t)); err != nil {
				t.Error(err)
			}
			wantFeed()
		}
	})
}

// calls returns each method with arguments that fit k.
func calls(s *keysql.Store, k *keystore.Key) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Lookup": func(ctx context.Context) error { _, err := s.Lookup(ctx, k.Digest); return err },
		"Find":   func(ctx context.Context) error { _, err := s.Find(ctx, k.Organization, k.ID); return err },
		"FindIssued": func(ctx context.Context) error {
			_, err := s.FindIssued(ctx, k.Organization, k.CreatedBy, k.IssueToken)
			return err
		},
		"List":    func(ctx context.Context) error { _, err := s.List(ctx, k.Organization, issuing.Query{}); return err },
		"Insert":  func(ctx context.Context) error { return insert(ctx, s, newKey(k.Organization)) },
		"Update":  func(ctx context.Context) error { return s.Update(ctx, k, newEntry(k)) },
		"AddUses": func(ctx context.Context) error { return s.AddUses(ctx, uses([]*keystore.Key{k}, time.Now())) },
		"Changes": func(ctx context.Context) error { _, _, err := s.Changes(ctx, ""); return err },
		"Migrate": s.Migrate,
	}
}

// isAnswer reports whether err says something about a key.
func isAnswer(err error) bool {
	return errors.Is(err, keystore.ErrNotFound) || errors.Is(err, issuing.ErrExists) || errors.Is(err, issuing.ErrConflict)
}

// The deadline holds while somebody else has locked everything.
func TestDeadline(t *testing.T) {
	lock := map[string]string{
		"mariadb":  "LOCK TABLES sallyport_keys WRITE, sallyport_keys_changes WRITE, sallyport_keys_schema WRITE",
		"postgres": "LOCK TABLE sallyport_keys, sallyport_keys_schema IN ACCESS EXCLUSIVE MODE",
		"sqlite":   "DELETE FROM sallyport_keys WHERE false",
	}
	reads := map[string]bool{"Lookup": true, "Find": true, "FindIssued": true, "List": true, "Changes": true}
	inEachStore(t, func(t *testing.T, d database, store *keysql.Store) {
		k := inserted(t, store, "acme", 1)[0]
		db := d.open(t)
		tx := begun(t, db)
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
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		d := postgres(t)
		testBackendsKilled(t, d, func(admin *sql.DB) {
			execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "+
				"current_setting('application_name') AND pid <> pg_backend_pid()")
		})
	})
	t.Run("mariadb", func(t *testing.T) {
		d := mariadb(t)
		testBackendsKilled(t, d, func(admin *sql.DB) {
			for _, id := range values(t, admin,
				"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()") {
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
		eventually(t, "no lookup succeeds any more after connections were ended",
			func() bool { return answered.Load() > before+10 })
	}
	close(stop)
	running.Wait()
	t.Logf("%d lookups were answered and %d failed", answered.Load(), failed.Load())
}

// used issues keys, rotates, revokes and uses them, and returns the tokens.
func used(t testing.TB, s *keysql.Store) (tokens []string) {
	t.Helper()
	ctx := t.Context()
	issuer := issuing.New(s, issuing.Options{})
	for _, environment := range []keystore.Environment{keystore.Production, keystore.Sandbox} {
		secret, k, err := issuer.Issue(ctx, keystore.Key{
			Organization: "acme", Name: "Nightly import", Environment: environment,
			Scopes: []scope.Name{scope.TasksRead}, IssueToken: "nonce" + string(environment),
		})
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := issuer.By("user_1", "").Rotate(ctx, issuing.Rotation{Organization: "acme", ID: k.ID,
			Overlap: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := issuer.Revoke(ctx, "acme", k.ID); err != nil {
			t.Fatal(err)
		}
		addUses(t, s, uses([]*keystore.Key{k}, time.Now()))
		tokens = append(tokens, secret.Reveal(), next.Reveal())
	}
	return tokens
}

// wantNoPart reports each stretch of 8 characters of a token's secret part
// that the dump has.
func wantNoPart(t testing.TB, where string, dump []byte, tokens []string) {
	t.Helper()
	for _, token := range tokens {
		secret := token[len("svc_live_"):]
		for i := range len(secret) - 7 {
			if bytes.Contains(dump, []byte(secret[i:i+8])) {
				t.Errorf("%s holds %q of the token %s", where, secret[i:i+8], token)
			}
		}
		if !bytes.Contains(dump, []byte(token[len(token)-4:])) {
			t.Errorf("%s does not even hold the hint of a key: this test looks in the wrong place", where)
		}
	}
}

func TestNoSecretInColumns(t *testing.T) {
	tables := map[string]string{
		"mariadb": "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
		"sqlite":  "SELECT name FROM sqlite_schema WHERE type = 'table'",
		"postgres": "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'v', 'm') AND relnamespace = " +
			"current_schema()::regnamespace",
	}
	inEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		tokens := used(t, d.wrap(db, keysql.Options{}))
		var dump bytes.Buffer
		for _, name := range values(t, db, tables[d.name]) {
			for _, value := range values(t, db, "SELECT * FROM "+string(name)) {
				fmt.Fprintf(&dump, "%s %x\n", value, value)
			}
		}
		wantNoPart(t, "a column", dump.Bytes(), tokens)
	})
}

// values returns every value of every row.
func values(t testing.TB, db *sql.DB, query string, args ...any) (all [][]byte) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([][]byte, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestNoSecretInFile(t *testing.T) {
	t.Parallel()
	d := sqliteFile(t)
	db := d.open(t)
	tokens := used(t, d.wrap(db, keysql.Options{}))
	file := values(t, db, "SELECT file FROM pragma_database_list WHERE name = 'main'")[0]
	parts, err := filepath.Glob(string(file) + "*")
	if err != nil {
		t.Fatal(err)
	}
	var dump []byte
	for _, part := range parts {
		content, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		dump = append(dump, content...)
	}
	wantNoPart(t, fmt.Sprint(parts), dump, tokens)
}
