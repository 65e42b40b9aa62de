package keysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

var errBroken = errors.New("the connection broke")

// breaking is a connector whose connections break where next says so: it is
// asked before each statement, each row after the first, and each COMMIT.
type breaking struct {
	driver.Connector
	next func(what string) error
}

// on returns a pool of breaking connections.
func (b breaking) on(t *testing.T, d database) *sql.DB {
	t.Helper()
	below := d.open(t)
	b.Connector = connector{below}
	db := sql.OpenDB(b)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// connector connects through a pool of database/sql.
type connector struct{ below *sql.DB }

func (c connector) Driver() driver.Driver { return c.below.Driver() }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.below.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var below driver.Conn
	err = conn.Raw(func(c any) error { below = c.(driver.Conn); return nil })
	return heldConn{below, conn}, err
}

// heldConn keeps its connection out of the pool.
type heldConn struct {
	driver.Conn
	held *sql.Conn
}

func (c heldConn) Close() error { return c.held.Close() }

func (b breaking) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := b.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return breakingConn{conn.(heldConn), b.next}, nil
}

type breakingConn struct {
	heldConn
	next func(what string) error
}

func (c breakingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.next(query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c breakingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.next(query); err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return &breakingRows{Rows: rows, next: c.next}, nil
}

func (c breakingConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.next("BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return breakingTx{tx, c.next}, err
}

type breakingTx struct {
	driver.Tx
	next func(what string) error
}

func (tx breakingTx) Commit() error {
	if err := tx.next("COMMIT"); err != nil {
		tx.Tx.Rollback()
		return err
	}
	return tx.Tx.Commit()
}

type breakingRows struct {
	driver.Rows
	next  func(what string) error
	given int
}

func (r *breakingRows) Next(dest []driver.Value) error {
	if r.given++; r.given > 1 {
		if err := r.next("row"); err != nil {
			return err
		}
	}
	return r.Rows.Next(dest)
}

// A feed or a list whose rows break off is an error, and not a short answer:
// revocations would be passed over, and pages would end early.
func TestRowsThatBreakOff(t *testing.T) {
	inEachTransactional(t, func(t *testing.T, d database) {
		whole := d.store(t)
		migrate(t, whole)
		start := present(t, whole)
		inserted(t, whole, "acme", 5)
		store := d.wrap(breaking{next: func(what string) error {
			if what == "row" {
				return errBroken
			}
			return nil
		}}.on(t, d), keysql.Options{})
		if changed, next, err := store.Changes(t.Context(), start); !errors.Is(err, errBroken) || changed != nil || next != "" {
			t.Errorf("Changes returned %d digests, %q and %v, want the error alone", len(changed), next, err)
		}
		if page, err := store.List(t.Context(), "acme", keystore.Page{}); !errors.Is(err, errBroken) || page != nil {
			t.Errorf("List returned %d keys and %v, want the error alone", len(page), err)
		}
	})
}

// Migrate returns the error of each of its statements, and the next one
// finishes what it began.
func TestMigrateThatBreaksOff(t *testing.T) {
	inEachEmpty(t, func(t *testing.T, d database) {
		store := d.store(t)
		n := len(store.Schema())
		migrate(t, store.Version(n-1))
		k := inserted(t, store.Version(n-1), "acme", 1)[0]
		for at := 1; ; at++ {
			statements, failed := 0, ""
			broken := d.wrap(breaking{next: func(what string) error {
				// The lock of MySQL ends with the connection too.
				if what == "row" || strings.HasPrefix(what, "DO RELEASE_LOCK") {
					return nil
				}
				if statements++; statements == at {
					failed = what
					return errBroken
				}
				return nil
			}}.on(t, d), keysql.Options{})
			err := broken.Migrate(t.Context())
			if failed == "" {
				if err != nil || at < 6 {
					t.Errorf("Migrate returned %v after %d statements, want nil after six or more", err, statements)
				}
				break
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("Migrate, when %q failed, returned %v, want its error", failed, err)
			}
		}
		start := present(t, store)
		after := inserted(t, store, "acme", 1)[0] // which the last step puts into the feed
		changed, _ := changes(t, store, start)
		wantNamed(t, changed, after, "a key that was inserted after the migration")
		lookup(t, store, k)
	})
}
