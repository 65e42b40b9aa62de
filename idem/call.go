package idem

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// laneWidth is how many calls of one kind may be with the store at once. Calls that never return take their places for ever,
// and no more than those.
const laneWidth = 1024

// lane holds the places of calls of one kind. Each kind has its own: a store that loses every Begin can still be told what
// became of the claims that it gave.
type lane chan struct{}

// answer is what a call of the store returned.
type answer struct {
	record Record
	joined Joined
	err    error
}

var (
	errNotCalled = errors.New("idem: too many calls of the store have not returned")
	errNoReturn  = errors.New("idem: the call of the store ended its goroutine")
	errPanicked  = errors.New("idem: the store panicked")
	errUndoing   = errors.New("idem: the store has failed too often; claims are being taken back")
)

// call calls the store in a goroutine of its own and waits for its answer no longer than the timeout, whether or not the store
// heeds its context. The end of ctx is not the end of the call. When the store did not answer in time, late gets its answer, if
// there ever is one.
func (r *Runner) call(ctx context.Context, l lane, timeout time.Duration, do func(context.Context) answer) (a answer, late <-chan answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	return r.await(ctx, cancel, l, do)
}

// await is call for a context that is already bounded. It calls cancel when the store has answered.
func (r *Runner) await(ctx context.Context, cancel context.CancelFunc, l lane, do func(context.Context) answer) (answer, <-chan answer) {
	if l != nil {
		select {
		case l <- struct{}{}:
		case <-ctx.Done():
			cancel()
			return answer{err: errNotCalled}, nil
		}
	}
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errNoReturn}
		defer func() {
			done <- a
			cancel() // not before: the caller must not take it for the end of the time
			if l != nil {
				<-l
			}
		}()
		a = r.guard(ctx, do)
	}()
	select {
	case a := <-done:
		return a, nil
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a, nil
	default:
		return answer{err: fmt.Errorf("idem: the store did not answer in time: %w", context.Cause(ctx))}, done
	}
}

// guard turns a panic of the store into an error.
func (r *Runner) guard(ctx context.Context, do func(context.Context) answer) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			r.options.Logger.ErrorContext(ctx, "the store of idempotent requests panicked", "panic", p, "stack", string(debug.Stack()))
			a = answer{err: fmt.Errorf("%w: %v", errPanicked, p)}
		}
	}()
	return do(ctx)
}

// ask asks for the claim.
func (r *Runner) ask(ctx context.Context, c Claim) (Record, Joined, error) {
	switch {
	case r.joiner != nil:
		return r.join(ctx, c)
	case r.atOnce:
		record, err := r.store.Begin(context.Background(), c)
		return record, nil, err
	}
	record, err := r.begin(ctx, c)
	return record, nil, err
}

func (r *Runner) begin(ctx context.Context, c Claim) (Record, error) {
	if r.undoing.Load() >= laneWidth/2 {
		// Each claim that was asked for in vain is being taken back. Without this bound a store that is down would gather one
		// of those tasks for each request that arrives meanwhile.
		return Record{}, errUndoing
	}
	a, late := r.call(ctx, r.begins, r.options.Timeout, func(ctx context.Context) answer {
		record, err := r.store.Begin(ctx, c)
		return answer{record: record, err: err}
	})
	if a.err == nil && (a.record.State < Claimed || a.record.State > Unknown) {
		a.err = fmt.Errorf("idem: the store answered with %v", a.record.State)
	}
	switch {
	case a.err == nil:
		return a.record, nil
	case a.err != errNotCalled && !errors.Is(a.err, ErrFull):
		r.undo(ctx, c, late)
	}
	return Record{}, a.err
}

func (r *Runner) extend(ctx context.Context, key Key, token Token, timeout time.Duration) error {
	a, _ := r.call(ctx, r.extends, timeout, func(ctx context.Context) answer {
		return answer{err: r.store.Extend(ctx, key, token, r.options.Lease)}
	})
	return a.err
}

func (r *Runner) settle(ctx context.Context, l lane, key Key, token Token, s *Settlement, timeout time.Duration) error {
	if r.atOnce {
		return r.store.Settle(context.Background(), key, token, *s)
	}
	a, _ := r.call(ctx, l, timeout, func(ctx context.Context) answer {
		return answer{err: r.store.Settle(ctx, key, token, *s)}
	})
	return a.err
}
