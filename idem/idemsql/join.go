package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sallyport-go/sallyport/idem"
)

const (
	// unlimitedPool is how many joined requests run at once when the pool has
	// no limit.
	unlimitedPool = 32

	// longestHandler is longer than any handler holds a transaction.
	longestHandler = 24 * time.Hour

	// lookAfter is how long a joined request waits for its turn before it looks
	// whether its reply is there.
	lookAfter = 50 * time.Millisecond

	// stall is how long a joined request runs before it is asked whether it
	// waits for itself.
	stall = time.Second
)

// newTurns returns the turns of joined requests, for half of the pool. The
// other half is left to everything else, for example to handlers that use the
// pool while they hold a transaction.
func (s *Store) newTurns() *semaphore.Weighted {
	n := s.db.Stats().MaxOpenConnections / 2
	switch {
	case s.oneWriter:
		n = 1
	case s.db.Stats().MaxOpenConnections == 0:
		n = unlimitedPool
	}
	return semaphore.NewWeighted(int64(max(n, 1)))
}

// Join implements [idem.Joiner]. At most half as many transactions are open as
// the pool may have connections, 32 if it has no limit, and in SQLite one; the
// next get their turn in the order in which they came. Set the pool's size
// before the first Join. What is known already is answered out of turn, after
// 50 milliseconds.
//
// The transaction ends with its Settle and not with ctx, so each must be
// settled.
func (s *Store) Join(
	ctx context.Context, c idem.Claim, timeout time.Duration,
) (idem.Record, idem.Transaction, error) {
	if err := check(c); err != nil {
		return idem.Record{}, nil, err
	}
	if err := ctx.Err(); err != nil {
		return idem.Record{}, nil, fmt.Errorf("idemsql: join: %w", err)
	}
	// One Join of a key at a time: a second one must not wait for a turn that
	// it gets only when the first has ended.
	if !s.reserve(c.Key) {
		return idem.Record{State: idem.InFlight}, nil, nil
	}
	if !s.turns().TryAcquire(1) {
		if known, err := s.wait(ctx, c, timeout); err != nil || known.State != 0 {
			s.unreserve(c.Key)
			return known, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, longestHandler))
	defer cancel()
	// From here on turn and key belong to the goroutine that joins, or to the
	// transaction.
	type answer struct {
		record idem.Record
		joined *joined
	}
	a, err := await(ctx, "join", func() (answer, error) {
		record, j, err := s.join(ctx, c)
		if j == nil {
			s.turns().Release(1)
			s.unreserve(c.Key)
		}
		return answer{record, j}, err
	}, func(a answer) {
		if a.joined != nil {
			a.joined.Settle(context.WithoutCancel(ctx), idem.Settlement{Outcome: idem.NotStarted})
		}
	})
	if err != nil || a.joined == nil {
		return a.record, nil, err
	}
	return a.record, a.joined, nil
}

// wait waits for a turn. It returns a record if there is one that keeps the key
// from being claimed; then there is no turn.
//
// It looks for the record only after a while, and without giving its place up:
// where turns are short, a look would be one round trip more for each request.
func (s *Store) wait(ctx context.Context, c idem.Claim, timeout time.Duration) (idem.Record, error) {
	most := longestHandler
	if deadline, ok := ctx.Deadline(); ok {
		// Half of a time that is not long enough for both: a time limit outside
		// may be shorter than the database's own.
		left := time.Until(deadline)
		most = max(left-timeout, left/2)
	}
	waiting, stop := context.WithTimeout(ctx, most)
	defer stop()
	found := make(chan idem.Record, 1)
	looks := time.AfterFunc(lookAfter, func() {
		// Not bounded by the wait: a query that is cancelled costs its
		// connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishing)
		defer cancel()
		s.onPool(ctx, func(ctx context.Context, q querier) error {
			known, err := s.decision(ctx, q, s.peek, nil, peekArgs(c)...)
			if err == nil {
				found <- known
				stop()
			}
			return err
		})
	})
	defer looks.Stop()
	err := s.turns().Acquire(waiting, 1)
	if err == nil {
		return idem.Record{}, nil
	}
	select {
	case known := <-found:
		return known, nil
	default:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", idem.ErrNoTurn, err)
	}
	return idem.Record{}, fmt.Errorf("idemsql: join: waiting for a turn: %w", err)
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
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil || record.State != idem.Claimed {
		j.abandon()
		return record, nil, err
	}
	j.watch()
	return record, j, nil
}

// claimIn begins the transaction.
func (s *Store) claimIn(ctx context.Context, j *joined, c idem.Claim) (record idem.Record, err error) {
	// The row is the transaction's own until Settle writes its retention, so a
	// handler that takes longer than that must not find it expired.
	retention := c.Retention
	c.Retention = max(retention, longestHandler)
	if s.mysql != nil {
		return j.claimMySQL(ctx, c)
	}
	if j.tx, err = j.conn.BeginTx(j.ctx, &sql.TxOptions{Isolation: s.options.Isolation}); err != nil {
		return record, err
	}
	ctx = s.calm(ctx)
	record, err = s.decide(ctx, j.tx, s.dialect.join, c, retention)
	if err == nil && record.State == idem.Claimed && s.oneWriter {
		_, err = j.tx.ExecContext(ctx, "SAVEPOINT "+savepoint)
	}
	return record, err
}

// reserve reserves a key for a Join and its transaction, if no other has it.
func (s *Store) reserve(key idem.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	reserved := s.joining[key]
	s.joining[key] = true
	return !reserved
}

func (s *Store) unreserve(key idem.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.joining, key)
}
