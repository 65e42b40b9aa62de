package idem

import (
	"context"
	"errors"
	"time"
)

// undo takes back a claim that the store may have made although it did not say so. It tries until the store has answered once,
// or until the lease has ended; then the key's outcome is unknown, as after a crash.
//
// late gets the answer of a Begin that has not returned. What it claims after the store was told that nothing was started
// is told again.
func (r *Runner) undo(ctx context.Context, c Claim, late <-chan answer) {
	r.undoing.Add(1)
	r.mu.Lock()
	r.keepUnsaved(1)
	r.mu.Unlock()
	go func() {
		defer func() {
			r.undoing.Add(-1)
			r.mu.Lock()
			r.keepUnsaved(-1)
			r.mu.Unlock()
		}()
		end := time.NewTimer(c.Lease)
		defer end.Stop()
		for delay := firstRetry; ; delay = min(2*delay, time.Second) {
			err := r.settle(ctx, r.undos, c.Key, c.Token, &Settlement{Outcome: NotStarted}, r.options.Timeout)
			var again <-chan time.Time
			if answered := err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrSettled); !answered {
				again = time.After(jittered(delay))
			} else if late == nil {
				return
			}
			select {
			case <-late:
				late = nil
			case <-again:
			case <-end.C:
				return
			}
		}
	}()
}
