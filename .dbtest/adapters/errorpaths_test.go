package adapters_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idempgx"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/scope"
)

// faults are what may become of one request to a server.
var faults = map[sqltest.Fault]string{
	sqltest.FailWrite:  "the connection breaks before the server is asked",
	sqltest.BreakAfter: "the connection breaks before the answer",
	sqltest.BreakOff:   "the answer breaks off",
	sqltest.BreakSoon:  "the answer breaks off before its first row",
	sqltest.Lose:       "the context ends, and nobody answers",
}

// wire is a network that makes one fault, at a request that it is told.
type wire struct {
	sqltest.Wire
	mu    sync.Mutex
	at    int // 1 is the next request, 0 none
	fault sqltest.Fault
	end   context.CancelFunc
	step  int // how many requests are passed over; a pipeline is many

	closes bool // a connection that lost a request, and wrote no other, closes after a second
}

func newWire() *wire {
	w := new(wire)
	w.Request = w.request
	return w
}

func (w *wire) request(c *sqltest.Conn, _ []byte) sqltest.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == 0 {
		return sqltest.None
	}
	if w.at--; w.at > 0 {
		return sqltest.None
	}
	if w.fault == sqltest.Lose {
		w.end()
		if last := c.Written(); w.closes {
			time.AfterFunc(time.Second, func() {
				if c.Written() == last { // else nobody waited for the answer, as of the end of a statement
					c.Close()
				}
			})
		}
	}
	return w.fault
}

// everywhere calls do with each of the faults at each of its requests, one at a
// time.
func (w *wire) everywhere(t *testing.T, do func(ctx context.Context, what string)) {
	t.Helper()
	for f, name := range faults {
		for at := 1; ; at += 1 + w.step {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			w.mu.Lock()
			w.at, w.fault, w.end = at, f, end
			w.mu.Unlock()
			do(ctx, fmt.Sprintf("%s, request %d", name, at))
			if left := context.Cause(ctx); left == context.DeadlineExceeded {
				t.Errorf("%s, request %d: it took a minute", name, at)
			}
			end()
			w.mu.Lock()
			over := w.at > 0
			w.at = 0
			w.mu.Unlock()
			if over && at == 1 {
				t.Error("no request was made")
			}
			if over || t.Failed() {
				break
			}
		}
	}
}

// repliesTable is what both stores of replies in SQL have.
type repliesTable interface {
	idem.Eraser
	idem.Joiner
	Migrate(context.Context) error
}

// adapters are the stores in one SQL database, over a network with faults or
// with settings of their own, and the database as it is.
type adapters struct {
	db      *sql.DB
	replies repliesTable
	keys    *keysql.Store
	sound   repliesTable // on db
	inUse   func() int   // connections of replies and keys
}

// sqlKinds are the SQL databases that are servers. Without a wire nothing waits
// for a lock for long.
var sqlKinds = map[string]func(t *testing.T, w *wire) adapters{
	"postgres": func(t *testing.T, w *wire) adapters {
		conf := pgtest.Schema(t)
		db := closing(t, stdlib.OpenDB(*w.postgres(conf)))
		return adapters{db: closing(t, stdlib.OpenDB(*conf)), inUse: func() int { return db.Stats().InUse }}.with(t,
			keysql.Postgres(db, keysql.Options{}), idemsql.Postgres(db, idemsql.Options{Logger: quiet}), idemsql.Postgres)
	},
	"pgx": func(t *testing.T, w *wire) adapters {
		conf := pgtest.Schema(t)
		pooled, err := pgxpool.ParseConfig("")
		if err != nil {
			t.Fatal(err)
		}
		pooled.ConnConfig, pooled.MaxConns = w.postgres(conf), connections
		pool, err := pgxpool.NewWithConfig(t.Context(), pooled)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if pool.Stat().AcquiredConns() == 0 { // else Close would hide what a test says
				pool.Close()
			}
		})
		return adapters{db: closing(t, stdlib.OpenDB(*conf)),
			inUse: func() int { return int(pool.Stat().AcquiredConns()) }}.with(t,
			keysql.Postgres(closing(t, stdlib.OpenDBFromPool(pool)), keysql.Options{}),
			idempgx.New(pool, idempgx.Options{Logger: quiet}), idemsql.Postgres)
	},
	"mariadb": func(t *testing.T, w *wire) adapters {
		conf := sqltest.MariaDB(t)
		open := func(c *mysql.Config) *sql.DB {
			db, err := sql.Open("mysql", c.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, db)
		}
		sound, wired := open(conf), conf.Clone()
		if w == nil {
			wired.Params = map[string]string{"lock_wait_timeout": "0", "innodb_lock_wait_timeout": "0"}
		} else {
			wired = w.MySQL(conf)
		}
		db := open(wired)
		return adapters{db: sound, inUse: func() int { return db.Stats().InUse }}.with(t,
			keysql.MySQL(db, keysql.Options{}), idemsql.MySQL(db, idemsql.Options{Logger: quiet}), idemsql.MySQL)
	},
}

// withSQLite are the databases of tests that need no network.
func withSQLite() map[string]func(t *testing.T, w *wire) adapters {
	kinds := map[string]func(t *testing.T, w *wire) adapters{"sqlite": func(t *testing.T, _ *wire) adapters {
		file := "file:" + sqltest.SQLite(t) + "?_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_pragma=busy_timeout("
		open := func(busy string) *sql.DB {
			db, err := sql.Open("sqlite", file+busy+")")
			if err != nil {
				t.Fatal(err)
			}
			return closing(t, db)
		}
		db := open("50")
		return adapters{db: open("60000"), inUse: func() int { return db.Stats().InUse }}.with(t,
			keysql.SQLite(db, keysql.Options{}), idemsql.SQLite(db, idemsql.Options{Logger: quiet}), idemsql.SQLite)
	}}
	for name, open := range sqlKinds {
		kinds[name] = open
	}
	return kinds
}

var quiet = slog.New(slog.DiscardHandler)

func closing(t *testing.T, db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(connections)
	t.Cleanup(func() { db.Close() })
	return db
}

func (w *wire) postgres(conf *pgx.ConnConfig) *pgx.ConnConfig {
	conf = conf.Copy()
	if w == nil {
		conf.RuntimeParams["lock_timeout"] = "50ms"
		return conf
	}
	conf.DialFunc, conf.Fallbacks = w.Dial, nil
	w.closes = true // pgx itself takes 15 s
	return conf
}

// with makes the tables.
func (a adapters) with(
	t *testing.T, keys *keysql.Store, replies repliesTable, sound func(*sql.DB, idemsql.Options) *idemsql.Store,
) adapters {
	a.keys, a.replies, a.sound = keys, replies, sound(a.db, idemsql.Options{})
	if err := errors.Join(a.keys.Migrate(t.Context()), a.sound.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	a.exec(t, "CREATE TABLE rows_of_handlers (name varchar(99) PRIMARY KEY)")
	return a
}

func (a adapters) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := a.db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func (a adapters) count(t *testing.T, from string) (n int) {
	t.Helper()
	if err := a.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		t.Fatalf("%s: %v", from, err)
	}
	return n
}

// mustBeIdle wants all connections back, since a failure must hold none.
func (a adapters) mustBeIdle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); a.inUse() > 0; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are still in use", a.inUse())
		}
	}
}

// write writes in the transaction of a request.
func write(ctx context.Context, statement string) (err error) {
	if tx, ok := idempgx.Tx(ctx); ok {
		_, err = tx.Exec(ctx, statement)
	} else if tx, ok := idemsql.Tx(ctx); ok {
		_, err = tx.ExecContext(ctx, statement)
	} else {
		err = errors.New("the context carries no transaction")
	}
	return err
}

var lastClaim atomic.Int64

func newClaim() idem.Claim { return aClaim(int(lastClaim.Add(1))) }

func repeated(c idem.Claim) idem.Claim {
	c.Token = newClaim().Token
	return c
}

var answered = idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte("answer"), Retention: time.Hour}

// A request whose transaction meets a failure has both its row and its reply or
// neither, and unless COMMIT is unknown its error says which.
func TestErrorPathsOfJoinedRequests(t *testing.T) {
	t.Parallel()
	refused := answered
	refused.RollBack = true
	for kind, open := range sqlKinds {
		for name, settlement := range map[string]idem.Settlement{
			"created": answered, "refused": refused, "failed": {Outcome: idem.OutcomeFree},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newWire()
				a := open(t, w)
				w.everywhere(t, func(ctx context.Context, what string) {
					c := newClaim()
					row := "row " + strconv.FormatInt(lastClaim.Load(), 10)
					_, tx, err := a.replies.Join(ctx, c, time.Minute)
					saved := false
					if err == nil {
						s := settlement
						if write(tx.Context(ctx), "INSERT INTO rows_of_handlers VALUES ('"+row+"')") != nil {
							s = idem.Settlement{Outcome: idem.OutcomeFree} // as after a 500
						}
						err = tx.Settle(ctx, s)
						saved = err == nil && s.Outcome == idem.OutcomeDone
					}
					done := a.repeat(t, c) == idem.Done
					if done != saved && !errors.Is(err, idem.ErrCommitUnknown) {
						t.Errorf("%s: error %v, and a repeat finds a reply: %t", what, err, done)
					}
					want := 0
					if done && !settlement.RollBack {
						want = 1
					}
					if got := a.count(t, "rows_of_handlers WHERE name = '"+row+"'"); got != want {
						t.Errorf("%s: error %v, a repeat finds a reply: %t, and there are %d rows", what, err, done, got)
					}
				})
				a.mustBeIdle(t)
			})
		}
	}
}

// repeat returns what a repeat finds when the server has noticed that the
// first connection is gone.
func (a adapters) repeat(t *testing.T, c idem.Claim) idem.State {
	t.Helper()
	for {
		r, tx, err := a.sound.Join(t.Context(), repeated(c), time.Minute)
		if err != nil {
			t.Fatalf("a repeat: %v", err)
		}
		if tx != nil {
			if err := tx.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeFree}); err != nil {
				t.Fatalf("a repeat: %v", err)
			}
		}
		if r.State != idem.InProgress {
			return r.State
		}
	}
}

// leases does a request with a lease. What the store says it did, it did.
func leases(t *testing.T, w *wire, faulty, sound idem.Store) {
	w.everywhere(t, func(ctx context.Context, what string) {
		c := newClaim()
		r, err := faulty.Begin(ctx, c)
		if err != nil {
			return // whoever made the claim undoes it
		}
		if r.State != idem.Claimed {
			t.Errorf("%s: Begin of a new key: got %v", what, r.State)
		}
		if err := faulty.Extend(ctx, c.Key, c.Token, time.Minute); err == idem.ErrLost || err == idem.ErrSettled {
			t.Errorf("%s: Extend: got %v", what, err)
		}
		err = faulty.Settle(ctx, c.Key, c.Token, answered)
		if err == idem.ErrLost || err == idem.ErrSettled {
			t.Errorf("%s: Settle: got %v", what, err)
		}
		r, unsaved := sound.Begin(t.Context(), repeated(c))
		if unsaved != nil || r.State != idem.Done && (err == nil || r.State != idem.InProgress) {
			t.Errorf("%s: Settle returned %v, and a repeat finds %v, %v", what, err, r.State, unsaved)
		}
	})
}

// claimAcme makes claims of the organization acme.
func claimAcme(t *testing.T, s idem.Store, many int) {
	t.Helper()
	prefix := idem.NewKey("the owner of a claim", "acme")
	for range many {
		c := newClaim()
		copy(c.Token[:], prefix[:8])
		if _, err := s.Begin(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// erases erases several pages that fill makes. An error leaves some of them, and
// without one all are gone.
func erases(t *testing.T, w *wire, faulty, sound idem.Eraser, many int, fill func()) {
	w.everywhere(t, func(ctx context.Context, what string) {
		fill()
		n, err := faulty.Erase(ctx, "acme")
		rest, failed := sound.Erase(t.Context(), "acme")
		if failed != nil {
			t.Fatal(failed)
		}
		if err == nil && (rest > 0 || n != many) || n+rest > many {
			t.Errorf("%s: Erase returned %d, %v, and %d of %d were left", what, n, err, rest, many)
		}
	})
}

func TestErrorPathsOfReplies(t *testing.T) {
	t.Parallel()
	const many = 450 // three pages
	for kind, open := range sqlKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire()
			a := open(t, w)
			leases(t, w, a.replies, a.sound)
			claimAcme(t, a.sound, many)
			a.exec(t, "CREATE TABLE erased AS SELECT * FROM sallyport_idem")
			erases(t, w, a.replies, a.sound, many, func() {
				a.exec(t, "DELETE FROM sallyport_idem", "INSERT INTO sallyport_idem SELECT * FROM erased")
				a.exec(t, "DELETE FROM sallyport_idem WHERE substr(token, 1, 8) <> (SELECT substr(token, 1, 8) "+
					"FROM erased GROUP BY substr(token, 1, 8) HAVING count(*) > 1)")
			})
			a.mustBeIdle(t)
		})
	}
	for name, retries := range map[string]int{"redis": -1, "redis, whose client repeats": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, o := newWire(), redistest.Options(t)
			o.Dialer, o.MaxRetries = w.Dial, retries
			client, sound := redistest.Connect(t, o), redistest.Connect(t, redistest.Options(t))
			prefix := redistest.OwnPrefix(t, sound)
			store := func(c *redis.Client) *idemredis.Store {
				return idemredis.New(c, idemredis.Options{Prefix: prefix})
			}
			leases(t, w, store(client), store(sound))
		})
	}
}

// Of more keys than a page of SCAN has, all are erased or there is an error.
func TestErrorPathsOfEraseInRedis(t *testing.T) {
	const many = 1200
	server := redistest.Start(t)
	sound, w := server.Client(), newWire()
	w.step = 20
	o := server.Options()
	o.Dialer, o.MaxRetries = w.Dial, -1
	store := func(c *redis.Client) *idemredis.Store { return idemredis.New(c, idemredis.Options{}) }
	claimAcme(t, store(sound), many)
	if err := sound.Eval(t.Context(), `for _, k in ipairs(redis.call('KEYS', '*')) do
		redis.call('RENAME', k, 'kept ' .. k) end`, nil).Err(); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	erases(t, w, store(redistest.Connect(t, o)), store(sound), many, func() {
		if err := sound.Eval(t.Context(), `for _, k in ipairs(redis.call('KEYS', 'kept *')) do
			redis.call('COPY', k, k:sub(6), 'REPLACE') end`, nil).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	})
}

// A charge of Redis is allowed or an error.
func TestErrorPathsOfLimits(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"one by one": 0, "units ahead": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			w, o := newWire(), redistest.Options(t)
			o.Dialer, o.MaxRetries = w.Dial, -1
			client := redistest.Connect(t, o)
			prefix := redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))
			w.everywhere(t, func(ctx context.Context, what string) {
				store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Ahead: ahead,
					Failover: ratelimit.FailoverOptions{Timeout: time.Minute}})
				d, err := store.Take(ctx, []ratelimit.Charge{{Bucket: what, Cost: 1, Policy: &ratelimit.Policy{
					Name: "one", Limit: ratelimit.MustParse("100000-S"), Fallback: ratelimit.Closed}}})
				if err == nil && !d.Allowed {
					t.Errorf("%s: got %+v, want it allowed or an error", what, d)
				}
			})
		})
	}
}

// A key has its entry in the audit or neither is there, and what is read is
// whole or an error.
func TestErrorPathsOfKeys(t *testing.T) {
	t.Parallel()
	const entries = 1100 // two pages of a sweep
	for kind, open := range sqlKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire()
			w.closes = true // the driver of MySQL has no context for its own COMMIT
			a := open(t, w)
			w.everywhere(t, func(ctx context.Context, what string) {
				keys, before := a.count(t, "sallyport_keys"), a.count(t, "sallyport_keys_audit")
				err := issue(ctx, a.keys)
				keys, audited := a.count(t, "sallyport_keys")-keys, a.count(t, "sallyport_keys_audit")-before
				if keys != audited || err == nil && keys != 1 || keys > 1 {
					t.Errorf("%s: Issue returned %v and left %d keys and %d entries", what, err, keys, audited)
				}
			})
			for name, read := range a.reads(t) {
				want, err := read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.everywhere(t, func(ctx context.Context, what string) {
					if got, err := read(ctx); err == nil && !reflect.DeepEqual(got, want) {
						t.Errorf("%s: %s returned %+v, want %+v or an error", what, name, got, want)
					}
				})
			}
			columns := "organization, key_id, at, act, actor, reason, changes FROM sallyport_keys_audit "
			numbers := "generate_series(1, " + strconv.Itoa(entries) + ") AS s(n)"
			if kind == "mariadb" {
				numbers = "(SELECT seq AS n FROM seq_1_to_" + strconv.Itoa(entries) + ") AS s"
			}
			a.exec(t, "CREATE TABLE swept AS SELECT concat('entry ', n) AS id, e.* FROM "+numbers+
				" CROSS JOIN (SELECT "+columns+"LIMIT 1) AS e")
			w.everywhere(t, func(ctx context.Context, what string) {
				a.exec(t, "DELETE FROM sallyport_keys_audit",
					"INSERT INTO sallyport_keys_audit (id, organization, key_id, at, act, actor, reason, changes) "+
						"SELECT * FROM swept")
				n, err := a.keys.SweepAudit(ctx, time.Now().Add(time.Hour))
				left := a.count(t, "sallyport_keys_audit")
				if err == nil && (left > 0 || n != entries) || n+left > entries {
					t.Errorf("%s: SweepAudit returned %d, %v, and %d of %d were left", what, n, err, left, entries)
				}
			})
			a.mustBeIdle(t)
		})
	}
}

func issue(ctx context.Context, keys *keysql.Store) error {
	_, _, err := issuing.New(keys, issuing.Options{}).Issue(ctx,
		keystore.Key{Organization: "org", Environment: keystore.Sandbox, Name: "test"})
	return err
}

// reads makes keys, and returns what reads them.
func (a adapters) reads(t *testing.T) map[string]func(context.Context) (any, error) {
	_, start, err := a.keys.Changes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if err := issue(t.Context(), a.keys); err != nil {
			t.Fatal(err)
		}
	}
	page, err := a.keys.List(t.Context(), "org", issuing.Query{})
	if err != nil {
		t.Fatal(err)
	}
	use := keystore.Use{Organization: "org", ID: page.Keys[0].ID, At: time.Now(), Requests: 1,
		Scopes: []scope.Name{"a:read", "b:read", "c:read"}}
	for range 3 {
		if err := a.keys.AddUses(t.Context(), []keystore.Use{use}); err != nil {
			t.Fatal(err)
		}
		use.At = use.At.Add(-24 * time.Hour)
	}
	return map[string]func(context.Context) (any, error){
		"List": func(ctx context.Context) (any, error) { return a.keys.List(ctx, "org", issuing.Query{}) },
		"Find": func(ctx context.Context) (any, error) {
			k, err := a.keys.Find(ctx, "org", page.Keys[0].ID)
			if errors.Is(err, keystore.ErrNotFound) {
				return "not found", nil
			}
			return k, err
		},
		"Changes": func(ctx context.Context) (any, error) {
			digests, _, err := a.keys.Changes(ctx, start)
			return digests, err
		},
		"Usage": func(ctx context.Context) (any, error) { return a.keys.Usage(ctx, "org", page.Keys[0].ID) },
		"Audit": func(ctx context.Context) (any, error) { return a.keys.Audit(ctx, "org", issuing.AuditQuery{}) },
	}
}

// COMMIT is refused: that is an error, and nothing was committed. MariaDB has
// nothing that it checks at COMMIT.
func TestCommitIsRefused(t *testing.T) {
	for kind, open := range withSQLite() {
		if kind == "mariadb" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			a := open(t, nil)
			const refused = "INSERT INTO refused VALUES ('nobody')"
			a.exec(t, "CREATE TABLE refused (name varchar(99) REFERENCES rows_of_handlers DEFERRABLE INITIALLY DEFERRED)")
			if kind == "sqlite" {
				a.exec(t, "CREATE TRIGGER refuse AFTER INSERT ON sallyport_keys_audit BEGIN "+refused+"; END")
			} else {
				a.exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+refused+
					"; RETURN NULL; END $$",
					"CREATE TRIGGER refuse AFTER INSERT ON sallyport_keys_audit FOR EACH ROW EXECUTE FUNCTION refuse()")
			}
			if err := issue(t.Context(), a.keys); err == nil {
				t.Error("Issue returned no error")
			}
			c := newClaim()
			_, tx, err := a.replies.Join(t.Context(), c, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := write(tx.Context(t.Context()), refused); err != nil {
				t.Error(err)
			}
			if err := tx.Settle(t.Context(), answered); err == nil || errors.Is(err, idem.ErrCommitUnknown) {
				t.Errorf("Settle: got %v, want an error that says that nothing was committed", err)
			}
			if got := a.repeat(t, c); got != idem.Claimed {
				t.Errorf("a repeat finds %v, want nothing", got)
			}
			for _, table := range []string{"sallyport_keys", "sallyport_keys_audit", "refused"} {
				if n := a.count(t, table); n != 0 {
					t.Errorf("%s has %d rows, want none", table, n)
				}
			}
			a.mustBeIdle(t)
		})
	}
}

// Somebody else has locked everything: that is an error and says nothing about
// keys, and when the lock is gone nothing of it remains.
func TestLockFails(t *testing.T) {
	t.Parallel()
	for kind, open := range withSQLite() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			a := open(t, nil)
			other, err := a.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			lock := map[string][]string{
				"sqlite":  {"BEGIN IMMEDIATE", "ROLLBACK"},
				"mariadb": {"LOCK TABLES sallyport_idem WRITE, sallyport_keys WRITE, sallyport_keys_audit WRITE", "UNLOCK TABLES"},
			}[kind]
			if lock == nil {
				lock = []string{"BEGIN; LOCK sallyport_idem, sallyport_keys, sallyport_keys_audit", "ROLLBACK"}
			}
			if _, err := other.ExecContext(t.Context(), lock[0]); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			c := newClaim()
			if r, tx, err := a.replies.Join(ctx, c, time.Minute); err == nil || tx != nil {
				t.Errorf("Join: got %v and a transaction: %t, want an error", r.State, tx != nil)
			}
			if r, err := a.replies.Begin(ctx, newClaim()); err == nil {
				t.Errorf("Begin: got %v, want an error", r.State)
			}
			if err := issue(ctx, a.keys); err == nil {
				t.Error("Issue returned no error")
			}
			if _, err := other.ExecContext(t.Context(), lock[1]); err != nil {
				t.Fatal(err)
			}
			if got := a.repeat(t, c); got != idem.Claimed {
				t.Errorf("a repeat finds %v, want nothing", got)
			}
			if keys, entries := a.count(t, "sallyport_keys"), a.count(t, "sallyport_keys_audit"); keys+entries > 0 {
				t.Errorf("there are %d keys and %d entries, want none", keys, entries)
			}
			if err := issue(t.Context(), a.keys); err != nil {
				t.Error(err)
			}
			a.mustBeIdle(t)
		})
	}
}
