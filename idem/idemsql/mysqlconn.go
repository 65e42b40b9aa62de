package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// finishing is how long a connection may take to end a transaction or to give
// its lock back, where the driver has no other bound.
const finishing = 5 * time.Second

// claimMySQL begins the transaction of a key that nothing keeps from being
// claimed, after it has locked the name of the key.
//
// A deadlock, or a node of Galera that was slower, takes back the whole
// transaction, and what a handler that overlooks the error writes after that
// would be committed at once. With autocommit off it is a transaction too,
// which Settle rolls back because the claim is gone.
func (c *conn) claimMySQL(ctx context.Context) (idem.Record, error) {
	s := c.store
	r, there, ours, err := s.lookMySQL(ctx, c.conn, s.mysql.lookAndLock, &c.claim)
	c.locked, c.there = ours || err != nil, there // the answer may have been lost
	if err != nil || !ours {
		return r, err
	}
	if _, err := c.conn.ExecContext(ctx, "SET autocommit = 0"); err != nil {
		return idem.Record{}, err
	}
	if err := c.beginTx(); err != nil {
		return idem.Record{}, err
	}
	return s.claimMySQL(ctx, c.tx, &c.claim, there)
}

// undoMySQL takes back what the handler wrote and claims the key again. There
// is no savepoint: a deadlock would have taken it too.
func (c *conn) undoMySQL(ctx context.Context) error {
	if _, err := c.tx.ExecContext(ctx, "ROLLBACK"); err != nil {
		return err
	}
	_, err := c.store.claimMySQL(ctx, c.tx, &c.claim, c.there)
	return err
}

// commitMySQL ends with ctx. After a COMMIT that succeeded there is nothing left
// for the Rollback.
func (c *conn) commitMySQL(ctx context.Context) error {
	err, ended := c.endMySQL(ctx, "COMMIT")
	if ended != nil {
		c.discard()
	}
	return err
}

// rollBackMySQL ends with a context too. When the handler has ended the sql.Tx,
// something may still be open on the connection.
func (c *conn) rollBackMySQL() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), finishing)
	defer cancel()
	err, ended := c.endMySQL(ctx, "ROLLBACK")
	if err != nil || ended != nil && ended != sql.ErrTxDone {
		c.discard()
	}
	return cmp.Or(ended, err)
}

// endMySQL ends the transaction with a statement, then the sql.Tx, and returns
// the error of each. The second is a round trip for which the driver takes no
// context. But the driver closes the connection when the context of a query ends
// before its rows are closed. So the rows of the statement, which are empty, stay
// open until the sql.Tx has ended.
func (c *conn) endMySQL(ctx context.Context, statement string) (err, ended error) {
	var rows driver.Rows
	skipped := c.conn.Raw(func(conn any) error {
		q, ok := conn.(driver.QueryerContext)
		if !ok {
			return driver.ErrSkip
		}
		if rows, err = q.QueryContext(ctx, statement, nil); err == driver.ErrSkip {
			return err
		}
		return nil // with ErrBadConn, Raw would wait for the sql.Tx to end
	})
	if skipped != nil {
		_, err = c.tx.ExecContext(ctx, statement)
	}
	ended = c.tx.Rollback()
	if rows != nil {
		c.conn.Raw(func(any) error { return rows.Close() })
	}
	return err, ended
}

// unlockMySQL gives the lock of the key back. The server does so too when the
// connection is closed.
func (c *conn) unlockMySQL() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), finishing)
	defer cancel()
	statement, args := c.store.sql(c.store.mysql.finish, []any{c.claim.Key[:]})
	if _, err := c.conn.ExecContext(ctx, statement, args...); err != nil {
		c.discard()
	}
}
