package keystore

import (
	"context"

	"github.com/sallyport-go/sallyport/keystore/internal/transaction"
)

// InTransaction returns a context in which nobody issues or changes a key: an
// issuer writes nothing, and returns an error that wraps
// [errors.ErrUnsupported]. It is that of a handler whose rows and reply are one
// transaction, as package middleware joins them: an issuer cannot write in it,
// a key would stay when it is rolled back, and in a database with one writer
// the two would wait for each other.
func InTransaction(ctx context.Context) context.Context { return transaction.With(ctx) }
