package retrytest_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// host is the server under test: a handler and what it uses.
type host struct {
	db, other *sql.DB // two pools; in SQLite on another file than the replies, which one writer locks
	replies   *sql.DB // the pool of the replies
	insert    string
	charges   *planted.Charges
	charge    func(key string) error // a call of the service
	over      <-chan struct{}        // closed after the suite
}

type database struct {
	name   string
	insert string
	open   func(t testing.TB) *sql.DB
	store  func(*sql.DB, idemsql.Options) *idemsql.Store // nil: the replies are in Redis
	only   []string                                      // of the handlers; nil: all
}

// What is kept in leases meets Postgres where the replies are in Redis.
var onPostgres = []string{"db beside the transaction", "transaction of a second pool", "goroutine left behind",
	"charge before the row", "joined", "joined, reads beside and prepares", "leases, one row", "stream"}

const insert = "INSERT INTO parcels (id, target) VALUES ($1, 'Lisbon')"

var quiet = slog.New(slog.DiscardHandler)

// Where a database may, it does not wait for its disk: no test takes away the
// power.
var databases = []database{
	{"sqlite", insert, func(t testing.TB) *sql.DB {
		return opened(t, "sqlite", "file:"+sqltest.SQLite(t)+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)")
	}, idemsql.SQLite, nil},
	{"postgres", insert, postgres, idemsql.Postgres, onPostgres},
	{"redis", insert, postgres, nil, nil},
	{"mariadb", strings.Replace(insert, "$1", "?", 1), func(t testing.TB) *sql.DB {
		return opened(t, "mysql", sqltest.MariaDB(t).FormatDSN())
	}, idemsql.MySQL, []string{"joined", "leases, one row", "db beside the transaction"}},
}

func opened(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func postgres(t testing.TB) *sql.DB {
	config := pgtest.Schema(t)
	config.RuntimeParams["synchronous_commit"] = "off"
	return stdlib.OpenDB(*config)
}

// replies returns the store of the replies on a pool.
func (d database) replies(t testing.TB) func(*sql.DB) idem.Store {
	if d.store != nil {
		return func(db *sql.DB) idem.Store { return d.store(db, idemsql.Options{Logger: quiet}) }
	}
	client := redistest.Connect(t, redistest.Options(t))
	store := idemredis.New(client, idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
	return func(*sql.DB) idem.Store { return store }
}

// tries reports whether a handler is tried there: where its replies can be kept.
func (d database) tries(name string, p plan) bool {
	return (d.name != "redis" || !p.options.Join) && (d.only == nil || slices.Contains(d.only, name))
}

// suite is that of a server with one route on a database of its own.
func suite(t testing.TB, d database, o idem.Options, create handler) retrytest.Suite {
	t.Helper()
	db, store := d.open(t), d.replies(t)
	beside, all := db, []*sql.DB{db}
	if d.name == "sqlite" {
		beside = d.open(t)
		all = append(all, beside)
	}
	for _, db := range all {
		t.Cleanup(func() { db.Close() })
		db.SetMaxIdleConns(16) // each run has pools of its own, which give them back
		_, err := db.Exec("CREATE TABLE parcels (id varchar(99) PRIMARY KEY, target text)")
		if m, ok := store(db).(interface{ Migrate(context.Context) error }); ok {
			err = errors.Join(err, m.Migrate(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	service := &planted.Charges{}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := p.DB(db)
			pool.SetMaxOpenConns(8)
			call := p.Conn(nil)
			h := host{p.DB(beside), p.DB(beside), pool, d.insert, service, func(key string) error {
				return call(context.Background(), "charge", func() error { return service.Charge(key) }, nil)
			}, t.Context().Done()}
			return planted.Server(p, store(pool), o, func(w http.ResponseWriter, r *http.Request) { create.serve(h, w, r) })
		},
		Creates: planted.Parcels,
		Effects: map[string]func(context.Context) (int, error){
			"parcels": func(ctx context.Context) (n int, err error) {
				for _, db := range all {
					var some int
					if err := db.QueryRowContext(ctx, "SELECT count(*) FROM parcels").Scan(&some); err != nil {
						return 0, err
					}
					n += some
				}
				return n, nil
			},
			"charges": service.Count,
		},
	}
}

var joined, leases = idem.Options{Join: true}, idem.Options{}

// each tries the handlers on the databases, in subtests one after the other: what
// runs beside a suite makes it look whose the goroutines are, which takes long.
func each(t *testing.T, on []database, plans map[string]plan, try func(*testing.T, retrytest.Suite, string, plan)) {
	for _, d := range on {
		for name, p := range plans {
			if !d.tries(name, p) {
				continue
			}
			t.Run(d.name+"/"+name, func(t *testing.T) {
				try(t, suite(t, d, p.options, p.handler), name, p)
			})
		}
	}
}

// accused: each is found, at the line that is marked by its name.
func accused(t *testing.T, s retrytest.Suite, name string, p plan) {
	planted.MustAccuse(t, s, name, p.says)
}

func TestWrongHandlers(t *testing.T) { each(t, databases, wrongs, accused) }

// TestAttacks: wrong handlers of other kinds, on one database.
func TestAttacks(t *testing.T) { each(t, databases[:1], attacks, accused) }

// TestFailuresWithoutAFault: in SQLite what writes beside the transaction of the
// request waits for that, and fails.
func TestFailuresWithoutAFault(t *testing.T) {
	each(t, databases[:1], failing, func(t *testing.T, s retrytest.Suite, name string, p plan) {
		t.Parallel() // each waits for a lock
		accused(t, s, name, p)
	})
	each(t, databases[:1], waiting, func(t *testing.T, s retrytest.Suite, _ string, p plan) {
		if r := planted.Run(t, s); len(r.Errors) != 1 || !strings.Contains(r.Errors[0], p.says) {
			t.Errorf("got %q, want one error that says %q", r.Errors, p.says)
		}
	})
}

// TestRightHandlers: none is accused.
func TestRightHandlers(t *testing.T) {
	each(t, databases, rights, func(t *testing.T, s retrytest.Suite, _ string, _ plan) { s.Run(t) })
}
