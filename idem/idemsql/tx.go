package idemsql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Join implements [idem.Joiner]. At most half as many transactions are open as
// the pool may have connections, 32 if it has no limit, and in SQLite one; the
// next get their turn in the order in which they came. Set the pool's size
// before the first Join. A request that has waited for 50 milliseconds gets the
// reply that is there already, without its turn.
//
// The transaction ends with its Settle and not with ctx, so each must be
// settled.
func (s *Store) Join(ctx context.Context, c idem.Claim, timeout time.Duration) (idem.Record, idem.Transaction, error) {
	return s.joiner.Join(ctx, c, timeout)
}

// Tx returns the transaction of a joined request, and whether there is one: a
// request without an idempotency key has none, nor has one of a route that is not
// joined. The transaction is then nil, and its use panics: look at the second
// result, or set IdempotencyOptions.Required. The ctx is the handler's: that of
// the request behind package middleware, else that of Execution.Context.
//
// What is written in the transaction takes effect together with the reply. The
// handler must not commit or roll back. A commit makes the claim visible without
// the reply: the client gets 503, and repeats get an unknown outcome when the
// lease of the claim has ended. Close all Rows before the handler returns.
func Tx(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

type txKey struct{}

// WithTx returns a context from which [Tx] takes a transaction, for tests of
// handlers. The caller ends the transaction. No claim belongs to it.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}
