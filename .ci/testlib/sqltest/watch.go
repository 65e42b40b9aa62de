package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// A Hook is told of each statement before the connection sends it, and of each
// Row and the end of rows. With an error the statement is not sent, and fails.
type Hook func(ctx context.Context, c driver.Conn, statement string) error

// Row is what a Hook gets for a row. For what database/sql does itself it gets
// BEGIN, COMMIT and ROLLBACK.
const Row = "a row"

// Watch returns a pool of connections to where those of below lead. Hook is told
// of their statements.
func Watch(t testing.TB, below *sql.DB, hook Hook) *sql.DB {
	db := Wrap(t, below, func(c driver.Conn) driver.Conn { return watched{c, hook} })
	db.SetMaxOpenConns(10)
	return db
}

// Wrap returns a pool of connections to where those of below lead, each of them
// wrapped.
func Wrap(t testing.TB, below *sql.DB, wrap func(driver.Conn) driver.Conn) *sql.DB {
	below.SetMaxOpenConns(0)
	db := sql.OpenDB(connector{below, wrap})
	t.Cleanup(func() { db.Close() })
	return db
}

type connector struct {
	below *sql.DB
	wrap  func(driver.Conn) driver.Conn
}

func (c connector) Driver() driver.Driver { return c.below.Driver() }

// Connect takes a connection out of the pool below for good.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	taken, err := c.below.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var conn driver.Conn
	err = taken.Raw(func(below any) error { conn = c.wrap(below.(driver.Conn)); return nil })
	return conn, err
}

// watched has what the drivers have, but for what database/sql does itself for want
// of it.
type watched struct {
	driver.Conn
	hook Hook
}

func (c watched) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.hook(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c watched) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.hook(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return watchedRows{rows, func() error { return c.hook(ctx, c.Conn, Row) }}, nil
}

type watchedRows struct {
	driver.Rows
	next func() error
}

func (r watchedRows) Next(dest []driver.Value) error {
	if err := r.next(); err != nil {
		return err
	}
	return r.Rows.Next(dest)
}

func (c watched) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.hook(ctx, c.Conn, "BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return watchedTx{tx, c}, err
}

type watchedTx struct {
	driver.Tx
	watched
}

func (x watchedTx) Commit() error   { return x.end("COMMIT", x.Tx.Commit) }
func (x watchedTx) Rollback() error { return x.end("ROLLBACK", x.Tx.Rollback) }

func (x watchedTx) end(statement string, end func() error) error {
	if err := x.hook(context.Background(), x.Conn, statement); err != nil {
		return err
	}
	return end()
}
