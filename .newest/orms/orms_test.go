// Package orms_test has handlers that use an ORM or generated code, under package
// retrytest: gorm and bun make up a name for the savepoint of each nested
// transaction.
package orms_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"errors"
	"net/http"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/glebarez/sqlite"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

//go:embed testdata/schema.sql
var schema string

type parcel struct {
	ID     string `bun:",pk"`
	Target string
}

type item struct {
	ID     string `bun:",pk"`
	Parcel string
}

func newParcel() *parcel { return &parcel{rand.Text(), "Lisbon"} }
func newItem() *item     { return &item{rand.Text(), "a book"} }

// server is what a process opens when it starts.
type server struct {
	pool    *sql.DB
	dialect string   // as ent calls it
	gorm    *gorm.DB // on SQLite
	bun     *bun.DB  // on SQLite
}

type handler func(ctx context.Context, s server) error

type database struct {
	dialect string
	open    func(testing.TB) *sql.DB
	store   func(*sql.DB, idemsql.Options) *idemsql.Store
	accuses string // what is said of a write beside the transaction
}

var onSQLite = database{dialect.SQLite, func(t testing.TB) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+sqltest.SQLite(t)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)")
	if err != nil {
		t.Fatal(err)
	}
	return db
}, idemsql.SQLite, "database is locked"}

var onPostgres = database{dialect.Postgres, func(t testing.TB) *sql.DB {
	return stdlib.OpenDB(*pgtest.Schema(t))
}, idemsql.Postgres, "idemsql.Tx(r.Context())"}

// suite is that of a server whose handler answers 500 to an error.
func suite(t *testing.T, on database, o idem.Options, create handler) retrytest.Suite {
	t.Helper()
	db := on.open(t)
	t.Cleanup(func() { db.Close() })
	_, err := db.Exec(schema)
	if err := errors.Join(err, on.store(db, idemsql.Options{}).Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	count := func(table string) func(context.Context) (int, error) {
		return func(ctx context.Context) (n int, err error) {
			return n, db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)
		}
	}
	return retrytest.Suite{
		Server: func(p *retrytest.Process) http.Handler {
			pool := p.DB(db)
			s := server{pool: pool, dialect: on.dialect}
			if on.dialect == dialect.SQLite {
				var err error
				if s.gorm, err = gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard}); err != nil {
					t.Fatal(err)
				}
				s.bun = bun.NewDB(pool, sqlitedialect.New())
			}
			replies := on.store(pool, idemsql.Options{})
			return planted.Server(p, replies, o, func(w http.ResponseWriter, r *http.Request) {
				if err := create(r.Context(), s); err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
		},
		Creates: planted.Parcels,
		Effects: map[string]func(context.Context) (int, error){"parcels": count("parcels"), "items": count("items")},
	}
}

// joined is gorm in the transaction of the request.
func (s server) joined(ctx context.Context) *gorm.DB {
	db := s.gorm.Session(&gorm.Session{NewDB: true, Context: ctx})
	db.Statement.ConnPool, _ = idemsql.Tx(ctx)
	return db
}

// gormNested makes a parcel with two items.
func gormNested(db *gorm.DB) error {
	return db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(newParcel()).Error; err != nil {
			return err
		}
		for range 2 {
			err := tx.Transaction(func(tx *gorm.DB) error { return tx.Create(newItem()).Error })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// bunNested makes a parcel with two items.
func bunNested(ctx context.Context, db bun.IDB) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(newParcel()).Exec(ctx); err != nil {
			return err
		}
		for range 2 {
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(newItem()).Exec(ctx)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// sqlxNested makes a parcel with two items in the transaction of the request.
// SQLite takes the parameters of Postgres.
func sqlxNested(ctx context.Context, _ server) error {
	tx, _ := idemsql.Tx(ctx)
	db := &sqlx.Tx{Tx: tx, Mapper: fields}
	insert := func(query string, row any) error {
		query, args, err := db.BindNamed(query, row)
		if err == nil {
			_, err = db.ExecContext(ctx, sqlx.Rebind(sqlx.DOLLAR, query), args...)
		}
		return err
	}
	err := insert("INSERT INTO parcels VALUES (:id, :target)", newParcel())
	for n := 0; n < 2 && err == nil; n++ {
		err = insert("INSERT INTO items VALUES (:id, :parcel)", newItem())
	}
	return err
}

// sqlcNested makes a parcel with two items.
func sqlcNested(ctx context.Context, q *Queries) error {
	err := q.CreateParcel(ctx, CreateParcelParams{ID: rand.Text(), Target: "Lisbon"})
	for n := 0; n < 2 && err == nil; n++ {
		err = q.CreateItem(ctx, rand.Text())
	}
	return err
}

// joinedDriver is a driver of ent that stays in the transaction it is given.
type joinedDriver struct{ dialect.Driver }

func (d joinedDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// entInsert makes a parcel in what the driver takes for a transaction of its own.
func entInsert(ctx context.Context, s server) error {
	tx, err := s.entJoined(ctx).Tx(ctx)
	if err != nil {
		return err
	}
	query, args := entsql.Dialect(s.dialect).
		Insert("parcels").Columns("id", "target").Values(rand.Text(), "Lisbon").Query()
	return errors.Join(tx.Exec(ctx, query, args, nil), tx.Commit())
}

// entJoined is the driver of a client of ent in the transaction of the request.
func (s server) entJoined(ctx context.Context) dialect.Driver {
	tx, _ := idemsql.Tx(ctx)
	return joinedDriver{entsql.NewDriver(s.dialect, entsql.Conn{ExecQuerier: tx})}
}

var fields = reflectx.NewMapperFunc("db", strings.ToLower)

var joined, leases = idem.Options{Join: true}, idem.Options{}

func TestRightHandlers(t *testing.T) {
	for name, right := range map[string]struct {
		options idem.Options
		create  handler
	}{
		"gorm, joined": {joined, func(ctx context.Context, s server) error { return gormNested(s.joined(ctx)) }},
		"gorm, leases": {leases, func(ctx context.Context, s server) error { return gormNested(s.gorm.WithContext(ctx)) }},
		"bun, joined": {joined, func(ctx context.Context, s server) error {
			tx, _ := idemsql.Tx(ctx)
			_, err := s.bun.NewInsert().Model(newParcel()).Conn(tx).Exec(ctx)
			for n := 0; n < 2 && err == nil; n++ {
				_, err = s.bun.NewInsert().Model(newItem()).Conn(tx).Exec(ctx)
			}
			return err
		}},
		"bun, leases": {leases, func(ctx context.Context, s server) error { return bunNested(ctx, s.bun) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, onSQLite, right.options, right.create).Run(t)
		})
	}
}

func TestOnBothDatabases(t *testing.T) {
	right := map[string]handler{
		"sqlx":         sqlxNested,
		"ent's driver": entInsert,
		"sqlc": func(ctx context.Context, _ server) error {
			tx, _ := idemsql.Tx(ctx)
			return sqlcNested(ctx, New(tx))
		},
	}
	for _, on := range []database{onSQLite, onPostgres} {
		for name, create := range right {
			t.Run(on.dialect+"/"+name, func(t *testing.T) {
				t.Parallel()
				suite(t, on, joined, create).Run(t)
			})
		}
		t.Run(on.dialect+"/sqlc beside the transaction", func(t *testing.T) {
			t.Parallel()
			mustAccuse(t, suite(t, on, joined, func(ctx context.Context, s server) error {
				return New(s.pool).CreateParcel(ctx, CreateParcelParams{ID: rand.Text(), Target: "Lisbon"})
			}), "queries.sql_test.go", on.accuses)
		})
	}
}

func TestWrongHandlers(t *testing.T) {
	for name, wrong := range map[string]struct {
		options idem.Options
		says    string
		create  handler
	}{
		"gorm beside the transaction": {joined, "database is locked", func(ctx context.Context, s server) error {
			return s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				return tx.Create(newParcel()).Error // here: gorm beside the transaction
			})
		}},
		"gorm, error of an item swallowed": {leases, "answer 500", func(ctx context.Context, s server) error {
			return s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				_ = tx.Transaction(func(tx *gorm.DB) error {
					return tx.Create(newItem()).Error // here: gorm, error of an item swallowed
				})
				return tx.Create(newParcel()).Error
			})
		}},
		"bun beside the transaction": {joined, "database is locked", func(ctx context.Context, s server) error {
			_, err := s.bun.NewInsert().Model(newParcel()).Exec(ctx) // here: bun beside the transaction
			return err
		}},
		"bun, retries of its own": {leases, "within a request", func(ctx context.Context, s server) (err error) {
			for range 2 {
				err = s.bun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					_, err := tx.NewInsert().Model(newParcel()).Exec(ctx) // here: bun, retries of its own
					return err
				})
				if err == nil {
					break
				}
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted.MustAccuse(t, suite(t, onSQLite, wrong.options, wrong.create), name, wrong.says)
		})
	}
}

// mustAccuse wants one failure, at a line of a generated file: it is the server's
// own, and nearer to the query than the handler.
func mustAccuse(t *testing.T, s retrytest.Suite, file, says string) {
	t.Helper()
	text := strings.Join(planted.Run(t, s).Errors, "\n")
	if at := "code     " + file + ":"; strings.Count(text, "code     ") != 1 || !strings.Contains(text, at) ||
		!strings.Contains(text, says) {
		t.Errorf("got %s, want one error with %q that says %q", text, at, says)
	}
}
