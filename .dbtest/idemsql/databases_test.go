package idemsql_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"io"
	"log"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// A database is one that a single test has for itself, and that goes with it.
// It has a table of tasks beside what idemsql keeps.
type database struct {
	name string
	file string          // of SQLite
	conf *pgx.ConnConfig // of Postgres
	pgx  bool            // the store is that of idempgx
	my   *mysql.Config   // of MariaDB
	size int             // of a pool; 0 is ten connections
}

// store is what both packages have.
type store interface {
	idem.Eraser
	idem.Joiner
	idem.Counter
	Migrate(context.Context) error
	Check(context.Context) error
	Schema() []string
	HasTable(context.Context) (bool, error)
	Run(context.Context) error
	Swept() time.Time
}

// The driver logs each connection that breaks.
var _ = mysql.SetLogger(log.New(io.Discard, "", 0))

// kinds are how to get a database of each. That of pgx has the store of idempgx.
var kinds = map[string]func(testing.TB) database{
	"sqlite": sqliteFile, "postgres": postgres, "mariadb": mariadb,
	"pgx": func(t testing.TB) database { return postgres(t).native() },
}

// in runs f as a subtest on a database of each of these kinds. The test and its
// subtests run beside others.
func in(t *testing.T, f func(t *testing.T, d database), names ...string) {
	t.Parallel()
	for _, name := range names {
		beside(t, name, func(t *testing.T) { f(t, kinds[name](t)) })
	}
}

func inEach(t *testing.T, f func(t *testing.T, d database)) {
	in(t, f, "sqlite", "postgres", "pgx", "mariadb")
}

// inServers has those with several writers, and inBoth Postgres through
// database/sql and through pgx.
func inServers(t *testing.T, f func(t *testing.T, d database)) {
	in(t, f, "postgres", "pgx", "mariadb")
}

func inBoth(t *testing.T, f func(t *testing.T, d database)) { in(t, f, "postgres", "pgx") }

// beside runs f as a subtest that others run beside.
func beside(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}

func sqliteFile(t testing.TB) database {
	return database{name: "sqlite", file: sqltest.SQLite(t)}.migrated(t)
}

// sqliteDSN opens a file the way a server would.
func sqliteDSN(file string, busy time.Duration) string {
	return "file:" + file + "?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(" +
		strconv.FormatInt(busy.Milliseconds(), 10) + ")"
}

func postgres(t testing.TB) database { return inPostgres(pgtest.Schema(t)).migrated(t) }
func mariadb(t testing.TB) database  { return inMariaDB(sqltest.MariaDB(t)).migrated(t) }

func inPostgres(c *pgx.ConnConfig) database { return database{name: "postgres", conf: c} }
func inMariaDB(c *mysql.Config) database    { return database{name: "mariadb", my: c} }

// native returns a database of Postgres as idempgx has it.
func (d database) native() database {
	d.name, d.pgx = "pgx", true
	return d
}

// mode returns the database as pgx asks it in a mode.
func (d database) mode(m pgx.QueryExecMode) database {
	d.conf = d.conf.Copy()
	d.conf.DefaultQueryExecMode = m
	return d
}

// poolerModes are those that are safe behind a pooler. They do not ask the
// server for the types of parameters, or not each time.
var poolerModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// of returns the database with pools of so many connections.
func (d database) of(size int) database {
	d.size = size
	return d
}

// with returns the database as sessions with a setting of their own see it.
func (d database) with(name, value string) database {
	if d.my != nil {
		d.my = d.my.Clone()
		if d.my.Params == nil {
			d.my.Params = make(map[string]string)
		}
		d.my.Params[name] = value
		return d
	}
	d.conf = d.conf.Copy()
	d.conf.RuntimeParams[name] = value
	return d
}

// open returns another pool of ten connections.
func (d database) open(t testing.TB) *sql.DB {
	t.Helper()
	switch {
	case d.conf != nil:
		servers.Postgres.Met(t)
	case d.my != nil:
		servers.MariaDB.Met(t)
	default:
		servers.SQLite.Met(t)
	}
	db, err := d.pool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(db) })
	return db
}

func (d database) pool() (db *sql.DB, err error) {
	switch {
	case d.pgx:
		return d.pgxPool(nil)
	case d.conf != nil:
		db = stdlib.OpenDB(*d.conf)
	case d.my != nil:
		db, err = sql.Open("mysql", d.my.FormatDSN())
	default:
		db, err = sql.Open("sqlite", sqliteDSN(d.file, patience))
	}
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(cmp.Or(d.size, 10))
	return db, nil
}

// pools has the pool of pgx behind an *sql.DB, where there is one.
var pools sync.Map

func (d database) pgxPool(tracer pgx.QueryTracer) (*sql.DB, error) {
	conf, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	conf.ConnConfig = d.conf.Copy()
	conf.ConnConfig.Tracer, conf.MaxConns = tracer, int32(cmp.Or(d.size, 10))
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	pools.Store(db, pool)
	return db, nil
}

// inUse returns how many connections of a pool are in use.
func inUse(db *sql.DB) int {
	if pool, ok := pools.Load(db); ok {
		return int(pool.(*pgxpool.Pool).Stat().AcquiredConns())
	}
	return db.Stats().InUse
}

// shut closes a pool. One of pgx waits for its connections, and what a test that
// failed or panicked holds does not come back: the wait must not hide its words.
func shut(db *sql.DB) {
	db.Close()
	if pool, ok := pools.Load(db); ok {
		closed := make(chan struct{})
		go func() { defer close(closed); pool.(*pgxpool.Pool).Close() }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
		}
	}
}

// on returns a store on a pool of the database.
func (d database) on(db *sql.DB, o idemsql.Options) store {
	switch {
	case d.pgx:
		pool, _ := pools.Load(db)
		return idempgx.New(pool.(*pgxpool.Pool), o)
	case d.conf != nil:
		return idemsql.Postgres(db, o)
	case d.my != nil:
		return idemsql.MySQL(db, o)
	}
	return idemsql.SQLite(db, o)
}

// store returns a store with the defaults, and its pool.
func (d database) store(t testing.TB) (*sql.DB, store) {
	t.Helper()
	db := d.open(t)
	return db, d.on(db, idemsql.Options{})
}

func (d database) migrated(t testing.TB) database {
	t.Helper()
	db := d.open(t)
	if err := d.on(db, idemsql.Options{}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	execute(t, db, "CREATE TABLE tasks (id varchar(99) PRIMARY KEY, title text NOT NULL, made_for text, attempt integer)")
	return d
}

// advance lets the database's time go on for everything that the store has.
func (d database) advance(t testing.TB, db *sql.DB, by time.Duration) {
	t.Helper()
	step := strconv.FormatInt(by.Microseconds(), 10)
	if d.conf != nil {
		step += " * interval '1 microsecond'"
	}
	statement := "UPDATE sallyport_idem SET lease_ends = lease_ends - " + step + ", expires_at = expires_at - " + step +
		", began = began - " + strconv.FormatInt(by.Microseconds(), 10)
	if d.conf != nil {
		statement += ", sweep_at = sweep_at - " + step
	}
	_, err := db.ExecContext(t.Context(), statement)
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); { // Run has changed a row meanwhile
		_, err = db.ExecContext(t.Context(), statement)
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// execer is a pool, a connection or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// execute runs a statement without parameters and returns how many rows it
// changed.
func execute(t testing.TB, db execer, statement string) int64 {
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

// inTx returns the transaction of a joined request.
func inTx(ctx context.Context) (execer, bool) {
	if tx, ok := idempgx.Tx(ctx); ok {
		return pgxExecer{tx}, true
	}
	tx, ok := idemsql.Tx(ctx)
	return tx, ok
}

type pgxExecer struct{ pgx.Tx }

func (e pgxExecer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := e.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// countIn returns the one number that a query asks for in the transaction of a
// joined request.
func countIn(ctx context.Context, query string) (n int, err error) {
	if tx, ok := idempgx.Tx(ctx); ok {
		err = tx.QueryRow(ctx, query).Scan(&n)
		return n, err
	}
	tx, _ := idemsql.Tx(ctx)
	err = tx.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// count returns the one number that a query asks for.
func count(t testing.TB, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func mustCount(t testing.TB, db *sql.DB, query string, want int) {
	t.Helper()
	if got := count(t, db, query); got != want {
		t.Errorf("%s: got %d, want %d", query, got, want)
	}
}

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	rand.Read(t[:])
	return t
}

// claim returns a claim of a key by a token of its own.
func claim(key string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey("organization", key), Token: newToken(), Fingerprint: [32]byte{1},
		Lease: time.Minute, Retention: time.Hour,
	}
}

// ofAcme returns a claim of a key that belongs to the organization acme.
func ofAcme(key string) idem.Claim {
	c := claim(key)
	prefix := idem.NewKey("the owner of a claim", "acme")
	copy(c.Token[:], prefix[:8])
	return c
}

// again returns c by another token.
func again(c idem.Claim) idem.Claim {
	c.Token = newToken()
	return c
}

func finished(payload string) idem.Settlement {
	return idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(payload), Retention: time.Hour}
}

var outcomeFree = idem.Settlement{Outcome: idem.OutcomeFree, Retention: time.Hour}

// mustEnd settles a transaction or an execution, and mustSettle a claim.
func mustEnd(t testing.TB, j interface {
	Settle(context.Context, idem.Settlement) error
}, s idem.Settlement) {
	t.Helper()
	if err := j.Settle(t.Context(), s); err != nil {
		t.Errorf("Settle: %v", err)
	}
}

func mustSettle(t testing.TB, s idem.Store, c idem.Claim, as idem.Settlement) {
	t.Helper()
	if err := s.Settle(t.Context(), c.Key, c.Token, as); err != nil {
		t.Errorf("Settle: %v", err)
	}
}

func begin(t testing.TB, s idem.Store, c idem.Claim, want idem.State) idem.Record {
	t.Helper()
	r, err := s.Begin(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Begin: got %v, error %v, want %v", r.State, err, want)
	}
	return r
}

func join(t testing.TB, s idem.Joiner, c idem.Claim, want idem.State) (idem.Record, idem.Transaction) {
	t.Helper()
	r, j, err := s.Join(t.Context(), c, 0)
	if err != nil || r.State != want || (j != nil) != (want == idem.Claimed) {
		t.Fatalf("Join: got %v, a transaction %t, error %v, want %v", r.State, j != nil, err, want)
	}
	return r, j
}

// warm claims so often that a store knows where its table is, and looks no more
// at the roles of transactions.
func warm(t testing.TB, s store) {
	t.Helper()
	begin(t, s, claim("leased"), idem.Claimed)
	for i := range 100 {
		_, j := join(t, s, claim("warm "+strconv.Itoa(i)), idem.Claimed)
		mustEnd(t, j, finished("answer"))
	}
}
