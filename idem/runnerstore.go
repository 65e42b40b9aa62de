package idem

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// slotsPerKind is how many calls of one kind may be open at once. A call that
// never returns keeps its slot.
const slotsPerKind = 1024

// slots limit the open calls of one kind. Each kind has its own: when every
// Begin hangs, the outcomes of earlier claims can still be saved.
type slots chan struct{}

// reply is what a call of the store returned.
type reply struct {
	record Record
	joined Joined
	err    error
}

var (
	errNotCalled = errors.New("idem: too many calls of the store have not returned")
	errNoReturn  = errors.New("idem: the call of the store ended its goroutine")
	errPanicked  = errors.New("idem: the store panicked")
	errUndoing   = errors.New("idem: the store has failed too often; claims are being undone")
)

// Prompt is implemented by a [Store] whose methods return soon after their
// context is done, whatever the network and the driver do. A [Runner] calls
// such a store in the goroutine of the request. For any other one it starts a
// goroutine with each call, to be able to leave it behind, which takes a
// quarter of the processor time of a create in Redis. So it does for a [Joiner]
// when Options.Join is set.
type Prompt interface{ Prompt() }

// call calls the store and waits for its reply no longer than the timeout, even
// if the store ignores its context, unless it is Prompt. The end of ctx does
// not end the call. If the store did not reply in time, late receives its
// reply, if there ever is one.
func (r *Runner) call(ctx context.Context, s slots, timeout time.Duration, do func(context.Context) reply) (a reply, late <-chan reply) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	return r.callBounded(ctx, cancel, s, do)
}

// callBounded is call with a context that is bounded already. It calls cancel
// when the store has replied.
func (r *Runner) callBounded(ctx context.Context, cancel context.CancelFunc, s slots, do func(context.Context) reply) (reply, <-chan reply) {
	if s != nil {
		select {
		case s <- struct{}{}:
		case <-ctx.Done():
			return reply{err: errNotCalled}, nil
		}
	}
	if r.prompt {
		defer func() {
			cancel()
			if s != nil {
				<-s
			}
		}()
		return r.guard(ctx, do), nil
	}
	done := make(chan reply, 1)
	go func() {
		a := reply{err: errNoReturn} // unless do returns: it may call runtime.Goexit
		defer func() {
			// Send the reply before cancel: otherwise the caller would see a
			// timeout.
			done <- a
			cancel()
			if s != nil {
				<-s
			}
		}()
		a = r.guard(ctx, do)
	}()
	var a reply
	select {
	case a = <-done:
	case <-ctx.Done():
		// Both may be ready, and select chooses at random: a reply that is
		// there counts.
		select {
		case a = <-done:
		default:
			return reply{err: fmt.Errorf("idem: the store did not answer in time: %w", context.Cause(ctx))}, done
		}
	}
	return a, nil
}

// guard turns a panic of the store into an error.
func (r *Runner) guard(ctx context.Context, do func(context.Context) reply) (a reply) {
	defer func() {
		if p := recover(); p != nil {
			r.options.Logger.ErrorContext(ctx, "the store of idempotent requests panicked", "panic", p, "stack", string(debug.Stack()))
			a = reply{err: fmt.Errorf("%w: %v", errPanicked, p)}
		}
	}()
	return do(ctx)
}

// newToken returns a token that no other claim has. In a Memory a number is
// enough; a random one costs a tenth of a short create.
func (r *Runner) newToken() (t ClaimToken) {
	if r.memory != nil {
		binary.LittleEndian.PutUint64(t[8:], r.memory.tokens.Add(1))
		return t
	}
	rand.Read(t[:]) // never returns an error: it ends the program instead
	return t
}

// clock is now, for a store whose claims have leases. With a Memory it is not
// needed, and reading the clock twice takes a tenth of a short create.
func (r *Runner) clock() time.Duration {
	if r.memory != nil {
		return 0
	}
	return r.now()
}

// begin asks the store for a claim.
func (r *Runner) begin(ctx context.Context, c Claim) (Record, Joined, error) {
	if r.memory != nil && r.joiner == nil {
		record, err := r.memory.Begin(context.Background(), c)
		return record, nil, err
	}
	if err := r.outage.asks(r.now()); err != nil {
		return Record{}, nil, err
	}
	var record Record
	var joined Joined
	var err error
	if r.joiner != nil {
		record, joined, err = r.join(ctx, c)
	} else {
		record, err = r.beginRemote(ctx, c)
	}
	// A Join also ends when its caller leaves.
	if left := r.joiner != nil && ctx.Err() != nil; !left && !errors.Is(err, ErrNoTurn) {
		if over := r.outage.told(err, r.now()); over > 0 {
			r.options.Logger.InfoContext(ctx, "the store of idempotent requests answers again", "after", over)
		}
	}
	return record, joined, err
}

// beginRemote is apart from begin because c escapes to the heap here.
func (r *Runner) beginRemote(ctx context.Context, c Claim) (Record, error) {
	if r.tooManyUndone() {
		// Each Begin that failed is being undone. Without this bound a store
		// that is down would add one such task for each request.
		return Record{}, errUndoing
	}
	a, late := r.call(ctx, r.begins, r.options.Timeout, func(ctx context.Context) reply {
		record, err := r.store.Begin(ctx, c)
		return reply{record: record, err: err}
	})
	if a.err == nil {
		a.err = broken(&a.record, &c)
	}
	switch {
	case a.err == nil:
		return a.record, nil
	case errors.Is(a.err, ErrFull):
		return Record{RetryAfter: a.record.RetryAfter}, a.err
	case a.err != errNotCalled:
		r.undo(ctx, c, late)
	}
	return Record{}, a.err
}

// broken returns an error for an answer that the contract of Store excludes.
// Such an answer could run a request twice, or answer one with nothing.
func broken(record *Record, c *Claim) error {
	switch {
	case record.State < Claimed || record.State > Unknown:
	case record.State == Claimed && (record.Attempt < 1 || record.Fingerprint != c.Fingerprint):
	case record.State != InFlight && record.Fingerprint == Fingerprint{} && c.Fingerprint != Fingerprint{}:
	default:
		return nil
	}
	return fmt.Errorf("idem: the store broke its contract: %v, attempt %d, fingerprint %x", record.State, record.Attempt, record.Fingerprint[:4])
}

// undo frees a claim that the store may have made although Begin failed. The
// request has not run, but its repeats would get Unknown for the whole
// retention. So undo tries until the store has answered, as saving does. The
// token makes that safe at any later time.
//
// late receives the reply of a Begin that has not returned. It may claim the
// key after the undo, so undo then frees the key again.
func (r *Runner) undo(ctx context.Context, c Claim, late <-chan reply) {
	r.countUndo(c.Key, 1)
	r.background(1)
	go func() {
		defer func() {
			r.countUndo(c.Key, -1)
			r.background(-1)
		}()
		end := time.After(c.Retention)
		for delay := firstRetry; ; delay = min(2*delay, longestRetry) {
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
			case <-end:
				return
			}
		}
	}()
}

func (r *Runner) countUndo(key Key, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.undoing[key] += n; r.undoing[key] == 0 {
		delete(r.undoing, key)
	}
}

// tooManyUndone reports whether the store must not be asked for more claims.
func (r *Runner) tooManyUndone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.undoing) >= slotsPerKind/2
}

// isUndone reports whether a claim of the key is being undone.
func (r *Runner) isUndone(key Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undoing[key] > 0
}

func (r *Runner) extend(e *Execution, timeout time.Duration) error {
	a, _ := r.call(e.ctx, r.extends, timeout, func(ctx context.Context) reply {
		return reply{err: r.store.Extend(ctx, e.key, e.token, r.options.Lease)}
	})
	return a.err
}

func (r *Runner) settle(ctx context.Context, s slots, key Key, token ClaimToken, settlement *Settlement, timeout time.Duration) error {
	if r.memory != nil {
		return r.memory.Settle(context.Background(), key, token, *settlement)
	}
	given := *settlement // so that the caller's does not escape to the heap
	a, _ := r.call(ctx, s, timeout, func(ctx context.Context) reply {
		return reply{err: r.store.Settle(ctx, key, token, given)}
	})
	return a.err
}
