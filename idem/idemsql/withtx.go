package idemsql

import (
	"context"
	"database/sql"
)

// WithTx returns a context from which [Tx] takes a transaction, for tests of
// handlers. The caller ends the transaction. No claim belongs to it.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}
