package idempgx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// size returns how many connections the pool may have.
func (s *Store) size() int { return int(s.pool.Config().MaxConns) }

// waitedFor returns a function that says whether all connections are in use and
// none has come free meanwhile. A pool does not tell what waits for one.
func (s *Store) waitedFor() func() bool {
	before := s.pool.Stat().AcquireCount()
	return func() bool {
		now := s.pool.Stat()
		return now.AcquiredConns() >= now.MaxConns() && now.AcquireCount() == before
	}
}

func (s *Store) one(ctx context.Context, statement string, dest []any, args ...any) error {
	return s.pool.QueryRow(ctx, s.names.Text(statement), args...).Scan(dest...)
}

// conn is the connection of a joined request.
type conn struct {
	store *Store
	conn  *pgxpool.Conn
	tx    handlerTx
	over  atomic.Bool // the transaction has ended
	claim idem.Claim

	tag pgconn.CommandTag // what COMMIT has returned, which Save sends
	err error
}

func (s *Store) conn(ctx context.Context) (claims.Conn, error) {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{store: s, conn: c}, nil
}

func (c *conn) Exec(ctx context.Context, statement string, args ...any) (int, error) {
	tag, err := c.conn.Exec(ctx, c.store.names.Text(statement), args...)
	return int(tag.RowsAffected()), err
}

func (c *conn) One(ctx context.Context, statement string, dest []any, args ...any) error {
	return c.conn.QueryRow(ctx, c.store.names.Text(statement), args...).Scan(dest...)
}

func (c *conn) Context(parent context.Context) context.Context { return WithTx(parent, c.tx) }

// Ready returns the error of ctx too: a statement after its end would close the
// connection, as the pool does.
func (c *conn) Ready(ctx context.Context) error {
	switch conn := c.conn.Conn().PgConn(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case conn.IsClosed():
		return errors.New("a statement of the handler lost the connection")
	case conn.IsBusy():
		return fmt.Errorf("%w: Rows of the handler are open", idem.ErrBroken)
	case conn.TxStatus() == 'I':
		return claims.ErrEnded
	}
	return nil
}

// Claim begins the transaction and claims the key of a request that has no row,
// as most have not, in one round trip. BEGIN takes no snapshot.
func (c *conn) Claim(
	ctx context.Context, claim idem.Claim, retention time.Duration, watched bool,
) (idem.Record, error) {
	s := c.store
	c.claim = claim
	args := claims.PostgresArgs(&c.claim, retention)
	b := &pgx.Batch{}
	b.BeginTx(s.options)
	b.Queue(s.names.Text(fresh), args...)
	if watched {
		b.Queue(claims.NoteRole)
	}
	results := c.conn.SendBatch(ctx, b)
	results.Exec()
	claimed, err := results.Exec()
	if err := cmp.Or(err, results.Close()); err != nil {
		return idem.Record{}, err
	}
	c.tx = handlerTx{guarded{results.Tx(), &c.over}}
	if claimed.RowsAffected() == 1 {
		return idem.Record{State: idem.Claimed, Fingerprint: claim.Fingerprint, Attempt: 1}, nil
	}
	record, err := claims.Ask(ctx, c.One, decide, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		err = claims.ErrOvertaken
	}
	return record, err
}

// Save turns the claim into the reply and commits, in one round trip. A
// settlement that finds no claim divides by zero, and after an error the server
// skips what is left of the batch.
func (c *conn) Save(ctx context.Context, t idem.Settlement) error {
	b := &pgx.Batch{}
	b.Queue(c.store.names.Text(settle), claims.SettleArgs(c.claim.Key, c.claim.Token, t)...)
	b.Queue("commit")
	results := c.conn.SendBatch(ctx, b)
	defer results.Close()
	_, err := results.Exec()
	switch {
	case err == nil:
		c.tag, c.err = results.Exec()
	case claims.SQLState(err) == divisionByZero: // the claim was there before the handler began
		return claims.ErrEnded
	case notReached(err):
		return err
	default:
		c.err = err
	}
	return nil
}

const divisionByZero = "22012"

// notReached reports whether the error of a statement proves that the server did
// not come to the COMMIT behind it: they were not sent, because one could not be
// prepared, or the server refused the statement and goes on. An error that ends
// the session may be another's, of a pooler that has lost the answers to both.
// SafeToRetry of pgconn proves nothing: it is also said of a connection that
// breaks while the answers are read.
func notReached(err error) bool {
	var early pgx.ErrPreprocessingBatch
	var refusal *pgconn.PgError
	switch {
	case errors.As(err, &early), claims.Refused(err):
		return true
	case errors.As(err, &refusal):
		return refusal.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(refusal.Code, "08")
	}
	return false
}

func (c *conn) Commit(context.Context) (claims.Moment, error) {
	if c.err == nil && c.tag.String() != "COMMIT" {
		return claims.AtSettlement, fmt.Errorf("the server answered %s", c.tag)
	}
	return claims.AtCommit, c.err
}

// Rollback rolls back. Where that fails, the pool closes the connection.
func (c *conn) Rollback(ctx context.Context) error {
	_, err := c.conn.Exec(ctx, "rollback")
	return err
}

// Release does not let the pool close a connection that is in use, which it
// would do beside a handler that goes on to read Rows when its response streams.
func (c *conn) Release(ctx context.Context, _ bool) {
	c.over.Store(true)
	if conn := c.conn.Conn(); conn.PgConn().IsBusy() {
		conn.Close(ctx)
	}
	c.conn.Release()
}
