package idem

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The refusals of a [Runner] beyond those of its Store.
var (
	// ErrMismatch means that the key was used for another request. Repeating it
	// does not help.
	ErrMismatch = errors.New("idem: the key was used for another request")
	// ErrTooMany means that the owner has as many requests running as it may.
	ErrTooMany = errors.New("idem: too many requests are running")
)

// Runner decides who runs a request, who waits for it, and who gets which
// answer. It is safe for concurrent use and starts no goroutine before it is
// used.
//
// All requests with one key should go through one Runner of the process:
// duplicates are then woken when the first is settled, and get its answer from
// memory. Duplicates in other processes, or in another Runner on the same
// store, ask the store again after 25 ms and then after twice as long each
// time, up to 500 ms.
//
// The store may fail, panic or hang; no request runs twice because of it. No
// call is waited for longer than Options.Timeout, except Join, which may take
// Options.Wait more, and those of a store that says it is [Prompt] and is not.
// The number of calls that never return is bounded. A request runs only after
// the store said that the claim is its own, and an answer that breaks the
// contract of [Store] is an error.
type Runner struct {
	store   Store
	joiner  Joiner  // nil: claims have leases
	memory  *Memory // the store, if it is one: calls need neither timeout nor goroutine
	prompt  bool    // the store is Prompt: calls need no goroutine
	options Options
	epoch   time.Time

	begins, extends, settles, undos slots
	outage                          outage

	mu         sync.Mutex
	executions map[Key]*Execution // from the first call of Begin to the end of the request
	undoing    map[Key]int        // claims of a key that are being undone
	owners     map[string]load
	waiting    int
	running    int           // executions that count as running, of all owners
	unsaved    int           // tasks in the background
	idle       chan struct{} // closed when running and unsaved are zero; nil while nobody waits

	renewalErrors, saveErrors, lost atomic.Uint64
}

// Options are the settings of a [Runner]. The zero value of each field stands
// for its default.
type Options struct {
	// Lease is how long a claim is held unless it is renewed. A Runner renews
	// it every third of that. The default is 15 s. In a [Memory] claims need no
	// renewing: they end with the process.
	Lease time.Duration
	// Retention is how long a key is remembered, and at least the Lease. The
	// default is 24 h.
	Retention time.Duration
	// Wait is how long a duplicate waits for the first request, and in joined
	// mode how long any request waits for a transaction while too many are
	// open; then the error is ErrNoTurn. The default is 10 s; when negative, a
	// duplicate does not wait for a request that runs, and half of Timeout is
	// for the wait for a transaction.
	Wait time.Duration
	// Timeout bounds each call of the store, and all that Settle tries before
	// it goes on in the background. The default is 2 s. After five claims in a
	// row that failed, others fail at once, but for one each second.
	Timeout time.Duration
	// Waiters is how many duplicates may wait at once, WaitersPerOwner how many
	// of one owner. Beyond that a duplicate gets InFlight at once. The defaults
	// are 4,096 and 256.
	Waiters, WaitersPerOwner int
	// ExecutionsPerOwner is how many requests of one owner may run at once.
	// Beyond that a request gets ErrTooMany, and the store is not asked whether
	// it is a repeat. A request whose save is retried in the background still
	// counts, so that the answers in memory are bounded. The default is 1,024.
	ExecutionsPerOwner int
	// Reexecute takes over a claim with an unknown outcome. The request may
	// then run twice.
	Reexecute bool
	// Join uses the store's ability to join transactions; the store must be a
	// [Joiner].
	Join bool
	// Draining ends all waits when it is closed, and lets none begin. It does
	// not touch what runs.
	Draining <-chan struct{}
	// Logger gets a line for each claim that could not be renewed or saved. The
	// default is slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if min(o.Lease, o.Retention, o.Timeout) < 0 {
		panic("idem: NewRunner with a negative duration")
	}
	if min(o.Waiters, o.WaitersPerOwner, o.ExecutionsPerOwner) < 0 {
		panic("idem: NewRunner with a negative limit")
	}
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Retention = cmp.Or(o.Retention, 24*time.Hour)
	o.Wait = cmp.Or(o.Wait, 10*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2*time.Second)
	o.Waiters = cmp.Or(o.Waiters, 4096)
	o.WaitersPerOwner = cmp.Or(o.WaitersPerOwner, 256)
	o.ExecutionsPerOwner = cmp.Or(o.ExecutionsPerOwner, 1024)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Retention < o.Lease {
		panic("idem: NewRunner with a Retention shorter than the Lease")
	}
	return o
}

// RunnerStats describes what a [Runner] does now and what failed since its
// start.
type RunnerStats struct {
	Executions int // asking the store, running, or retrying to save
	Waiters    int
	Unsaved    int // settlements and undone claims that are retried in the background
	// RenewalErrors and SaveErrors count calls of the store that failed, Lost
	// the executions whose claim was taken over before they were settled.
	RenewalErrors, SaveErrors, Lost uint64
}

// NewRunner returns a Runner on a store. It panics when the store is nil or not
// the Joiner that Options.Join asks for, when a limit or a duration other than
// Wait is negative, and when Retention is shorter than Lease.
func NewRunner(s Store, o Options) *Runner {
	if absent(s) {
		panic("idem: NewRunner without a store")
	}
	r := &Runner{
		store:      s,
		options:    o.withDefaults(),
		epoch:      time.Now(),
		begins:     make(slots, slotsPerKind),
		extends:    make(slots, slotsPerKind),
		settles:    make(slots, slotsPerKind),
		undos:      make(slots, slotsPerKind),
		executions: make(map[Key]*Execution),
		undoing:    make(map[Key]int),
		owners:     make(map[string]load),
	}
	r.memory, _ = s.(*Memory)
	if o.Join {
		j, ok := s.(Joiner)
		if !ok {
			panic("idem: NewRunner with Join and a store that is not a Joiner")
		}
		r.joiner = j
	} else {
		_, r.prompt = s.(Prompt)
	}
	return r
}

// Options returns the settings of the Runner, with the defaults filled in.
func (r *Runner) Options() Options { return r.options }

// Store returns the store that NewRunner was given.
func (r *Runner) Store() Store { return r.store }

// Stats returns what the Runner does now.
func (r *Runner) Stats() RunnerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RunnerStats{
		Executions:    r.running,
		Waiters:       r.waiting,
		Unsaved:       r.unsaved,
		RenewalErrors: r.renewalErrors.Load(),
		SaveErrors:    r.saveErrors.Load(),
		Lost:          r.lost.Load(),
	}
}

// WaitSettled waits until no execution runs and no task is left in the
// background, or until ctx is done; then it returns ctx.Err(). Call it at the
// end of a shutdown: an http.TimeoutHandler, or the end of Shutdown's own
// context, can leave handlers that still run.
func (r *Runner) WaitSettled(ctx context.Context) error {
	for {
		r.mu.Lock()
		if r.running == 0 && r.unsaved == 0 {
			r.mu.Unlock()
			return nil
		}
		if r.idle == nil {
			r.idle = make(chan struct{})
		}
		idle := r.idle
		r.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// background counts one task more, or one less, that goes on in the background.
func (r *Runner) background(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved += n
	r.signalIdle()
}

// signalIdle wakes WaitSettled when nothing is left to wait for. r.mu is held.
func (r *Runner) signalIdle() {
	if r.running == 0 && r.unsaved == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// now counts from the start of the Runner, on the monotonic clock.
func (r *Runner) now() time.Duration { return time.Since(r.epoch) }
