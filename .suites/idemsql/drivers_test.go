package idemsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
)

// A watcher is told of each statement before the connection sends it, and of each
// aRow and the end of them. With an error the statement is not sent and fails.
type watcher func(ctx context.Context, c driver.Conn, statement string) error

const aRow = "a row"

// watched returns a pool whose statements w is told of.
func (d database) watched(t testing.TB, w watcher) *sql.DB {
	t.Helper()
	if d.pgx {
		db, err := d.pgxPool(pgxWatcher{w})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shut(db) })
		return db
	}
	inner, err := d.connector()
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(watchedConnector{inner, w})
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(10)
	return db
}

func (d database) connector() (driver.Connector, error) {
	switch {
	case d.conf != nil:
		return stdlib.GetConnector(*d.conf), nil
	case d.my != nil:
		return mysql.NewConnector(d.my)
	}
	return sqliteConnector(sqliteDSN(d.file, 10*time.Second)), nil
}

type sqliteConnector string

func (c sqliteConnector) Driver() driver.Driver { return &sqlite.Driver{} }

func (c sqliteConnector) Connect(context.Context) (driver.Conn, error) {
	return c.Driver().Open(string(c))
}

type watchedConnector struct {
	driver.Connector
	watcher watcher
}

func (c watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return watchedConn{conn, c.watcher}, err
}

// pgxWatcher tells of a batch, which is one round trip, as of one statement. It
// has no connection to offer, and makes no statement fail.
type pgxWatcher struct{ watcher watcher }

func (p pgxWatcher) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	p.watcher(ctx, nil, q.SQL)
	return ctx
}

func (pgxWatcher) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p pgxWatcher) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range b.Batch.QueuedQueries {
		word, _, _ := strings.Cut(strings.TrimSpace(q.SQL), " ")
		texts = append(texts, word)
	}
	p.watcher(ctx, nil, strings.Join(texts, "+"))
	return ctx
}

func (pgxWatcher) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (pgxWatcher) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// watchedConn has what the three drivers have.
type watchedConn struct {
	driver.Conn
	watcher watcher
}

func (c watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.watcher(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.watcher(ctx, c.Conn, query); err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return watchedRows{rows, func() error { return c.watcher(ctx, c.Conn, aRow) }}, nil
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

func (c watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c watchedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.watcher(ctx, c.Conn, "BEGIN"); err != nil {
		return nil, err
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return watchedTx{tx, c}, err
}

func (c watchedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type watchedTx struct {
	driver.Tx
	conn watchedConn
}

func (x watchedTx) Commit() error {
	if err := x.conn.watcher(context.Background(), x.conn.Conn, "COMMIT"); err != nil {
		return err
	}
	return x.Tx.Commit()
}

func (x watchedTx) Rollback() error {
	if err := x.conn.watcher(context.Background(), x.conn.Conn, "ROLLBACK"); err != nil {
		return err
	}
	return x.Tx.Rollback()
}
