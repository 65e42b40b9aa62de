// Package orms_test has handlers that use an ORM, under package retrytest: gorm
// and bun make up a name for the savepoint of each nested transaction.
package orms_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/glebarez/sqlite"
	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sallyport-go/sallyport/.ci/testlib/planted"
	"github.com/sallyport-go/sallyport/.ci/testlib/sqltest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

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
	gorm *gorm.DB
	bun  *bun.DB
}

type handler func(ctx context.Context, s server) error

// suite is that of a server whose handler answers 500 to an error.
func suite(t *testing.T, o idem.Options, create handler) retrytest.Suite {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+sqltest.SQLite(t)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE parcels (id TEXT PRIMARY KEY, target TEXT); " +
		"CREATE TABLE items (id TEXT PRIMARY KEY, parcel TEXT)")
	if err := errors.Join(err, idemsql.SQLite(db, idemsql.Options{}).Migrate(t.Context())); err != nil {
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
			g, err := gorm.Open(sqlite.Dialector{Conn: pool}, &gorm.Config{Logger: logger.Discard})
			if err != nil {
				t.Fatal(err)
			}
			s := server{g, bun.NewDB(pool, sqlitedialect.New())}
			replies := idemsql.SQLite(pool, idemsql.Options{})
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
func sqlxNested(ctx context.Context) error {
	tx, _ := idemsql.Tx(ctx)
	db := &sqlx.Tx{Tx: tx, Mapper: fields}
	_, err := db.NamedExecContext(ctx, "INSERT INTO parcels VALUES (:id, :target)", newParcel())
	for n := 0; n < 2 && err == nil; n++ {
		_, err = db.NamedExecContext(ctx, "INSERT INTO items VALUES (:id, :parcel)", newItem())
	}
	return err
}

// entNested makes a parcel with two items by the driver of ent, which a generated
// client takes.
func entNested(ctx context.Context) error {
	tx, _ := idemsql.Tx(ctx)
	db := entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})
	insert := func(table, column string, values ...any) error {
		query, args := entsql.Dialect(dialect.SQLite).Insert(table).Columns("id", column).Values(values...).Query()
		return db.Exec(ctx, query, args, nil)
	}
	err := insert("parcels", "target", newParcel().ID, "Lisbon")
	for n := 0; n < 2 && err == nil; n++ {
		err = insert("items", "parcel", newItem().ID, "a book")
	}
	return err
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
		"sqlx, joined":         {joined, func(ctx context.Context, _ server) error { return sqlxNested(ctx) }},
		"ent's driver, joined": {joined, func(ctx context.Context, _ server) error { return entNested(ctx) }},
		"bun, leases":          {leases, func(ctx context.Context, s server) error { return bunNested(ctx, s.bun) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, right.options, right.create).Run(t)
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
			planted.MustAccuse(t, suite(t, wrong.options, wrong.create), name, wrong.says)
		})
	}
}
