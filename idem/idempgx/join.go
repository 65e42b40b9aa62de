package idempgx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// JoinHonorsContext promises, in the meaning of [idem.Store], that neither Join
// nor the Settle of its transactions outlasts its context: pgx closes the
// connection.
func (s *Store) JoinHonorsContext() {}

// Join implements [idem.Joiner]. At most half as many transactions are open as
// the pool may have connections; the next get their turn in the order in which
// they came. A request that has waited for 50 milliseconds gets the reply that
// is there already, without its turn.
//
// The transaction ends with its Settle and not with ctx, so each must be
// settled.
func (s *Store) Join(
	ctx context.Context, c idem.Claim, timeout time.Duration,
) (idem.Record, idem.Transaction, error) {
	if err := cmp.Or(claims.Check(c), ctx.Err()); err != nil {
		return idem.Record{}, nil, fmt.Errorf("idempgx: join: %w", err)
	}
	known, deadline, err := s.queue.Enter(ctx, c.Key, timeout, func(ctx context.Context) (idem.Record, error) {
		r, err := s.ask(ctx, s.pool, peek, claims.PeekArgs(c))
		if r.State == claims.Lapsed {
			err = claims.ErrOvertaken // it is marked when its turn has come
		}
		return r, err
	})
	if err != nil {
		return idem.Record{}, nil, fmt.Errorf("idempgx: join: %w", err)
	}
	if known.State != 0 {
		return known, nil, nil
	}
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var j *joined
	defer func() {
		if j == nil { // also when a tracer of pgx panicked
			s.queue.Leave(c.Key)
		}
	}()
	record, j, err := s.join(within, c)
	if err == nil {
		s.queue.Answered()
	}
	if j == nil {
		return record, nil, claims.CallError(within, "idempgx: join", err)
	}
	j.timer = claims.Watch(context.WithoutCancel(ctx), s.logger, c.Key, s.waitedFor())
	return record, j, nil
}

// waitedFor returns a function that says whether all connections are in use and
// none has come free meanwhile. A pool does not tell what waits for one.
func (s *Store) waitedFor() func() bool {
	before := s.pool.Stat().AcquireCount()
	return func() bool {
		now := s.pool.Stat()
		return now.AcquiredConns() >= now.MaxConns() && now.AcquireCount() == before
	}
}

// join claims the key in a transaction. When another was quicker it begins a
// new transaction, because the snapshot of this one may be too old.
func (s *Store) join(ctx context.Context, c idem.Claim) (idem.Record, *joined, error) {
	for {
		record, j, err := s.tryJoin(ctx, c)
		if !claims.Again(err) || ctx.Err() != nil {
			return record, j, err
		}
	}
}

func (s *Store) tryJoin(ctx context.Context, c idem.Claim) (idem.Record, *joined, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return idem.Record{}, nil, err
	}
	j, held := &joined{store: s, conn: conn, claim: c}, false
	defer func() {
		if !held {
			conn.Release()
		}
	}()
	err = s.names.Locate(ctx, func(ctx context.Context, statement string, dest ...any) error {
		return conn.QueryRow(ctx, s.names.Text(statement)).Scan(dest...)
	})
	if err != nil {
		return idem.Record{}, nil, err
	}
	record, err := j.begin(ctx)
	if held = err == nil && record.State == idem.Claimed; held {
		return record, j, nil
	}
	j.rollBack(ctx)
	if record.State == claims.Lapsed {
		record.State = idem.Unknown
		var marked pgconn.CommandTag
		if marked, err = conn.Exec(ctx, s.names.Text(mark), c.Key[:]); err == nil && marked.RowsAffected() == 0 {
			err = claims.ErrOvertaken
		}
	}
	return record, nil, err
}

// begin begins the transaction and claims the key of a request that has no row,
// as most have not, in one round trip. BEGIN takes no snapshot.
func (j *joined) begin(ctx context.Context) (idem.Record, error) {
	c, s := j.claim, j.store
	c.Retention = max(c.Retention, claims.LongestHandler)
	args := claims.PostgresArgs(c, j.claim.Retention)
	b := &pgx.Batch{}
	b.BeginTx(s.options)
	b.Queue(s.names.Text(fresh), args...)
	if j.watched = s.roles.Watched(); j.watched {
		b.Queue(claims.NoteRole)
	}
	results := j.conn.SendBatch(ctx, b)
	results.Exec()
	claimed, err := results.Exec()
	if err := cmp.Or(err, results.Close()); err != nil {
		return idem.Record{}, err
	}
	j.tx = handlerTx{guarded{results.Tx(), &j.over}}
	if claimed.RowsAffected() == 1 {
		return idem.Record{State: idem.Claimed, Fingerprint: c.Fingerprint, Attempt: 1}, nil
	}
	record, err := s.ask(ctx, j.conn, decide, args)
	if errors.Is(err, pgx.ErrNoRows) {
		err = claims.ErrOvertaken
	}
	return record, err
}

// A querier is a pool or a connection.
type querier interface {
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}

// ask runs a statement that begins, or its part that only looks.
func (s *Store) ask(ctx context.Context, q querier, statement string, args []any) (idem.Record, error) {
	var a claims.Answer
	if err := q.QueryRow(ctx, s.names.Text(statement), args...).Scan(a.Columns()...); err != nil {
		return idem.Record{}, err
	}
	return a.Record()
}
