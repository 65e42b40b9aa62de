package idem

import (
	"context"
	"errors"
	"fmt"
)

// join asks for a claim within a transaction. The store may let the caller wait
// for its turn, so a Join gets Options.Wait beside the timeout, and ends when
// the caller leaves.
func (r *Runner) join(ctx context.Context, c Claim) (Record, Joined, error) {
	c.Timeout = r.options.Timeout
	if r.options.Wait < 0 {
		c.Timeout /= 2 // the other half is for the turn
	}
	bounded, cancel := context.WithTimeout(ctx, r.options.Timeout+max(r.options.Wait, 0))
	a, late := r.callBounded(bounded, cancel, r.begins, func(ctx context.Context) reply {
		record, joined, err := r.joiner.Join(ctx, c)
		return reply{record: record, joined: joined, err: err}
	})
	switch a.err {
	case nil:
		a.err = broken(&a.record, &c)
	case errNotCalled: // slotsPerKind calls of Join have not returned
		a.err = fmt.Errorf("%w: %w", ErrNoTurn, a.err)
	}
	if a.err == nil && (a.record.State == Claimed) != (a.joined != nil) {
		a.err = fmt.Errorf("idem: the store broke its contract: %v with the transaction %v", a.record.State, a.joined)
	}
	if a.err != nil {
		r.rollBack(ctx, a.joined, late)
		return Record{}, nil, a.err
	}
	return a.record, a.joined, nil
}

// rollBack ends a transaction that no caller takes: it came with an error, or
// it may come too late.
func (r *Runner) rollBack(ctx context.Context, joined Joined, late <-chan reply) {
	if joined == nil && late == nil {
		return
	}
	r.background(1)
	go func() {
		defer r.background(-1)
		if joined == nil {
			joined = (<-late).joined
		}
		if joined != nil {
			r.settleJoined(ctx, joined, Settlement{Outcome: NotStarted})
		}
	}()
}

// settleJoined ends a transaction. It takes no slot: a transaction must be
// ended, and there are no more of them than there are executions.
func (r *Runner) settleJoined(ctx context.Context, joined Joined, s Settlement) error {
	a, late := r.call(ctx, nil, r.options.Timeout, func(ctx context.Context) reply {
		return reply{err: joined.Settle(ctx, s)}
	})
	if s.Outcome == Finished && (late != nil || errors.Is(a.err, errPanicked) || errors.Is(a.err, errNoReturn)) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, a.err)
	}
	return a.err
}
