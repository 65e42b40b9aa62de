// Package idempgx keeps Idempotency-Keys and their replies in Postgres through
// a pool of pgx, for a server whose handlers use pgx itself, by hand or by
// sqlc. It is a module of its own that requires pgx and this library, and works
// with package idem alone: keys, scopes and limits need not be used. Handlers
// that use database/sql, also with the driver of pgx, take package idemsql.
//
//	go get github.com/sallyport-go/sallyport/idem/idempgx
//
//	store := idempgx.New(pool, idempgx.Options{})
//	err := store.Migrate(ctx) // makes the table
//	err = store.Check(ctx)    // says what does not fit
//	go store.Run(ctx)         // removes what has expired
//
// It has the table, the statements and the promises of package idemsql, whose
// documentation says what they are. The two see the same keys, so servers with
// either may share a database. A [Store] has leases and upkeep from there. What
// it does itself is joined mode ([idem.Options.Join]), where the claim, the rows
// that the handler writes with [Tx], and the reply are one transaction:
//
//	runner := idem.NewRunner(store, idem.Options{Join: true})
//
//	func create(ctx context.Context, title string) error {
//		tx, ok := idempgx.Tx(ctx)
//		if !ok {
//			return errors.New("a create needs an Idempotency-Key")
//		}
//		_, err := tx.Exec(ctx, "INSERT INTO tasks (title) VALUES ($1)", title)
//		return err
//	}
//
// Behind package middleware Tx takes the context of the request, and the status of
// the response says what is kept. With idem alone it takes that of idem's
// Execution.Context, and its Settle says it: OutcomeDone commits, with RollBack the
// reply alone, and all else rolls back.
//
// # What it costs
//
// Two round trips beside the handler's own, where idemsql has four:
//
//	BEGIN, INSERT   takes the lock of the key and writes the claim
//	…               what the handler does
//	UPDATE, COMMIT  turns the claim into the reply; COMMIT is skipped if there is none
//
// With RollBack, as after a 4xx, the second trip is ROLLBACK, and a third one the
// INSERT of the reply. Where nothing is kept, as after a 5xx, there is no third. A
// repeat takes three. To learn of roles, the first hundred requests take one trip
// more, and all of them where handlers change the role.
//
// Joined requests take at most half of the pool's connections; the others wait,
// as in idemsql. Give the pool a size (MaxConns, pool_max_conns in its address):
// the default of pgx lets two joined requests run at once on a small machine.
//
// When the connection breaks between UPDATE and COMMIT, or when the server has
// ended the session while the handler ran, it is not known whether the request
// was committed ([idem.ErrCommitUnknown]). With idemsql it would be known that it
// was not. A repeat finds out.
//
// # Modes and poolers
//
// It works in every mode of pgx (default_query_exec_mode). In the default one a
// connection takes a round trip more when it first uses a statement. Behind a
// pooler that gives each transaction another connection, take cache_describe,
// exec or simple_protocol; Check of [idemsql.Store] tells. A tracer of pgx sees a
// batch of BEGIN and INSERT, and one of UPDATE and COMMIT.
package idempgx
