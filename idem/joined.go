package idem

import (
	"context"
	"errors"
	"fmt"
)

// join asks for a claim within a transaction. The store may let the caller wait for its turn, so that a Join gets Options.Wait
// beside the timeout, and ends when the caller leaves.
func (r *Runner) join(ctx context.Context, c Claim) (Record, Joined, error) {
	bounded, cancel := context.WithTimeout(ctx, r.options.Timeout+max(r.options.Wait, 0))
	a, late := r.await(bounded, cancel, r.begins, func(ctx context.Context) answer {
		record, joined, err := r.joiner.Join(ctx, c)
		return answer{record: record, joined: joined, err: err}
	})
	state := a.record.State
	if a.err == nil && (state < Claimed || state > Unknown || (state == Claimed) != (a.joined != nil)) {
		a.err = fmt.Errorf("idem: the store answered with %v and the transaction %v", state, a.joined)
	}
	if a.err != nil {
		r.rollBack(ctx, a.joined, late)
		return Record{}, nil, a.err
	}
	return a.record, a.joined, nil
}

// rollBack ends a transaction that nobody takes: one that came with an error, or one that may come too late.
func (r *Runner) rollBack(ctx context.Context, joined Joined, late <-chan answer) {
	if joined == nil && late == nil {
		return
	}
	r.mu.Lock()
	r.keepUnsaved(1)
	r.mu.Unlock()
	go func() {
		if joined == nil {
			joined = (<-late).joined
		}
		if joined != nil {
			r.settleJoined(ctx, joined, Settlement{Outcome: NotStarted})
		}
		r.mu.Lock()
		r.keepUnsaved(-1)
		r.mu.Unlock()
	}()
}

// settleJoined ends a transaction. It takes no place in a lane: a transaction must be ended, and there are no more of them than
// there are executions.
func (r *Runner) settleJoined(ctx context.Context, joined Joined, s Settlement) error {
	a, late := r.call(ctx, nil, r.options.Timeout, func(ctx context.Context) answer {
		return answer{err: joined.Settle(ctx, s)}
	})
	if s.Outcome == Finished && (late != nil || errors.Is(a.err, errPanicked) || errors.Is(a.err, errNoReturn)) {
		return fmt.Errorf("%w: %w", ErrCommitUnknown, a.err)
	}
	return a.err
}
