package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// size returns how many connections the pool may have, as the queue takes it.
func (s *Store) size() int {
	if s.oneWriter {
		return 1
	}
	return s.db.Stats().MaxOpenConnections
}

// Join implements [idem.Joiner]. At most half as many transactions are open as
// the pool may have connections, 32 if it has no limit, and in SQLite one; the
// next get their turn in the order in which they came. Set the pool's size
// before the first Join. A request that has waited for 50 milliseconds gets the
// reply that is there already, without its turn.
//
// The transaction ends with its Settle and not with ctx, so each must be
// settled.
func (s *Store) Join(
	ctx context.Context, c idem.Claim, timeout time.Duration,
) (idem.Record, idem.Transaction, error) {
	if err := cmp.Or(claims.Check(c), ctx.Err()); err != nil {
		return idem.Record{}, nil, fmt.Errorf("idemsql: join: %w", err)
	}
	known, deadline, err := s.queue.Enter(ctx, c.Key, timeout, func(ctx context.Context) (r idem.Record, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) error {
			if r, err = s.decision(ctx, q, s.peek, nil, claims.PeekArgs(c)...); r.State == claims.Lapsed {
				err = claims.ErrOvertaken // it is marked when its turn has come
			}
			return err
		})
		return r, err
	})
	if err != nil {
		return idem.Record{}, nil, fmt.Errorf("idemsql: join: %w", err)
	}
	if known.State != 0 {
		return known, nil, nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	// From here on turn and key belong to the goroutine that joins, or to the
	// transaction.
	type answer struct {
		record idem.Record
		joined *joined
	}
	a, err := await(ctx, "join", func() (answer, error) {
		record, j, err := s.join(ctx, c)
		if err == nil {
			s.queue.Answered()
		}
		if j == nil {
			s.queue.Leave(c.Key)
		}
		return answer{record, j}, err
	}, func(a answer) {
		if a.joined != nil {
			a.joined.Settle(context.WithoutCancel(ctx), idem.Settlement{Outcome: idem.OutcomeFree})
		}
	})
	if err != nil || a.joined == nil {
		return a.record, nil, err
	}
	return a.record, a.joined, nil
}

// join claims the key in a transaction. When another was quicker it begins a
// new transaction, because the snapshot of this one may be too old.
func (s *Store) join(ctx context.Context, c idem.Claim) (idem.Record, *joined, error) {
	for {
		record, j, err := s.tryJoin(ctx, c)
		if !again(err) || ctx.Err() != nil {
			return record, j, err
		}
	}
}

func (s *Store) tryJoin(ctx context.Context, c idem.Claim) (idem.Record, *joined, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return idem.Record{}, nil, err
	}
	// The transaction outlives ctx, and until it is handed over it ends with
	// it.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	j := &joined{store: s, ctx: txCtx, cancel: cancel, conn: conn, key: c.Key, token: c.Token, claim: c}
	record, err := s.claimIn(ctx, j, c)
	stop()
	err = cmp.Or(err, ctx.Err())
	if err != nil || record.State != idem.Claimed {
		j.abandon()
		if record.State == claims.Lapsed {
			record.State = idem.Unknown
			err = s.onPool(ctx, func(ctx context.Context, q querier) error { return s.told(ctx, q, c.Key) })
		}
		return record, nil, err
	}
	j.timer = claims.Watch(txCtx, s.options.Logger, c.Key, s.waitedFor())
	return record, j, nil
}

// waitedFor returns a function that says whether all connections are in use and
// something has begun to wait for one.
func (s *Store) waitedFor() func() bool {
	before := s.db.Stats().WaitCount
	return func() bool {
		now := s.db.Stats()
		return now.InUse >= now.MaxOpenConnections && now.WaitCount > before
	}
}

// claimIn begins the transaction.
func (s *Store) claimIn(ctx context.Context, j *joined, c idem.Claim) (record idem.Record, err error) {
	if err := s.locate(ctx, j.conn); err != nil {
		return idem.Record{}, err
	}
	retention := c.Retention
	c.Retention = max(retention, claims.LongestHandler)
	if s.mysql != nil {
		return j.claimMySQL(ctx, c)
	}
	if j.tx, err = j.conn.BeginTx(j.ctx, &sql.TxOptions{Isolation: s.options.Isolation}); err != nil {
		return idem.Record{}, err
	}
	ctx = s.calm(ctx)
	record, err = s.decide(ctx, j.tx, s.dialect.join, c, retention)
	if err != nil || record.State != idem.Claimed {
		return record, err
	}
	if s.oneWriter {
		_, err = j.tx.ExecContext(ctx, "SAVEPOINT "+savepoint)
	} else if j.watched = s.roles.Watched(); j.watched {
		err = s.one(ctx, j.tx, claims.NoteRole, []any{new(string)})
	}
	return record, err
}
