package idempgx

import (
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

// joined is a claim held by a transaction, as in idemsql.
type joined struct {
	store *Store
	conn  *pgxpool.Conn
	tx    handlerTx
	over  atomic.Bool // the transaction has ended
	claim idem.Claim
	timer *time.Timer

	watched bool // its role is noted
}

// Context implements [idem.Transaction]; see [Tx].
func (j *joined) Context(parent context.Context) context.Context { return WithTx(parent, j.tx) }

func (j *joined) Settle(ctx context.Context, t idem.Settlement) error {
	defer j.end(ctx)
	j.store.queue.Asks()
	switch conn := j.conn.Conn().PgConn(); {
	case ctx.Err() != nil: // the pool closes the connection
		return claims.CallError(ctx, "idempgx: settle", ctx.Err())
	case (conn.IsClosed() || conn.IsBusy()) && t.Outcome != idem.OutcomeDone: // likewise
		return nil
	case conn.IsClosed():
		return errors.New("idempgx: settle: a statement of the handler lost the connection")
	case conn.IsBusy():
		return fmt.Errorf("idempgx: settle: %w: Rows of the handler are open", idem.ErrBroken)
	case conn.TxStatus() == 'I':
		return j.ended(ctx)
	case t.Outcome != idem.OutcomeDone:
		return claims.CallError(ctx, "idempgx: settle", j.rollBack(ctx))
	case t.RollBack:
		return j.rollBackAndKeep(ctx, t)
	}
	return j.commit(ctx, t)
}

// commit turns the claim into the reply and commits, in one round trip. A
// settlement that finds no claim divides by zero, and after an error the server
// skips what is left of the batch.
func (j *joined) commit(ctx context.Context, t idem.Settlement) error {
	s, b := j.store, &pgx.Batch{}
	if j.watched { // by itself: pgx may prepare what is in a batch before it
		var changed bool
		if err := j.conn.QueryRow(ctx, claims.RestoreRole).Scan(&changed, new(string)); err != nil {
			return j.notSaved(ctx, err)
		}
		s.roles.Found(changed)
	}
	b.Queue(s.names.Text(settle), claims.SettleArgs(j.claim.Key, j.claim.Token, t)...)
	b.Queue("commit")
	results := j.conn.SendBatch(ctx, b)
	_, err := results.Exec()
	if err != nil {
		results.Close()
		if !notReached(err) {
			return fmt.Errorf("idempgx: %w: %w", idem.ErrCommitUnknown, err)
		}
		return j.notSaved(ctx, err)
	}
	tag, err := results.Exec()
	results.Close()
	switch {
	case err == nil && tag.String() == "COMMIT":
		s.queue.Answered()
		return nil
	case err == nil:
		return fmt.Errorf("idempgx: commit: the server answered %s", tag)
	}
	return claims.Fault(ctx, "idempgx: commit", claims.AtCommit, err)
}

// notSaved rolls back, and returns the error of a settlement that was refused.
func (j *joined) notSaved(ctx context.Context, err error) error {
	j.rollBack(ctx)
	if claims.SQLState(err) == divisionByZero || j.committed(ctx) { // the claim was there before the handler began
		return j.ended(ctx)
	}
	return claims.Fault(ctx, "idempgx: settle", j.store.roles.Moment(j.watched, err), err)
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

// rollBackAndKeep rolls back, which works after any error of a statement too,
// and then stores the reply by itself. The lock of the key ends with the
// transaction, so another request may take the key in between. It then owns the
// key: this reply is not stored, and the client is told to try again.
func (j *joined) rollBackAndKeep(ctx context.Context, t idem.Settlement) error {
	if err := j.rollBack(ctx); err != nil {
		return claims.CallError(ctx, "idempgx: settle", err)
	}
	args := claims.KeepArgs(j.claim, t)
	for {
		kept, err := j.conn.Exec(ctx, j.store.names.Text(keep), args...)
		switch {
		case err == nil && kept.RowsAffected() == 1:
			j.store.queue.Answered()
			return nil
		case err == nil && j.committed(ctx):
			return j.ended(ctx)
		case err == nil:
			return errors.New("idempgx: settle: the key was taken before the reply was stored")
		case claims.Again(err) && ctx.Err() == nil:
		case claims.Refused(err):
			return claims.CallError(ctx, "idempgx: settle", err)
		default:
			return fmt.Errorf("idempgx: %w: %w", idem.ErrCommitUnknown, err)
		}
	}
}

// committed reports whether the claim is there after a rollback: the handler has
// committed it, and begun another transaction.
func (j *joined) committed(ctx context.Context) bool {
	key, token := j.claim.Key, j.claim.Token
	return j.conn.QueryRow(ctx, j.store.names.Text(held), key[:], token[:]).Scan(nil) == nil
}

// rollBack rolls back. Where that fails, the pool closes the connection.
func (j *joined) rollBack(ctx context.Context) error {
	_, err := j.conn.Exec(ctx, "rollback")
	return err
}

// ended is the error of a transaction that the handler has ended.
func (j *joined) ended(ctx context.Context) error {
	return fmt.Errorf("idempgx: %w", claims.Ended(ctx, j.store.logger, j.claim.Key))
}

// end gives back what the transaction had. A handler whose response streams may
// go on to read Rows that it has left open, so the connection is not closed
// beside it, as the pool would.
func (j *joined) end(ctx context.Context) {
	j.timer.Stop()
	j.over.Store(true)
	if conn := j.conn.Conn(); conn.PgConn().IsBusy() {
		conn.Close(ctx)
	}
	j.conn.Release()
	j.store.queue.Leave(j.claim.Key)
}
