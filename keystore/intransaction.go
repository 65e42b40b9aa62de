package keystore

import (
	"context"

	"github.com/sallyport-go/sallyport/keystore/internal/transaction"
)

// InTransaction marks ctx as that of a handler whose rows and reply are one
// transaction, as in the joined mode of package middleware. An issuer that
// gets such a context writes nothing and returns an error that wraps
// [errors.ErrUnsupported]: it cannot write in the transaction. A key would
// stay when that is rolled back, and in a database with one writer the two
// would wait for each other.
func InTransaction(ctx context.Context) context.Context { return transaction.With(ctx) }
