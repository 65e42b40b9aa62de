package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
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
	asked := time.Now()
	if b.joiner != nil {
		a, err = b.join(ctx, s, c)
	} else {
		a, err = b.beginWithLease(ctx, s, c)
	}
	b.called(ctx, "begin", asked, err == nil || errors.Is(err, ErrFull))
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
	a, late, err := b.call(ctx, s.begins, b.timeout, func(ctx context.Context) (a reply, err error) {
		a.record, err = b.store.Begin(ctx, *c)
		return a, err
	})
	if err == nil {
		err = broken(&a, c)
	}
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
