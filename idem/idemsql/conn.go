package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// newJoiner returns the Joiner of the store.
func (s *Store) newJoiner() *claims.Joiner {
	j := &claims.Joiner{
		Package: "idemsql", Logger: s.options.Logger, Names: s.names, Size: s.size, Waits: s.waitedFor, Conn: s.conn,
		One: s.oneOnPool, Peek: s.peek, Mark: s.mark, Keep: s.keep, Held: s.held, Roles: s.keep != "", Outlasts: true,
	}
	if s.oneWriter { // a rollback fails when the handler has committed
		j.Held = ""
	}
	return j.Open()
}

// size returns how many connections the pool may have, as the queue takes it.
func (s *Store) size() int {
	if s.oneWriter {
		return 1
	}
	return s.db.Stats().MaxOpenConnections
}

// waitedFor returns a function that says whether all connections are in use and
// something has begun to wait for one.
func (s *Store) waitedFor() func() bool {
	before := s.db.Stats().WaitCount
	return func() bool {
		now := s.db.Stats()
		return now.InUse >= now.MaxOpenConnections && now.WaitCount > before
	}
}

func (s *Store) oneOnPool(ctx context.Context, statement string, dest []any, args ...any) error {
	return s.onPool(ctx, func(ctx context.Context, q querier) error { return s.one(ctx, q, statement, dest, args...) })
}

// conn is the connection of a joined request.
type conn struct {
	store  *Store
	conn   *sql.Conn
	tx     *sql.Tx
	open   bool            // the transaction
	ctx    context.Context // of the transaction
	cancel context.CancelFunc
	claim  idem.Claim

	// In MySQL: whether the name of the key is locked, and whether the key had
	// a row before the claim.
	locked bool
	there  bool
}

func (s *Store) conn(ctx context.Context) (claims.Conn, error) {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &conn{store: s, conn: c, ctx: txCtx, cancel: cancel}, nil
}

func (c *conn) querier() querier {
	if c.open {
		return c.tx
	}
	return c.conn
}

func (c *conn) Exec(ctx context.Context, statement string, args ...any) (int, error) {
	return c.store.exec(c.store.calm(ctx), c.querier(), statement, args...)
}

func (c *conn) One(ctx context.Context, statement string, dest []any, args ...any) error {
	return c.store.one(c.store.calm(ctx), c.querier(), statement, dest, args...)
}

func (c *conn) Context(parent context.Context) context.Context { return WithTx(parent, c.tx) }

func (c *conn) Ready(context.Context) error { return nil }

// Claim lets the transaction end with ctx until it is handed over, and outlive
// it then.
func (c *conn) Claim(
	ctx context.Context, claim idem.Claim, retention time.Duration, watched bool,
) (idem.Record, error) {
	stop := context.AfterFunc(ctx, c.cancel)
	c.claim = claim
	r, err := c.begin(ctx, retention, watched)
	stop()
	return r, cmp.Or(err, ctx.Err())
}

func (c *conn) begin(ctx context.Context, retention time.Duration, watched bool) (r idem.Record, err error) {
	s := c.store
	if s.mysql != nil {
		return c.claimMySQL(ctx)
	}
	if err := c.beginTx(); err != nil {
		return idem.Record{}, err
	}
	ctx = s.calm(ctx)
	r, err = s.decide(ctx, c.tx, s.join, &c.claim, retention)
	switch {
	case err != nil || r.State != idem.Claimed:
	case s.oneWriter:
		_, err = c.tx.ExecContext(ctx, "SAVEPOINT "+savepoint)
	case watched:
		err = c.One(ctx, claims.NoteRole, []any{new(string)})
	}
	return r, err
}

func (c *conn) beginTx() (err error) {
	c.tx, err = c.conn.BeginTx(c.ctx, &sql.TxOptions{Isolation: c.store.options.Isolation})
	c.open = err == nil
	return err
}

// savepoint is where the handler's part of a transaction of SQLite begins.
const savepoint = "sallyport_handler"

func (c *conn) Save(ctx context.Context, t idem.Settlement) error {
	s := c.store
	ctx = s.calm(ctx)
	if t.RollBack {
		if err := c.undo(ctx); err != nil {
			return err
		}
	}
	err := s.write(ctx, c.tx, s.settle, claims.SettleArgs(c.claim.Key, c.claim.Token, t)...)
	if err == idem.ErrLost { // the claim was there before the handler began
		err = claims.ErrEnded
	}
	return err
}

// undo takes back what the handler wrote.
func (c *conn) undo(ctx context.Context) error {
	if c.store.mysql != nil {
		return c.undoMySQL(ctx)
	}
	_, err := c.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
	if err != nil && strings.Contains(err.Error(), "no such savepoint") {
		err = claims.ErrEnded
	}
	return err
}

// Commit lets the transaction end with ctx, since a driver has no other context
// for that.
func (c *conn) Commit(ctx context.Context) (claims.Moment, error) {
	if c.store.mysql != nil {
		return claims.AtCommit, c.commitMySQL(ctx)
	}
	defer context.AfterFunc(ctx, c.cancel)()
	err := c.tx.Commit()
	if err != nil && c.store.oneWriter && c.rolledBack(ctx) {
		return claims.AtSettlement, err
	}
	return claims.AtCommit, err
}

// rolledBack rolls back a transaction that SQLite neither committed nor ended.
// A rollback that succeeds proves that nothing was committed, and after one
// that the driver or SQLite has done already it is proved by the reply's
// absence.
func (c *conn) rolledBack(ctx context.Context) bool {
	ctx = context.WithoutCancel(ctx)
	_, err := c.conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		return true
	}
	s := c.store
	err = s.one(ctx, c.conn, s.settled, []any{new(bool)}, c.claim.Key[:], c.claim.Token[:])
	c.discard()
	return err == sql.ErrNoRows
}

func (c *conn) Rollback(ctx context.Context) error {
	if !c.open {
		return nil
	}
	c.open = false
	if c.store.mysql != nil {
		return c.rollBackMySQL()
	}
	defer context.AfterFunc(ctx, c.cancel)()
	err := c.tx.Rollback()
	if err != nil {
		c.discard()
	}
	return err
}

// discard closes a connection whose transaction may still be open, instead of
// returning it to the pool.
func (c *conn) discard() { discard(c.conn) }

// discard may run beside the rollback of a transaction whose context has ended.
// When that closes the connection too, database/sql may find none, and panics.
func discard(c *sql.Conn) {
	defer func() { recover() }()
	c.Raw(func(any) error { return driver.ErrBadConn })
}

func (c *conn) Release(_ context.Context, doubtful bool) {
	if doubtful {
		c.discard()
	}
	if c.locked {
		c.unlockMySQL()
	}
	c.cancel()
	c.conn.Close()
}
