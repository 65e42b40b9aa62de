package idem

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/bounded"
	"github.com/sallyport-go/sallyport/internal/calls"
)

// backend is the store as a Runner calls it. No call takes longer than the
// timeout, and a claim that may have been made although its Begin failed is
// undone. It knows nothing of executions and of those who wait for them.
type backend struct {
	store   Store
	options *Options
	joiner  Joiner  // nil: claims have leases
	local   *Memory // the store, if it is one: its claims end with the process and need no lease
	honors  bool    // the store honors contexts, or joiner does
	// background counts one task more, or one less, that goes on in the
	// background.
	background func(n int)

	extends, settles, undos slots

	sharder sharded // nil: the store is one shard
	whole   *shard  // what is known to lie on no other

	observer *calls.Observed

	mu      sync.Mutex
	undoing map[Key]int // claims of a key that are being undone
	shards  map[string]*shard
}

func newBackend(s Store, o *Options, background func(int), observer *calls.Observed) *backend {
	b := &backend{
		store: s, options: o, background: background, observer: observer,

		extends: make(slots, slotsPerKind),
		settles: make(slots, slotsPerKind),
		undos:   make(slots, slotsPerKind),
		undoing: make(map[Key]int),
		shards:  make(map[string]*shard),
	}
	b.whole = b.named("")
	if o.Join {
		joiner, ok := s.(Joiner)
		if !ok {
			panic(fmt.Sprintf("idem: NewRunner with Join: a %T has no transactions; "+
				"give one of package idemsql or idempgx, or leave Join out", s))
		}
		b.joiner = joiner
		_, b.honors = s.(interface{ JoinHonorsContext() })
		return b
	}
	b.local, _ = s.(*Memory)
	b.sharder, _ = s.(sharded)
	_, b.honors = s.(interface{ HonorsContext() })
	return b
}

// slotsPerKind is how many calls of one kind may be open at once. A call that
// never returns keeps its slot.
const slotsPerKind = 1024

// slots limit the open calls of one kind. Each kind has its own: when every
// Begin hangs, the outcomes of earlier claims can still be saved.
type slots chan struct{}

// reply is what a claim got: a record, and in joined mode the transaction that
// holds the claim.
type reply struct {
	record      Record
	transaction Transaction
}

// lateReply receives the reply to a call that was left behind.
type lateReply = <-chan bounded.Result[reply]

var errPanicked = errors.New("idem: the store panicked")

// call calls the store and waits for its reply no longer than the timeout. The
// end of ctx does not end the call.
func (b *backend) call(
	ctx context.Context, s slots, timeout time.Duration, do func(context.Context) (reply, error),
) (reply, lateReply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return b.callUntil(ctx, s, do)
}

// callUntil calls the store and waits for its reply until ctx is done, even if
// the store does not honor it. Then late receives the reply, if there ever is
// one.
func (b *backend) callUntil(
	ctx context.Context, s slots, do func(context.Context) (reply, error),
) (a reply, late lateReply, err error) {
	if s != nil {
		select {
		case s <- struct{}{}:
		case <-ctx.Done():
			return reply{}, nil, errNotCalled
		}
	}
	guarded := func() (a reply, err error) {
		if s != nil {
			defer func() { <-s }()
		}
		if p := b.guard(ctx, func() { a, err = do(ctx) }); p != nil {
			return reply{}, fmt.Errorf("%w: %v", errPanicked, p)
		}
		return a, err
	}
	if b.honors {
		a, err = guarded()
		return a, nil, err
	}
	r, late := bounded.Call(ctx, guarded)
	if late != nil {
		r.Err = fmt.Errorf("idem: the store did not answer in time: %w", context.Cause(ctx))
	}
	return r.Value, late, r.Err
}

// guard calls do, and logs and returns what it panicked with.
func (b *backend) guard(ctx context.Context, do func()) (p any) {
	defer func() {
		if p = recover(); p != nil {
			b.options.Logger.ErrorContext(ctx, "the reply store panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	do()
	return nil
}

// calls tells of a call that begins. The store gets the context.
func (b *backend) calls(ctx context.Context, name string) (context.Context, calls.Call) {
	return calls.Begin(ctx, b.observer, b.options.Logger, name)
}

func (b *backend) extend(ctx context.Context, c *Claim, timeout time.Duration) error {
	_, _, err := b.call(ctx, b.extends, timeout, func(ctx context.Context) (reply, error) {
		return reply{}, b.store.Extend(ctx, c.Key, c.Token, c.Lease)
	})
	return err
}

func (b *backend) settle(ctx context.Context, s slots, c *Claim, settlement Settlement, timeout time.Duration) error {
	if b.local != nil {
		return b.local.Settle(context.Background(), c.Key, c.Token, settlement)
	}
	ctx, call := b.calls(ctx, "settle")
	_, _, err := b.call(ctx, s, timeout, func(ctx context.Context) (reply, error) {
		return reply{}, b.store.Settle(ctx, c.Key, c.Token, settlement)
	})
	call.End(err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrSettled), err)
	return err
}
