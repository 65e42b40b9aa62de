package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/bounded"
)

// join asks for a claim within a transaction. The store may let the caller wait
// for its turn, so a Join gets Options.Wait beside the timeout, and ends when
// the caller leaves.
func (b *backend) join(ctx context.Context, s *shard, c *Claim) (reply, error) {
	timeout := b.timeout
	if b.wait < 0 {
		timeout /= 2 // the other half is for the turn
	}
	within, cancel := context.WithTimeout(ctx, b.timeout+max(b.wait, 0))
	defer cancel()
	// Most Joins wait for a turn, which may not come while the store fails.
	outage := s.outage.untilOpen()
	defer context.AfterFunc(outage, cancel)()
	a, late, err := b.callUntil(within, s.begins, func(ctx context.Context) (a reply, err error) {
		a.record, a.transaction, err = b.joiner.Join(ctx, *c, timeout)
		return a, err
	})
	switch err {
	case nil:
		err = broken(&a, c)
	case errNotCalled: // slotsPerKind calls of Join have not returned
		err = fmt.Errorf("%w: %w", ErrNoTurn, err)
	}
	if err == nil && (a.record.State == Claimed) != (a.transaction != nil) {
		err = fmt.Errorf("idem: the store broke its contract: %v with the transaction %v", a.record.State, a.transaction)
	}
	if err != nil {
		b.rollBack(ctx, a.transaction, late)
		if outage.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrNoTurn) {
			err = fmt.Errorf("%w: %v", errOutage, err)
		}
		return reply{}, err
	}
	return a, nil
}

// rollBack ends a transaction that no caller takes: it came with an error, or
// it may come too late.
func (b *backend) rollBack(ctx context.Context, t Transaction, late lateReply) {
	if t == nil && late == nil {
		return
	}
	b.background(1)
	go func() {
		defer b.background(-1)
		if t == nil {
			t = (<-late).Value.transaction
		}
		if t != nil {
			b.end(ctx, t, Settlement{Outcome: OutcomeFree})
		}
	}()
}

// end ends a transaction. It takes no slot: a transaction must be ended, and
// there are no more of them than there are executions.
func (b *backend) end(ctx context.Context, t Transaction, s Settlement) error {
	asked := time.Now()
	_, late, err := b.call(ctx, nil, b.timeout,
		func(ctx context.Context) (reply, error) { return reply{}, t.Settle(ctx, s) })
	b.called(ctx, "settle", asked, err == nil || errors.Is(err, ErrConstraint) || errors.Is(err, ErrBroken))
	if s.Outcome == OutcomeDone && (late != nil || errors.Is(err, errPanicked) || errors.Is(err, bounded.ErrNoReturn)) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}
