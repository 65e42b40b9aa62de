package idempgx

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx returns the transaction of a joined request, and whether there is one: a
// request without an idempotency key has none, nor has one of a route that is not
// joined. The transaction is then nil, and its use panics: look at the second
// result, or set IdempotencyOptions.Required. The ctx is the handler's: that of
// the request behind package middleware, else that of Execution.Context.
//
// What is written in the transaction takes effect together with the reply, which
// ends it: its Commit and Rollback return an error. Begin makes a savepoint, which
// has both. The handler must not end it by a statement such as COMMIT: what it
// has written then stands without the reply, its client gets 503, and repeats get
// an unknown outcome when the lease of the claim has ended. COMMIT AND CHAIN, which
// begins another one, is not noticed: a 2xx is then committed with that.
//
// Close all Rows before the handler returns. When the transaction has ended its
// methods return pgx.ErrTxClosed, and what its Conn and LargeObjects have returned
// is another request's. One goroutine at a time may use it. When the context of a
// statement ends, pgx closes the connection: the client gets 503, unless the
// handler answers with a status that frees the key, such as 500.
func Tx(ctx context.Context) (pgx.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok
}

type txKey struct{}

// WithTx returns a context from which [Tx] takes a transaction, for tests of
// handlers. The caller ends the transaction. No claim belongs to it.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

var (
	errCommit   = errors.New("idempgx: Commit of a joined transaction: the reply of the request commits it")
	errRollback = errors.New("idempgx: Rollback of a joined transaction: answer with an error status in its place")
)

// handlerTx is a transaction as its handler has it.
type handlerTx struct{ guarded }

func (handlerTx) Commit(context.Context) error   { return errCommit }
func (handlerTx) Rollback(context.Context) error { return errRollback }

// guarded is a transaction, or a savepoint in one, that a handler cannot use any
// more when it has ended: the connection may be another request's.
type guarded struct {
	tx    pgx.Tx
	ended *atomic.Bool
}

// closed is a transaction that has ended.
var closed = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()

func (g guarded) live() pgx.Tx {
	if g.ended.Load() {
		return closed
	}
	return g.tx
}

func (g guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := g.live().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return guarded{tx, g.ended}, nil
}

func (g guarded) Commit(ctx context.Context) error   { return g.live().Commit(ctx) }
func (g guarded) Rollback(ctx context.Context) error { return g.live().Rollback(ctx) }

func (g guarded) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	return g.live().CopyFrom(ctx, table, columns, rows)
}

func (g guarded) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return g.live().SendBatch(ctx, b)
}

func (g guarded) LargeObjects() pgx.LargeObjects { return g.live().LargeObjects() }

func (g guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return g.live().Prepare(ctx, name, sql)
}

func (g guarded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return g.live().Exec(ctx, sql, args...)
}

func (g guarded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return g.live().Query(ctx, sql, args...)
}

func (g guarded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return g.live().QueryRow(ctx, sql, args...)
}

func (g guarded) Conn() *pgx.Conn { return g.live().Conn() }
