package idem

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// The refusals of a [Runner] beyond those of its Store.
var (
	// ErrMismatch means that the key was used for another request. Repeating it does not help.
	ErrMismatch = errors.New("idem: the key was used for another request")
	// ErrTooMany means that the owner has as many requests running as it may.
	ErrTooMany = errors.New("idem: too many requests are running")
	// ErrLeaseLapsed is the cause with which [Execution.Context] is cancelled when the claim could not be renewed and is
	// about to lapse.
	ErrLeaseLapsed = errors.New("idem: the claim could not be renewed in time")
)

// Request is a request as a [Runner] sees it.
type Request struct {
	Key Key
	// Owner is on whose account the request runs and waits.
	Owner       string
	Fingerprint Sum
	// Waiting, unless nil, is called once when the caller is about to wait. What is large and can be done without is to be let
	// go of there: many may wait.
	Waiting func()
}

// Runner decides who runs a request, who waits for it, and who gets which answer. It is used by many goroutines at once and
// starts none before it is used.
//
// All requests with one key should go through one Runner of the process: duplicates are then woken when the first is settled,
// and get its answer from memory. Duplicates in other processes, or in another Runner on the same store, ask the store again
// after 25 ms and then after twice as long each time, up to 500 ms.
//
// A store may fail, panic or hang without harm to what is promised. No call is waited for longer than Options.Timeout, but for
// Join, which may take Options.Wait more; how many calls that never return can pile up is bounded; and a request begins to run
// only after the store said that the claim is its own.
type Runner struct {
	store   Store
	joiner  Joiner // nil: claims have leases
	atOnce  bool   // the store is a Memory, which needs neither a timeout nor a goroutine to be called in
	options Options
	epoch   time.Time

	begins, extends, settles, undos lane
	undoing                         atomic.Int64

	mu       sync.Mutex
	flights  map[Key]*flight
	owners   map[string]load
	waiting  int
	unsaved  int           // settlements that go on in the background
	allSaved chan struct{} // closed when unsaved falls to zero; nil while nobody waits for that

	heartbeatErrors, saveErrors, lost atomic.Uint64
}

// RunnerStats is what a [Runner] does now and what went wrong since its start.
type RunnerStats struct {
	Executions int // that run or ask whether they may, and those whose save is retried
	Waiters    int
	Unsaved    int // settlements that go on in the background, and claims that are taken back there
	// HeartbeatErrors and SaveErrors count calls of the store that failed, Lost the executions that found another in possession
	// of the key when they were to be settled.
	HeartbeatErrors, SaveErrors, Lost uint64
}

// NewRunner returns a Runner on a store. It panics when the store is nil or not the Joiner that Options.Join asks for, when a
// limit or a duration other than Wait is negative, and when Retention is shorter than Lease.
func NewRunner(s Store, o Options) *Runner {
	if s == nil {
		panic("idem: NewRunner without a store")
	}
	r := &Runner{
		store:   s,
		options: o.withDefaults(),
		epoch:   time.Now(),
		begins:  make(lane, laneWidth),
		extends: make(lane, laneWidth),
		settles: make(lane, laneWidth),
		undos:   make(lane, laneWidth),
		flights: make(map[Key]*flight),
		owners:  make(map[string]load),
	}
	_, r.atOnce = s.(*Memory)
	if o.Join {
		j, ok := s.(Joiner)
		if !ok {
			panic("idem: NewRunner with Join and a store that is not a Joiner")
		}
		r.joiner = j
	}
	return r
}

// Begin claims the key, or finds out who has it and waits for them.
//
// With an Execution the caller must run the request and settle the Execution, whatever happens. Without one, and without an
// error, the Record says what to answer: [Done], or [Unknown], or [InFlight] when it waited in vain, may not wait, or would be
// one waiter too many. Its LeaseLeft is then a hint for when to come back, 0 where there is none.
//
// The errors are [ErrMismatch], also while the first request is in flight; [ErrTooMany], before the store was asked; [ErrFull];
// ctx.Err() when ctx is done before the store is asked or while waiting; and anything else when the store could not answer.
// After such an error the claim that may have been made is taken back in the background.
//
// The end of ctx does not cut a call of the store short, since its answer would be lost. An Execution may therefore be handed
// to a caller whose ctx is done, and is to be run or settled as [NotStarted] like any other.
func (r *Runner) Begin(ctx context.Context, req Request) (Record, *Execution, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, nil, err
	}
	v := visit{runner: r, ctx: ctx, req: req}
	defer v.leave()
	for {
		f, leads, err := r.board(&v.req)
		if err != nil {
			return Record{}, nil, err
		}
		if leads {
			return v.lead(f)
		}
		record, err, decided := v.follow(f)
		if decided {
			return record, nil, err
		}
	}
}

// WaitSettled waits until nothing is left that is saved or taken back in the background, or until ctx is done; then it returns
// ctx.Err(). Call it at the end of a shutdown, when no request runs any more.
func (r *Runner) WaitSettled(ctx context.Context) error {
	for {
		r.mu.Lock()
		if r.unsaved == 0 {
			r.mu.Unlock()
			return nil
		}
		if r.allSaved == nil {
			r.allSaved = make(chan struct{})
		}
		saved := r.allSaved
		r.mu.Unlock()
		select {
		case <-saved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stats returns what the Runner does now.
func (r *Runner) Stats() RunnerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RunnerStats{
		Waiters:         r.waiting,
		Unsaved:         r.unsaved,
		HeartbeatErrors: r.heartbeatErrors.Load(),
		SaveErrors:      r.saveErrors.Load(),
		Lost:            r.lost.Load(),
	}
	for _, l := range r.owners {
		s.Executions += l.executions
	}
	return s
}

// keepUnsaved counts one settlement more, or one less, that goes on in the background. r.mu is held.
func (r *Runner) keepUnsaved(n int) {
	r.unsaved += n
	if r.unsaved == 0 && r.allSaved != nil {
		close(r.allSaved)
		r.allSaved = nil
	}
}

// now counts from the start of the Runner, on the monotonic clock.
func (r *Runner) now() time.Duration { return time.Since(r.epoch) }
