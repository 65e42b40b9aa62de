package retrytest

//lint:file-ignore SA1019 A driver may have nothing newer.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// DB returns a pool for the server whose connections are db's. Each statement of
// a request is a step. db is a pool of the test's own with enough connections
// for two processes, and stays open. A database that ends with its connection,
// as :memory: of SQLite, cannot be used.
func (p *Process) DB(db *sql.DB) *sql.DB {
	pool := sql.OpenDB(connector{db, p})
	p.pools = append(p.pools, pool)
	return pool
}

type connector struct {
	db *sql.DB
	p  *Process
}

func (c connector) Driver() driver.Driver { return c.db.Driver() }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.p.died.given() {
		c.p.crash(false)
	}
	lent, err := c.db.Conn(ctx)
	if err != nil {
		c.p.run.waited.Store(true)
		return nil, err
	}
	k := &conn{}
	k.shut = sync.OnceValue(func() error {
		if k.link.broken.Load() {
			lent.Raw(func(any) error { return driver.ErrBadConn })
		}
		return lent.Close()
	})
	k.link = c.p.link(k.kill)
	if c.p.died.given() {
		k.Close()
		c.p.crash(false)
	}
	return k, lent.Raw(func(inner any) error {
		k.Conn = inner.(driver.Conn)
		return nil
	})
}

// conn has every optional interface of package driver, and does what
// database/sql does where the driver's has none. Rows and results are the
// driver's own.
type conn struct {
	driver.Conn
	shut func() error
	link *link
	tx   atomic.Pointer[tx] // that is open
	mu   sync.Mutex         // held by a call of the driver, and by kill
}

// kill ends what the connection holds, by a rollback if that does: Rows may be
// open. Else, and the second time, it closes the connection.
func (c *conn) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.tx.Swap(nil); x == nil || x.Tx.Rollback() != nil {
		c.shut()
	}
}

func (c *conn) Close() error {
	c.tx.Store(nil)
	return c.shut()
}

var errRefused = errors.New("retrytest: the database refused the statement")

// take takes a step. A statement is refused by the database itself, which may
// also give its transaction up then.
func (c *conn) take(ctx context.Context, text string, do func(complete bool) error) error {
	if c.link.broken.Load() {
		return driver.ErrBadConn
	}
	alone := func(complete bool) error { return c.alone(func() error { return do(complete) }) }
	refuse := func() (err error) {
		if e, ok := c.Conn.(driver.ExecerContext); ok {
			_, err = e.ExecContext(ctx, "a statement that retrytest made invalid", nil)
		}
		return errors.Join(errRefused, err)
	}
	return c.link.take(ctx, text, alone, func() error { return c.alone(refuse) })
}

// alone lets a call have the connection to itself, if that has not been severed.
func (c *conn) alone(do func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link.broken.Load() {
		return driver.ErrBadConn
	}
	return do()
}

func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	return c.alone(func() error {
		if r, ok := c.Conn.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	})
}

func (c *conn) IsValid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.Conn.(driver.Validator)
	return !c.link.broken.Load() && (!ok || v.IsValid())
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	x := &tx{conn: c}
	return x, c.take(ctx, "BEGIN", func(bool) (err error) {
		if b, ok := c.Conn.(driver.ConnBeginTx); ok {
			x.Tx, err = b.BeginTx(ctx, o)
		} else if o != (driver.TxOptions{}) {
			err = errors.New("retrytest: the driver supports neither isolation levels nor read-only transactions")
		} else if err = ctx.Err(); err == nil {
			x.Tx, err = c.Conn.Begin()
		}
		if err == nil {
			c.tx.Store(x)
		}
		return err
	})
}

type tx struct {
	conn *conn
	driver.Tx
}

func (x *tx) Commit() error   { return x.finish("COMMIT", x.Tx.Commit) }
func (x *tx) Rollback() error { return x.finish("ROLLBACK", x.Tx.Rollback) }

// finish is a step. A COMMIT that is refused rolls back.
func (x *tx) finish(text string, do func() error) error {
	if x.conn.link.broken.Load() {
		return driver.ErrBadConn
	}
	alone := func(do func() error) error {
		return x.conn.alone(func() error { x.conn.tx.Store(nil); return do() })
	}
	return x.conn.link.take(context.Background(), text, func(bool) error { return alone(do) },
		func() error { return errors.Join(errRefused, alone(x.Tx.Rollback)) })
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	e, ok := c.Conn.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip // database/sql prepares it then
	}
	err = c.take(ctx, query, func(bool) error { r, err = e.ExecContext(ctx, query, args); return err })
	return r, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	err = c.take(ctx, query, func(complete bool) error {
		r, err = q.QueryContext(ctx, query, args)
		return read(r, err, complete)
	})
	return r, err
}

// read reads the rows of a query to their end where that is asked for: it may
// take effect while they are read.
func read(r driver.Rows, err error, complete bool) error {
	if err != nil || !complete {
		return err
	}
	for values := make([]driver.Value, len(r.Columns())); err == nil; err = r.Next(values) {
	}
	if err == io.EOF {
		err = nil
	}
	return errors.Join(err, r.Close())
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s := &stmt{conn: c, query: query}
	return s, c.alone(func() (err error) {
		if p, ok := c.Conn.(driver.ConnPrepareContext); ok {
			s.Stmt, err = p.PrepareContext(ctx, query)
		} else if err = ctx.Err(); err == nil {
			s.Stmt, err = c.Conn.Prepare(query)
		}
		return err
	})
}

type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.conn.take(ctx, s.query, func(bool) error {
		if e, ok := s.Stmt.(driver.StmtExecContext); ok {
			r, err = e.ExecContext(ctx, args)
		} else {
			r, err = old(ctx, args, s.Stmt.Exec)
		}
		return err
	})
	return r, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.conn.take(ctx, s.query, func(complete bool) error {
		if q, ok := s.Stmt.(driver.StmtQueryContext); ok {
			r, err = q.QueryContext(ctx, args)
		} else {
			r, err = old(ctx, args, s.Stmt.Query)
		}
		return read(r, err, complete)
	})
	return r, err
}

// old calls a function that takes no context and no named arguments.
func old[T any](ctx context.Context, args []driver.NamedValue, call func([]driver.Value) (T, error)) (r T, err error) {
	values := make([]driver.Value, len(args))
	for i, a := range args {
		if values[i] = a.Value; a.Name != "" {
			return r, errors.New("retrytest: the driver does not support named arguments")
		}
	}
	if err := ctx.Err(); err != nil {
		return r, err
	}
	return call(values)
}
