package keysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/scope"
	_ "modernc.org/sqlite"
)

// The driver logs each connection that breaks.
var _ = mysql.SetLogger(log.New(io.Discard, "", 0))

// A database is one that a single test has for itself, and that goes with it.
type database struct {
	name string
	open func(t testing.TB) *sql.DB // another pool of connections
	away func(t testing.TB) *sql.DB // a pool that reaches no database
	tool func(t testing.TB) *sql.DB // a pool that takes several statements at once
	wrap func(*sql.DB, keysql.Options) *keysql.Store
}

// inEach runs f as a subtest on a database of each kind, with its tables made,
// beside other tests.
func inEach(t *testing.T, f func(t *testing.T, d database)) {
	t.Parallel()
	onEach(t, f)
}

// inEachStore is inEach with a store on the database.
func inEachStore(t *testing.T, f func(t *testing.T, d database, store *keysql.Store)) {
	inEach(t, func(t *testing.T, d database) { f(t, d, d.store(t)) })
}

// onEach is inEach beside no other test.
func onEach(t *testing.T, f func(t *testing.T, d database)) {
	beside(t, "sqlite", func(t *testing.T) { f(t, sqliteFile(t)) })
	beside(t, "postgres", func(t *testing.T) { f(t, postgres(t)) })
	beside(t, "mariadb", func(t *testing.T) { f(t, mariadb(t)) })
}

// beside runs f as a subtest that others run beside.
func beside(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}

func (d database) store(t testing.TB) *keysql.Store { return d.wrap(d.open(t), keysql.Options{}) }

func (d database) migrated(t testing.TB) database {
	t.Helper()
	if err := d.store(t).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func sqliteFile(t testing.TB) database {
	return emptySQLite(sqltest.SQLite(t)).migrated(t)
}

func emptySQLite(file string) database {
	open := func(t testing.TB) *sql.DB {
		return opened(t, "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(120000)"+
			"&_pragma=synchronous(NORMAL)")
	}
	away := func(t testing.TB) *sql.DB { return opened(t, "file:"+filepath.Dir(file)) } // a directory is no database
	return database{name: "sqlite", open: open, tool: open, away: away, wrap: keysql.SQLite}
}

func opened(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	return closing(t, db, err)
}

// closing returns a pool that is closed after the test.
func closing(t testing.TB, db *sql.DB, err error) *sql.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func mysqlPool(t testing.TB, c *mysql.Config) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", c.FormatDSN())
	return closing(t, db, err)
}

func sqliteMemory(t testing.TB) *sql.DB {
	db := opened(t, "file::memory:")
	// Every connection would have a database of its own.
	db.SetMaxOpenConns(1)
	return db
}

func postgres(t testing.TB) database { return emptyPostgres(t).migrated(t) }

func emptyPostgres(t testing.TB) database {
	t.Helper()
	config := pgtest.Schema(t)
	pool := func(t testing.TB, c *pgx.ConnConfig) *sql.DB {
		db := closing(t, stdlib.OpenDB(*c), nil)
		db.SetMaxOpenConns(10)
		return db
	}
	return database{
		name: "postgres",
		open: func(t testing.TB) *sql.DB { return pool(t, config) },
		tool: func(t testing.TB) *sql.DB { return pool(t, config) },
		away: func(t testing.TB) *sql.DB {
			refused := config.Copy()
			refused.Host, refused.Port, refused.Fallbacks = "127.0.0.1", 1, nil
			return pool(t, refused)
		},
		wrap: keysql.Postgres,
	}
}

func mariadb(t testing.TB) database { return emptyMariaDB(t).migrated(t) }

// emptyMariaDB makes a database for one test. Its connections have what a
// server's may have: a character set and a time zone of their own.
func emptyMariaDB(t testing.TB) database {
	t.Helper()
	return mariadbWith(t, func(*mysql.Config) {})
}

func mariadbWith(t testing.TB, set func(*mysql.Config)) database {
	t.Helper()
	config := sqltest.MariaDB(t)
	set(config)
	pool := func(t testing.TB, c *mysql.Config) *sql.DB {
		t.Helper()
		db := mysqlPool(t, c)
		db.SetMaxOpenConns(10)
		return db
	}
	return database{
		name: "mariadb",
		open: func(t testing.TB) *sql.DB { return pool(t, config) },
		tool: func(t testing.TB) *sql.DB {
			several := config.Clone()
			several.MultiStatements = true
			return pool(t, several)
		},
		away: func(t testing.TB) *sql.DB {
			refused := config.Clone()
			refused.Addr = "127.0.0.1:1"
			return pool(t, refused)
		},
		wrap: keysql.MySQL,
	}
}

// execute runs a statement without parameters and returns how many rows it
// changed.
func execute(t testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, statement string) int64 {
	t.Helper()
	result, err := db.ExecContext(t.Context(), statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// newKey returns a key with an id, a digest and an issue token of its own.
func newKey(organization string) *keystore.Key {
	k := &keystore.Key{
		ID:           "key_" + rand.Text(),
		Organization: organization,
		Environment:  keystore.Production,
		Name:         "Nightly import",
		Hint:         "x7Q9",
		Scopes:       []scope.Name{scope.TasksRead, scope.TasksWrite},
		CreatedAt:    time.Now().UTC().Truncate(time.Microsecond),
		CreatedBy:    "user_1",
		IssueToken:   rand.Text(),
		Version:      1,
	}
	rand.Read(k.Digest[:])
	return k
}

// inserted returns n keys that the store holds.
func inserted(t testing.TB, s *keysql.Store, organization string, n int) []*keystore.Key {
	t.Helper()
	keys := make([]*keystore.Key, n)
	for i := range keys {
		keys[i] = newKey(organization)
		mustInsert(t, s, keys[i])
	}
	return keys
}

func mustInsert(t testing.TB, s *keysql.Store, k *keystore.Key) {
	t.Helper()
	if err := insert(t.Context(), s, k); err != nil {
		t.Fatal(err)
	}
}

func addUses(t testing.TB, s *keysql.Store, uses []keystore.Use) {
	t.Helper()
	if err := s.AddUses(t.Context(), uses); err != nil {
		t.Fatal(err)
	}
}

func erase(t testing.TB, s *keysql.Store, organization string) {
	t.Helper()
	if _, _, err := s.Erase(t.Context(), organization, erasure); err != nil {
		t.Fatal(err)
	}
}

// begun returns a transaction that is rolled back after the test.
func begun(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func update(t testing.TB, s *keysql.Store, k *keystore.Key) {
	t.Helper()
	if err := s.Update(t.Context(), k, newEntry(k)); err != nil {
		t.Fatal(err)
	}
}

func lookup(t testing.TB, s keystore.Store, k *keystore.Key) *keystore.Key {
	t.Helper()
	got, err := s.Lookup(t.Context(), k.Digest)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// eventually fails the test when condition does not come to hold.
func eventually(t testing.TB, otherwise string, condition func() bool) {
	t.Helper()
	tries := time.NewTicker(5 * time.Millisecond)
	defer tries.Stop()
	for limit := time.Now().Add(2 * time.Minute); !condition(); <-tries.C {
		if time.Now().After(limit) {
			t.Fatal(otherwise)
		}
	}
}

// seed inserts n keys of an organization with one statement. The i-th has the
// digest seeded(organization, i), and is older than the one after it.
func seed(t testing.TB, d database, organization string, n int) {
	t.Helper()
	execute(t, d.open(t), seeding(d, organization, n))
}

// seeding returns the statement of seed, which leaves the columns to their
// defaults that an earlier version did not have.
func seeding(d database, organization string, n int) string {
	by := map[string]struct{ digest, created, series string }{
		"mariadb": {"UNHEX(CONCAT('$hash', LPAD(HEX(i), 32, '0')))", "(UNIX_TIMESTAMP() - 86400) * 1000000 + i * 1000",
			"JSON_TABLE(CONCAT('[', REPEAT('0,', $n - 1), '0]'), '$[*]' COLUMNS (i FOR ORDINALITY)) AS series"},
		"postgres": {"decode('$hash' || lpad(to_hex(i), 32, '0'), 'hex')",
			"now() - interval '1 day' + i * interval '1 millisecond'", "generate_series(1, $n) AS series (i)"},
		"sqlite": {"unhex('$hash' || printf('%032x', i))", "(unixepoch() - 86400) * 1000000 + i * 1000",
			"(WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < $n) SELECT i FROM s)"},
	}[d.name]
	return strings.NewReplacer(
		"$n", fmt.Sprint(n), "$org", organization, "$hash", fmt.Sprintf("%x", digestPrefix(organization)),
	).Replace(`INSERT INTO sallyport_keys (id, digest, organization, environment, name, hint, scopes, created_at,
			created_by, suspended, issue_token, rotated_from, version)
		SELECT CONCAT('$org', '_key_', i), ` + by.digest + `, '$org', 'production', 'Nightly import', 'x7Q9',
			'["tasks:read","tasks:write"]', ` + by.created + `, 'user_1', false, CONCAT('token_', i), '', 1
		FROM ` + by.series)
}

func digestPrefix(organization string) []byte {
	d := keystore.DigestOf(organization)
	return d[:16]
}

func seeded(organization string, i int) (d keystore.Digest) {
	copy(d[:], digestPrefix(organization))
	binary.BigEndian.PutUint64(d[24:], uint64(i))
	return d
}
