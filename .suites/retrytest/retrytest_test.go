package retrytest_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/.ci/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// host is the server under test: a handler and what it uses.
type host struct {
	db, other *sql.DB // two pools; in SQLite on another file than the replies, which one writer locks
	charges   *charges
	charge    func(key string) error // a call of the service
}

// charges are what a payment service has done, by the key that it was sent.
type charges struct {
	mu  sync.Mutex
	all []string
}

func (c *charges) charge(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.all {
		if key != "" && known == key {
			return nil
		}
	}
	c.all = append(c.all, key)
	return nil
}

func (c *charges) count(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all), nil
}

type handler func(h host, w http.ResponseWriter, r *http.Request)

const insert = "INSERT INTO parcels (id, target) VALUES ($1, 'Lisbon')"

type database struct {
	name  string
	open  func(t testing.TB) *sql.DB
	store func(t testing.TB) func(*sql.DB) idem.Store
}

var quiet = slog.New(slog.DiscardHandler)

var databases = []database{
	{"sqlite", func(t testing.TB) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+sqltest.SQLite(t)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		return db
	}, func(testing.TB) func(*sql.DB) idem.Store {
		return func(db *sql.DB) idem.Store { return idemsql.SQLite(db, idemsql.Options{Logger: quiet}) }
	}},
	{"postgres", postgres, func(testing.TB) func(*sql.DB) idem.Store {
		return func(db *sql.DB) idem.Store { return idemsql.Postgres(db, idemsql.Options{Logger: quiet}) }
	}},
	{"redis", postgres, func(t testing.TB) func(*sql.DB) idem.Store {
		client := redistest.Connect(t, redistest.Options(t))
		store := idemredis.New(client, idemredis.Options{Prefix: redistest.OwnPrefix(t, client)})
		return func(*sql.DB) idem.Store { return store }
	}},
}

func postgres(t testing.TB) *sql.DB { return stdlib.OpenDB(*sqltest.Postgres(t)) }

// has reports whether the replies can be kept there as the options ask.
func (d database) has(o idem.Options) bool { return d.name != "redis" || !o.Join }

// suite is that of a server with one route on a database of its own.
func suite(t testing.TB, d database, o idem.Options, create handler) retrytest.Suite {
	t.Helper()
	db, store := d.open(t), d.store(t)
	beside, all := db, []*sql.DB{db}
	if d.name == "sqlite" {
		beside = d.open(t)
		all = append(all, beside)
	}
	for _, db := range all {
		t.Cleanup(func() { db.Close() })
		_, err := db.Exec("CREATE TABLE parcels (id varchar(99) PRIMARY KEY, target text)")
		if m, ok := store(db).(interface{ Migrate(context.Context) error }); ok {
			err = errors.Join(err, m.Migrate(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	service := &charges{}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := p.DB(db)
			pool.SetMaxOpenConns(8)
			o := o
			o.Logger = quiet
			call := p.Conn(nil)
			h := host{p.DB(beside), p.DB(beside), service, func(key string) error {
				return call(context.Background(), "charge", func() error { return service.charge(key) }, nil)
			}}
			api := middleware.NewAPI(nil, middleware.Options{
				Authenticate: func(*http.Request) (*keystore.Caller, error) {
					return keystore.NewCaller(nil, keystore.Identity{Organization: "org_1"})
				},
				Idempotency: p.Idempotency(middleware.IdempotencyOptions{
					Runner: idem.NewRunner(store(pool), o), Required: true,
				}),
				Hooks: &middleware.Hooks{Logger: quiet},
			})
			api.HandleFunc("POST /api/v1/parcels", middleware.AnyCaller(), func(w http.ResponseWriter, r *http.Request) {
				create(h, w, r)
			})
			return api
		},
		Creates: []retrytest.Create{{Path: "/api/v1/parcels", Body: `{"to":"Lisbon"}`}},
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
			"charges": service.count,
		},
	}
}

// recorder is a test whose failure is the wanted one.
type recorder struct {
	testing.TB
	logs, errors []string
}

func (r *recorder) Helper()                      {}
func (r *recorder) Logf(format string, a ...any) { r.logs = append(r.logs, fmt.Sprintf(format, a...)) }
func (r *recorder) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}

var joined, leases = idem.Options{Join: true}, idem.Options{}

// The suites wait more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestWrongHandlers: each is found, at the line that is marked by its name.
func TestWrongHandlers(t *testing.T) {
	for _, d := range databases {
		for name, wrong := range wrongs {
			if !d.has(wrong.options) {
				continue
			}
			t.Run(d.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				mustAccuse(t, d, name, wrong)
			})
		}
	}
}

// mustAccuse wants one failure, at the line that the name marks.
func mustAccuse(t *testing.T, d database, name string, wrong planted) {
	t.Helper()
	r := &recorder{TB: t}
	suite(t, d, wrong.options, wrong.handler).Run(r)
	text := strings.Join(r.errors, "\n")
	if at := "code     " + marked(t, name) + ": "; len(r.errors) != 1 || !strings.Contains(text, at) ||
		!strings.Contains(text, wrong.says) {
		t.Errorf("got %d errors, want one with %q that says %q: %s", len(r.errors), at, wrong.says, text)
	}
	t.Log(r.logs, text)
}

// TestAttacks: wrong handlers of other kinds, on one database.
func TestAttacks(t *testing.T) {
	for name, wrong := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustAccuse(t, databases[0], name, wrong)
		})
	}
}

// TestRightHandlers: none is accused.
func TestRightHandlers(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("SALLYPORT_RETRYTEST_RUNS"))
	for n := range max(1, runs) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			for _, d := range databases {
				for name, right := range rights {
					if d.has(right.options) {
						t.Run(d.name+"/"+name, func(t *testing.T) {
							t.Parallel()
							suite(t, d, right.options, right.handler).Run(t)
						})
					}
				}
			}
		})
	}
}

var marker = regexp.MustCompile(`// here: (.*)`)

// marked returns the line that a comment marks.
func marked(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("handlers_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if m := marker.FindStringSubmatch(line); m != nil && m[1] == name {
			return "handlers_test.go:" + strconv.Itoa(i+1)
		}
	}
	t.Fatalf("no line is marked %q", name)
	return ""
}

func fail(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }

func made(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	io.WriteString(w, "a parcel to Lisbon")
}
