package claims

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// One scans the only row of a statement. Without one it is sql.ErrNoRows.
type One func(ctx context.Context, statement string, dest []any, args ...any) error

// A Conn is a connection that a joined request has for itself. Its statements
// run in the transaction for as long as there is one.
type Conn interface {
	// Exec runs a write and returns how many rows it has changed.
	Exec(ctx context.Context, statement string, args ...any) (rows int, err error)
	// One is as the type One.
	One(ctx context.Context, statement string, dest []any, args ...any) error

	// Claim begins the transaction and claims the key in it, or returns the
	// record that keeps it from being claimed. The row is to be swept after the
	// retention. It notes the role of the session, if that is watched.
	Claim(ctx context.Context, c idem.Claim, retention time.Duration, watched bool) (idem.Record, error)
	// Ready returns an error when nothing can be settled: ErrEnded, or that of a
	// connection that is gone or in use, which Release closes.
	Ready(ctx context.Context) error
	// Save turns the claim into the reply. Where Joiner.Keep is empty it first
	// takes back what the handler wrote, if the reply is to roll back. Its error
	// proves that nothing was committed. It may send COMMIT along.
	Save(ctx context.Context, t idem.Settlement) error
	// Commit commits, or says how that went. The moment of an error is
	// AtSettlement if it proves that nothing was committed.
	Commit(ctx context.Context) (Moment, error)
	// Rollback does nothing when there is no transaction.
	Rollback(ctx context.Context) error

	// Context returns a context with the transaction.
	Context(parent context.Context) context.Context
	// Release gives the connection back, or closes it if it is in doubt.
	Release(ctx context.Context, doubtful bool)
}

// ErrEnded means that the handler has ended its transaction.
var ErrEnded = errors.New("the transaction has ended")

// A Joiner joins requests with transactions of a database.
type Joiner struct {
	Package string // in errors
	Logger  *slog.Logger
	Names   *Names

	Size  func() int         // of the pool of connections; 0 is no limit
	Waits func() func() bool // what Watch takes
	Conn  func(ctx context.Context) (Conn, error)
	One   One // on any connection

	// Statements: Peek; Mark; PostgresKeep where a transaction that has failed
	// cannot roll back a part of itself; Held where a rollback does not say that
	// the handler has committed.
	Peek, Mark, Keep, Held string

	Roles    bool // sessions have roles; see NoteRole
	Outlasts bool // calls may outlast their context
	Tells    bool // Ready finds out that a transaction has ended, but for one that began another

	joining, settling, committing string
	queue                         *Queue
	roles                         Roles
}

// Open returns the Joiner, which is ready then.
func (e *Joiner) Open() *Joiner {
	e.joining, e.settling, e.committing = e.Package+": join", e.Package+": settle", e.Package+": commit"
	e.queue = NewQueue(e.Size)
	return e
}

// An answer is that of Join.
type answer struct {
	record idem.Record
	joined *joined
}

// Join is that of [idem.Joiner].
func (e *Joiner) Join(ctx context.Context, c idem.Claim, timeout time.Duration) (idem.Record, idem.Transaction, error) {
	if err := cmp.Or(Check(c), ctx.Err()); err != nil {
		return idem.Record{}, nil, fmt.Errorf("%s: %w", e.joining, err)
	}
	known, deadline, err := e.queue.Enter(ctx, c.Key, timeout, func(ctx context.Context) (idem.Record, error) {
		r, err := Ask(ctx, e.One, e.Peek, PeekArgs(&c)...)
		if r.State == Lapsed {
			err = ErrOvertaken // it is marked when its turn has come
		}
		return r, err
	})
	if err != nil {
		return idem.Record{}, nil, fmt.Errorf("%s: %w", e.joining, err)
	}
	if known.State != 0 {
		return known, nil, nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	// From here on turn and key belong to the goroutine that joins, or to the
	// transaction.
	join := func() (a answer, err error) {
		defer func() {
			if a.joined == nil { // also when a tracer of pgx panicked
				e.queue.Leave(c.Key)
			}
		}()
		// Each time in a new transaction: the snapshot of the last may be too old.
		a, err = repeated(ctx, func() (answer, error) { return e.tryJoin(ctx, c) })
		if err == nil {
			e.queue.Answered()
		}
		return a, err
	}
	var a answer
	if e.Outlasts {
		a, err = Await(ctx, e.joining, join, func(a answer) {
			if a.joined != nil {
				a.joined.Settle(context.WithoutCancel(ctx), idem.Settlement{Outcome: idem.OutcomeFree})
			}
		})
	} else {
		a, err = join()
		err = CallError(ctx, e.joining, err)
	}
	if err != nil || a.joined == nil {
		return a.record, nil, err
	}
	return a.record, a.joined, nil
}

// tryJoin claims the key in a transaction, unless another is quicker.
func (e *Joiner) tryJoin(ctx context.Context, c idem.Claim) (a answer, err error) {
	conn, err := e.Conn(ctx)
	if err != nil {
		return answer{}, err
	}
	defer func() {
		if a.joined == nil {
			conn.Release(ctx, false)
		}
	}()
	if err := e.Names.Locate(ctx, conn.One); err != nil {
		return answer{}, err
	}
	j := &joined{Joiner: e, Conn: conn, claim: c, watched: e.Roles && e.roles.Watched()}
	longer := c
	longer.Retention = max(c.Retention, LongestHandler)
	record, err := conn.Claim(ctx, longer, c.Retention, j.watched)
	if err == nil && record.State == idem.Claimed {
		j.timer = Watch(context.WithoutCancel(ctx), e.Logger, c.Key, e.Waits())
		return answer{record, j}, nil
	}
	conn.Rollback(ctx)
	if err == nil && record.State == Lapsed {
		record.State = idem.Unknown
		var marked int
		if marked, err = conn.Exec(ctx, e.Mark, j.claim.Key[:]); err == nil && marked == 0 {
			err = ErrOvertaken
		}
	}
	return answer{record: record}, err
}

// joined is a claim held by a transaction. The claim is a row in it, like one
// with a lease; nobody sees it unless the handler commits.
type joined struct {
	*Joiner
	Conn
	claim    idem.Claim
	timer    *time.Timer
	watched  bool // the role is noted
	doubtful bool // what the session has may outlast the transaction
}

func (j *joined) Settle(ctx context.Context, t idem.Settlement) error {
	defer j.end(ctx)
	j.queue.Asks()
	switch err := j.Conn.Ready(ctx); {
	case err == ErrEnded:
		return j.notSaved(ctx, err)
	case err != nil && t.Outcome != idem.OutcomeDone && ctx.Err() == nil:
		return nil
	case err != nil:
		return CallError(ctx, j.settling, err)
	case t.Outcome != idem.OutcomeDone:
		err := j.Conn.Rollback(ctx)
		if err == nil && !j.Tells {
			err = j.committed(ctx)
		}
		return j.notSaved(ctx, err)
	case t.RollBack && j.Keep != "":
		return j.rollBackAndKeep(ctx, t)
	}
	if err := j.save(ctx, t); err != nil {
		if j.Conn.Rollback(ctx) == nil && err != ErrEnded {
			err = cmp.Or(j.committed(ctx), err)
		}
		return j.notSaved(ctx, err)
	}
	at, err := j.Conn.Commit(ctx)
	if err != nil {
		return Fault(ctx, j.committing, at, err)
	}
	j.queue.Answered()
	return nil
}

func (j *joined) save(ctx context.Context, t idem.Settlement) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if j.watched {
		var changed bool
		if err := j.Conn.One(ctx, RestoreRole, []any{&changed, new(string)}); err != nil {
			return err
		}
		j.roles.Found(changed)
	}
	return j.Conn.Save(ctx, t)
}

// rollBackAndKeep rolls back, which works after any error of a statement too,
// and then stores the reply by itself. The lock of the key ends with the
// transaction, so another request may take the key in between. It then owns the
// key: this reply is not stored, and the client is told to try again.
func (j *joined) rollBackAndKeep(ctx context.Context, t idem.Settlement) error {
	if err := j.Conn.Rollback(ctx); err != nil {
		return j.notSaved(ctx, err)
	}
	args := KeepArgs(j.claim, t)
	rows, err := 0, error(ErrOvertaken)
	for Again(err) {
		if err := ctx.Err(); err != nil {
			return j.notSaved(ctx, err)
		}
		rows, err = j.Conn.Exec(ctx, j.Keep, args...)
	}
	switch {
	case err == nil && rows == 1:
		j.queue.Answered()
		return nil
	case err == nil:
		return j.notSaved(ctx, cmp.Or(j.committed(ctx), errors.New("the key was taken before the reply was stored")))
	case Refused(err):
		return CallError(ctx, j.settling, err)
	}
	return fmt.Errorf("%s: %w: %w", j.Package, idem.ErrCommitUnknown, err)
}

// committed returns an error unless the claim is gone after a rollback: then the
// handler has committed it.
func (j *joined) committed(ctx context.Context) error {
	if j.Held == "" || ctx.Err() != nil {
		return nil
	}
	switch err := j.Conn.One(ctx, j.Held, []any{new(bool)}, j.claim.Key[:], j.claim.Token[:]); {
	case err == nil:
		return ErrEnded
	case errors.Is(err, sql.ErrNoRows):
		return nil
	default:
		return fmt.Errorf("%w: %w", idem.ErrCommitUnknown, err)
	}
}

// notSaved returns the error of a transaction that was not committed here.
func (j *joined) notSaved(ctx context.Context, err error) error {
	if err == ErrEnded || ctx.Err() == nil && errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%s: %w", j.Package, Ended(ctx, j.Logger, j.claim.Key))
	}
	err = Fault(ctx, j.settling, j.roles.Moment(j.watched, err), err)
	j.doubtful = j.Keep == "" && err != nil
	return err
}

// end gives back what the transaction had.
func (j *joined) end(ctx context.Context) {
	j.timer.Stop()
	j.Conn.Release(ctx, j.doubtful)
	j.queue.Leave(j.claim.Key)
}
