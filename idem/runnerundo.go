package idem

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// How long a task in the background waits before it tries again: twice as long
// each time.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second
)

// undo frees a claim that the store may have made although Begin failed. The
// request has not run, but its repeats would get Unknown for the whole
// retention. So undo tries until the store has answered, as saving does. The
// token makes that safe at any later time.
//
// late receives the reply of a Begin that has not returned. It may claim the
// key after the undo, so undo then frees the key again.
func (b *backend) undo(ctx context.Context, s *shard, c Claim, late lateReply) {
	b.countUndo(s, c.Key, 1)
	b.background(1)
	go func() {
		defer func() {
			b.countUndo(s, c.Key, -1)
			b.background(-1)
		}()
		end := time.After(c.Retention)
		free := Settlement{Outcome: OutcomeFree, Retention: c.Retention, Units: c.Units}
		for delay := firstRetry; ; delay = min(2*delay, longestRetry) {
			err := b.settle(ctx, b.undos, &c, free, b.options.Timeout)
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
			case <-end:
				return
			}
		}
	}()
}

// countUndo counts one claim more, or one less, that is being undone.
func (b *backend) countUndo(s *shard, key Key, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.undoing += n
	if b.undoing[key] += n; b.undoing[key] == 0 {
		delete(b.undoing, key)
	}
}

// tooManyUndone reports whether the shard must not be asked for more claims.
func (b *backend) tooManyUndone(s *shard) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.undoing >= slotsPerKind/2
}

// isUndone reports whether a claim of the key is being undone.
func (b *backend) isUndone(key Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.undoing[key] > 0
}

// jittered spreads callers that wait for the same thing.
func jittered(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
