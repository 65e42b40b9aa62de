package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// savepoint is where the handler's part of a transaction of SQLite begins.
const savepoint = "sallyport_handler"

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

// joined is a claim held by a transaction. The claim is a row in it, like one
// with a lease; nobody sees it unless the handler commits.
type joined struct {
	store  *Store
	conn   *sql.Conn
	tx     *sql.Tx
	ctx    context.Context // of the transaction
	cancel context.CancelFunc
	key    idem.Key
	token  idem.ClaimToken
	timer  *time.Timer
	claim  idem.Claim

	watched bool // in Postgres: its role is noted

	// In MySQL: whether the name of the key is locked, and whether the key had
	// a row before the claim.
	locked bool
	there  bool
}

// Context implements [idem.Transaction]; see [Tx].
func (j *joined) Context(parent context.Context) context.Context {
	return WithTx(parent, j.tx)
}

func (j *joined) Settle(ctx context.Context, t idem.Settlement) error {
	defer j.end()
	j.store.queue.Asks()
	if j.store.mysql == nil { // a driver has no other context for the end of a transaction
		defer context.AfterFunc(ctx, j.cancel)()
	}
	if t.Outcome != idem.OutcomeDone {
		return j.notSaved(ctx, cmp.Or(j.rollBack(), j.committed(ctx)))
	}
	if t.RollBack && j.store.keep != "" {
		return j.rollBackAndKeep(ctx, t)
	}
	err := ctx.Err()
	if err == nil {
		err = j.record(ctx, t)
	}
	if err != nil {
		if j.rollBack() == nil {
			err = cmp.Or(j.committed(ctx), err)
		}
		return j.notSaved(ctx, err)
	}
	return j.commit(ctx)
}

// notSaved returns the error of a transaction that was not committed here.
func (j *joined) notSaved(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("idemsql: %w", claims.Ended(ctx, j.store.options.Logger, j.key))
	}
	err = claims.Fault(ctx, "idemsql: settle", j.store.roles.Moment(j.watched, err), err)
	if j.store.keep == "" && errors.Is(err, idem.ErrBroken) {
		j.discard() // a setting of the session may outlast the transaction
	}
	return err
}

// committed returns an error unless the claim is gone after a rollback: then the
// handler has committed it. SQLite fails to roll back in that case.
func (j *joined) committed(ctx context.Context) error {
	if j.store.oneWriter || ctx.Err() != nil {
		return nil
	}
	switch err := j.store.one(ctx, j.conn, j.store.held, []any{new(bool)}, j.key[:], j.token[:]); err {
	case nil:
		return sql.ErrTxDone
	case sql.ErrNoRows:
		return nil
	default:
		return fmt.Errorf("%w: %w", idem.ErrCommitUnknown, err)
	}
}

// record turns the claim into the reply, within the transaction.
func (j *joined) record(ctx context.Context, t idem.Settlement) error {
	ctx = j.store.calm(ctx)
	if t.RollBack && j.store.mysql != nil {
		if err := j.undoMySQL(ctx); err != nil {
			return err
		}
	} else if t.RollBack {
		_, err := j.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
		if err != nil && strings.Contains(err.Error(), "no such savepoint") {
			return sql.ErrTxDone
		}
		if err != nil {
			return err
		}
	}
	if j.watched {
		var changed bool
		if err := j.store.one(ctx, j.tx, claims.RestoreRole, []any{&changed, new(string)}); err != nil {
			return err
		}
		j.store.roles.Found(changed)
	}
	err := j.store.end(ctx, j.tx, j.key, j.token, t)
	if err == idem.ErrLost || err == idem.ErrSettled {
		// The claim was there before the handler began.
		return fmt.Errorf("%w (%v)", sql.ErrTxDone, err)
	}
	return err
}

// rollBackAndKeep rolls back, which works after any error of a statement too,
// and then stores the reply by itself. The lock of the key ends with the
// transaction, so another request may take the key in between. It then owns the
// key: this reply is not stored, and the client is told to try again.
func (j *joined) rollBackAndKeep(ctx context.Context, t idem.Settlement) error {
	if err := j.rollBack(); err != nil {
		return j.notSaved(ctx, err)
	}
	args := claims.KeepArgs(j.claim, t)
	var err error = claims.ErrOvertaken
	for again(err) {
		if ctx.Err() != nil {
			return claims.CallError(ctx, "idemsql: settle", ctx.Err())
		}
		err = j.store.write(ctx, j.conn, j.store.keep, args...)
	}
	switch {
	case err == nil:
		j.store.queue.Answered()
		return nil
	case err == idem.ErrLost:
		return j.notSaved(ctx, cmp.Or(j.committed(ctx), errors.New("the key was taken before the reply was stored")))
	case claims.Refused(err):
		return fmt.Errorf("idemsql: settle: %w", err)
	}
	return fmt.Errorf("idemsql: %w: %w", idem.ErrCommitUnknown, err)
}

func (j *joined) commit(ctx context.Context) error {
	var err error
	if j.store.mysql != nil {
		err = j.commitMySQL(ctx)
	} else {
		err = j.tx.Commit()
	}
	if err == nil {
		j.store.queue.Answered()
		return nil
	}
	at := claims.AtCommit
	if j.store.oneWriter && j.rolledBack(ctx) {
		at = claims.AtSettlement
	}
	return claims.Fault(ctx, "idemsql: commit", at, err)
}

// rolledBack rolls back a transaction that SQLite neither committed nor ended.
// A rollback that succeeds proves that nothing was committed, and after one
// that the driver or SQLite has done already it is proved by the reply's
// absence.
func (j *joined) rolledBack(ctx context.Context) bool {
	ctx = context.WithoutCancel(ctx)
	_, err := j.conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		return true
	}
	err = j.store.one(ctx, j.conn, j.store.settled, []any{new(bool)}, j.key[:], j.token[:])
	j.discard()
	return err == sql.ErrNoRows
}

func (j *joined) rollBack() error {
	if j.tx == nil {
		return nil
	}
	if j.store.mysql != nil {
		return j.rollBackMySQL()
	}
	err := j.tx.Rollback()
	if err != nil {
		j.discard()
	}
	return err
}

// discard closes a connection whose transaction may still be open, instead of
// returning it to the pool.
func (j *joined) discard() {
	j.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// abandon ends a transaction that was not handed over.
func (j *joined) abandon() {
	j.rollBack()
	j.close()
}

// close gives the connection back.
func (j *joined) close() {
	if j.locked {
		j.unlockMySQL()
	}
	j.cancel()
	j.conn.Close()
}

// end gives back what the transaction had.
func (j *joined) end() {
	j.timer.Stop()
	j.close()
	j.store.queue.Leave(j.key)
}
