package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/sallyport-go/sallyport/idem/internal/bounded"
)

// begin asks the store for a claim.
func (b *backend) begin(ctx context.Context, c *Claim) (Record, Transaction, error) {
	if b.local != nil {
		record, err := b.local.Begin(context.Background(), *c)
		return record, nil, err
	}
	s := b.shard(c.Key)
	began, err := s.outage.asks()
	if err != nil {
		return Record{}, nil, err
	}
	var a reply
	if b.joiner != nil {
		a, err = b.join(ctx, s, c)
	} else {
		a, err = b.beginWithLease(ctx, s, c)
	}
	// A Join also ends when its caller leaves, or others have failed.
	left := b.joiner != nil && ctx.Err() != nil
	if !left && !errors.Is(err, ErrNoTurn) && !errors.Is(err, errOutage) {
		b.told(ctx, s, err, began)
	}
	if (a.record.State == Unknown || a.record.State == InProgress) && b.isUndone(c.Key) {
		// The record is probably a claim of this process that never ran. It is
		// about to be freed, so its fingerprint does not count.
		a.record = Record{State: InProgress, RetryAfter: longestRetry}
	}
	return a.record, a.transaction, err
}

func (b *backend) beginWithLease(ctx context.Context, s *shard, c *Claim) (reply, error) {
	if b.tooManyUndone(s) {
		// Each Begin that failed is being undone. Without this bound a store
		// that is down would add one such task for each request.
		return reply{}, errUndoing
	}
	traced, call := b.calls(ctx, "begin")
	a, late, err := b.call(traced, s.begins, b.options.Timeout, func(ctx context.Context) (a reply, err error) {
		a.record, err = b.store.Begin(ctx, *c)
		return a, err
	})
	if err == nil {
		err = broken(&a, c)
	}
	call.End(err == nil || errors.Is(err, ErrFull), err)
	switch {
	case err == nil:
		return a, nil
	case err != errNotCalled && !errors.Is(err, ErrFull):
		b.undo(ctx, s, *c, late)
	}
	return reply{}, err
}

// broken returns an error for an answer that the contracts of Store and Joiner
// exclude. Such an answer could run a request twice, or answer one with
// nothing.
func broken(a *reply, c *Claim) error {
	r := &a.record
	switch {
	case r.State < Claimed || r.State > Unknown:
	case r.State == Claimed && (r.Attempt < 1 || r.Fingerprint != c.Fingerprint):
	case r.State != InProgress && r.Fingerprint == [32]byte{} && c.Fingerprint != [32]byte{}:
	default:
		return nil
	}
	return fmt.Errorf("idem: the store broke its contract: %v, attempt %d, fingerprint %x",
		r.State, r.Attempt, r.Fingerprint[:4])
}

// join asks for a claim within a transaction. The store may let the caller wait
// for its turn, so a Join gets Options.Wait beside the timeout, and ends when
// the caller leaves.
func (b *backend) join(ctx context.Context, s *shard, c *Claim) (reply, error) {
	o := b.options
	timeout := o.Timeout
	if o.Wait < 0 {
		timeout /= 2 // the other half is for the turn
	}
	traced, call := b.calls(ctx, "begin")
	within, cancel := context.WithTimeout(traced, o.Timeout+max(o.Wait, 0))
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
	call.End(err == nil || errors.Is(err, ErrFull), err)
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
			b.end(ctx, t, Settlement{Outcome: OutcomeFree, Retention: b.options.Retention})
		}
	}()
}

// end ends a transaction. It takes no slot: a transaction must be ended, and
// there are no more of them than there are executions.
func (b *backend) end(ctx context.Context, t Transaction, s Settlement) error {
	ctx, call := b.calls(ctx, "settle")
	_, late, err := b.call(ctx, nil, b.options.Timeout,
		func(ctx context.Context) (reply, error) { return reply{}, t.Settle(ctx, s) })
	call.End(err == nil || errors.Is(err, ErrConstraint) || errors.Is(err, ErrBroken), err)
	if s.Outcome == OutcomeDone && (late != nil || errors.Is(err, errPanicked) || errors.Is(err, bounded.ErrNoReturn)) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
	}
	return err
}
