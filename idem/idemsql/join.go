package idemsql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sallyport-go/sallyport/idem"
)

const (
	// unlimitedPool is how many joined requests run at once when the pool has no
	// limit.
	unlimitedPool = 32

	// stall is how long a joined request runs before it is asked whether it waits
	// for itself.
	stall = time.Second
)

// newTurns returns the turns of joined requests. The other half of the pool
// is for everything else, not least for handlers that use the pool while
// they hold a transaction.
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
// the pool may have connections, 32 if it has no limit, and in SQLite one;
// the next get their turn in the order in which they came. Set the pool's size
// before the first Join. What is known already is answered out of turn.
//
// The transaction ends with the Joined's Settle and not with ctx, so whoever
// gets one must settle it.
func (s *Store) Join(ctx context.Context, c idem.Claim) (idem.Record, idem.Joined, error) {
	if err := check(c); err != nil {
		return idem.Record{}, nil, err
	}
	if s.isOpen(c.Key) {
		return idem.Record{State: idem.InFlight}, nil, nil
	}
	if !s.turns().TryAcquire(1) {
		if known, err := s.look(ctx, c); err == nil {
			return known, nil, nil
		}
		if err := s.turns().Acquire(ctx, 1); err != nil {
			return idem.Record{}, nil, fmt.Errorf("idemsql: join: waiting for a turn: %w", err)
		}
	}
	// From here on the turn is joining's, or the transaction's.
	type answer struct {
		record idem.Record
		joined *joined
	}
	a, err := await(ctx, "join", func() (answer, error) {
		record, j, err := s.join(ctx, c)
		if j == nil {
			s.turns().Release(1)
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

// look says what is there, and nothing when the key may be claimed.
func (s *Store) look(ctx context.Context, c idem.Claim) (r idem.Record, err error) {
	err = s.onPool(ctx, func(ctx context.Context, q querier) error {
		r, err = decision(ctx, q, s.peek, peekArgs(c)...)
		return err
	})
	return r, err
}

// join claims the key in a transaction. When another was quicker the
// transaction is of no use: what it sees may be as old as its beginning.
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
	// The transaction outlives ctx, and until it is handed over it ends with it.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	j := &joined{store: s, ctx: txCtx, cancel: cancel, conn: conn, key: c.Key, token: c.Token}
	record, err := s.claimIn(ctx, j, c)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil || record.State != idem.Claimed {
		j.abandon()
		return record, nil, err
	}
	s.setOpen(j.key, true)
	j.watch()
	return record, j, nil
}

// claimIn begins the transaction.
func (s *Store) claimIn(ctx context.Context, j *joined, c idem.Claim) (record idem.Record, err error) {
	if j.tx, err = j.conn.BeginTx(j.ctx, &sql.TxOptions{Isolation: s.options.Isolation}); err != nil {
		return record, err
	}
	ctx = s.calm(ctx)
	record, err = s.decide(ctx, j.tx, s.dialect.join, c)
	if err == nil && record.State == idem.Claimed {
		_, err = j.tx.ExecContext(ctx, "SAVEPOINT "+savepoint)
	}
	return record, err
}

func (s *Store) isOpen(key idem.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.open[key]
	return open
}

func (s *Store) setOpen(key idem.Key, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.open[key] = struct{}{}
	} else {
		delete(s.open, key)
	}
}
