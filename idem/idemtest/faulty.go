package idemtest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Op is a method of a Store.
type Op uint8

const (
	Begin Op = iota
	Extend
	Settle
	Count // of a FaultyCounter, as Used
	Used
	ops int = iota
)

// Fault is what a [Faulty] does to a call.
type Fault uint8

const (
	None        Fault = iota // the call goes through
	Fail                     // ErrInjected; the call does not reach the store
	LoseAnswer               // ErrInjected; the store has done it
	Hang                     // the call does not reach the store, and ends with its context
	Stall                    // the call ignores its context, and reaches the store after Release
	StallAnswer              // the store does it at once; the call ignores its context, and returns after Release
	Lose                     // idem.ErrLost; the call does not reach the store
	Panic                    // the store panics
	Exit                     // the store ends the goroutine that calls it
)

// ErrInjected is the error of a fault.
var ErrInjected = errors.New("idemtest: injected fault")

// Faulty is a Store that fails on command, and else does what the store it
// wraps does. It is a Store only, whatever else that is: see [FaultyCounter].
type Faulty struct {
	store idem.Store

	mu       sync.Mutex
	next     [ops][]Fault
	always   [ops]Fault
	calls    [ops]int
	released chan struct{}
}

// NewFaulty returns a Faulty that wraps s and has no faults yet.
func NewFaulty(s idem.Store) *Faulty { return &Faulty{store: s, released: make(chan struct{})} }

// Next lets the next calls of op have these faults, one each in this order,
// before what Always says.
func (f *Faulty) Next(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[op] = append(f.next[op], faults...)
}

// Always lets all calls of op have this fault from now on. None mends it.
func (f *Faulty) Always(op Op, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.always[op] = fault
}

// Release ends the waiting of all calls that stall now. Later ones wait for the
// next Release.
func (f *Faulty) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.released)
	f.released = make(chan struct{})
}

// Calls returns how often op was called, whatever became of it.
func (f *Faulty) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *Faulty) Begin(ctx context.Context, c idem.Claim) (r idem.Record, err error) {
	err = f.do(ctx, Begin, func(ctx context.Context) error {
		r, err = f.store.Begin(ctx, c)
		return err
	})
	if err != nil {
		r = idem.Record{}
	}
	return r, err
}

func (f *Faulty) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	return f.do(ctx, Extend, func(ctx context.Context) error { return f.store.Extend(ctx, key, token, lease) })
}

func (f *Faulty) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, s idem.Settlement) error {
	return f.do(ctx, Settle, func(ctx context.Context) error { return f.store.Settle(ctx, key, token, s) })
}

func (f *Faulty) do(ctx context.Context, op Op, call func(context.Context) error) error {
	fault, released := f.take(op)
	switch fault {
	case Fail:
		return ErrInjected
	case LoseAnswer:
		call(ctx)
		return ErrInjected
	case Hang:
		<-ctx.Done()
		return ctx.Err()
	case Stall:
		<-released
		return call(context.WithoutCancel(ctx))
	case StallAnswer:
		err := call(ctx)
		<-released
		return err
	case Lose:
		return idem.ErrLost
	case Panic:
		panic(ErrInjected)
	case Exit:
		runtime.Goexit()
	}
	return call(ctx)
}

func (f *Faulty) take(op Op) (Fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	if faults := f.next[op]; len(faults) > 0 {
		f.next[op] = faults[1:]
		return faults[0], f.released
	}
	return f.always[op], f.released
}

// FaultyCounter is a Faulty that is an [idem.Counter] too.
type FaultyCounter struct {
	*Faulty
	counting
}

// counting lies deeper than the methods of Faulty, which come first.
type counting struct{ idem.Counter }

// NewFaultyCounter returns a FaultyCounter that wraps c and has no faults yet.
func NewFaultyCounter(c idem.Counter) *FaultyCounter {
	return &FaultyCounter{NewFaulty(c), counting{c}}
}

func (f *FaultyCounter) Count(ctx context.Context, a idem.Account, units int64) error {
	return f.do(ctx, Count, func(ctx context.Context) error { return f.Counter.Count(ctx, a, units) })
}

func (f *FaultyCounter) Used(
	ctx context.Context, a idem.Account, since time.Time,
) (units int64, now time.Time, err error) {
	err = f.do(ctx, Used, func(ctx context.Context) error {
		units, now, err = f.Counter.Used(ctx, a, since)
		return err
	})
	if err != nil {
		units, now = 0, time.Time{}
	}
	return units, now, err
}
