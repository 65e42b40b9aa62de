package idem

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem/internal/token"
	"github.com/sallyport-go/sallyport/internal/calls"
)

// The refusals of a [Runner] beyond those of its Store.
var (
	// ErrMismatch means that the key was used for another request. Repeating it
	// does not help.
	ErrMismatch = errors.New("idem: the key was used for another request")
	// ErrTooMany means that the tenant has as many requests running as it may.
	ErrTooMany = errors.New("idem: too many requests are running")
)

// Runner decides who runs a request, who waits for it, and who gets which
// reply. It is safe for concurrent use and starts no goroutine before it is
// used.
//
// Send all requests with one key through one Runner of the process: repeats are
// then woken when the first is settled, and get its reply from memory. Repeats in
// another Runner on the same store ask the store again after 25 ms and then after
// twice as long each time, up to 500 ms.
//
// The store may fail, panic or hang; no request runs twice because of it. An
// answer that breaks the contract of [Store] is an error. A call of the store is
// waited for as long as Options.Timeout, one of Join for Options.Wait longer, and
// one of a store with a method HonorsContext (see [Store]) until it returns. The
// number of calls that never return is bounded.
type Runner struct {
	observed // the calls "begin" and "settle", but for those of a Memory

	options Options
	backend *backend
	wall    func(time.Time) time.Time // wallClock, but for tests

	lease, retention time.Duration // of claims; forever in a store in this process
	firstToken       ClaimToken    // what the tokens of such claims begin with
	tokens           atomic.Uint64 // claims with such tokens

	mu         sync.Mutex
	executions map[Key]*Execution // from the first call of Begin to the end of the request
	loads      loads
	unsaved    int           // tasks in the background
	idle       chan struct{} // closed when nothing runs and unsaved is zero; nil while nobody waits

	renewalErrors, saveErrors, lost atomic.Uint64
}

// observed has methods for metrics and traces, which are no part of the surface. A
// "begin" of Join includes the wait for a transaction; its "settle" is COMMIT or ROLLBACK.
type observed = calls.Observed

// RunnerStats describes what a [Runner] does now and what failed since its
// start.
type RunnerStats struct {
	Executions int // asking the store, running, or retrying to save
	Waiters    int
	Unsaved    int // settlements and undone claims that are retried in the background
	// Down is set while the store, or a shard of it, is not asked for claims,
	// except by one call a second.
	Down bool
	// RenewalErrors and SaveErrors count calls of the store that failed, Lost
	// the executions whose claim was taken over before they were settled.
	RenewalErrors, SaveErrors, Lost uint64
}

// NewRunner returns a Runner on a store. It panics when the store is nil, also
// as a pointer in the interface, or not the Joiner that Options.Join asks for,
// when a limit or a duration other than Wait is negative, when Retention is
// shorter than Lease, and when ParseSeal did not make the Seal.
func NewRunner(s Store, o Options) *Runner {
	if v := reflect.ValueOf(s); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("idem: NewRunner without a store")
	}
	o = o.withDefaults()
	r := &Runner{
		options:    o,
		wall:       wallClock,
		executions: make(map[Key]*Execution),
		loads:      loads{tenants: make(map[string]load)},
	}
	r.backend = newBackend(s, &r.options, r.background, &r.observed)
	r.lease, r.retention = o.Lease, o.Retention
	if r.backend.local != nil {
		r.lease, r.retention = forever, forever
		rand.Read(r.firstToken[:])
	}
	return r
}

// Options returns the settings of the Runner, with the defaults filled in.
func (r *Runner) Options() Options { return r.options }

// Store returns the store that NewRunner was given.
func (r *Runner) Store() Store { return r.backend.store }

// Stats returns what the Runner does now.
func (r *Runner) Stats() RunnerStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RunnerStats{
		Executions:    r.loads.all.executions,
		Waiters:       r.loads.all.waiters,
		Unsaved:       r.unsaved,
		Down:          r.backend.down(),
		RenewalErrors: r.renewalErrors.Load(),
		SaveErrors:    r.saveErrors.Load(),
		Lost:          r.lost.Load(),
	}
}

// WaitSettled waits until no execution runs and no task is left in the
// background, or until ctx is done; then it returns ctx.Err(). Call it at the
// end of a shutdown, which can leave handlers that still run.
func (r *Runner) WaitSettled(ctx context.Context) error {
	for {
		r.mu.Lock()
		if r.loads.all.executions+r.unsaved == 0 {
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
	if r.loads.all.executions+r.unsaved == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// newToken returns a token that no other claim has. Within a process a number
// is enough; a random one costs a tenth of a short create.
func (r *Runner) newToken(organization string) (t ClaimToken) {
	if r.backend.local != nil {
		t = r.firstToken
		binary.LittleEndian.PutUint64(t[8:], r.tokens.Add(1))
		return t
	}
	prefix := token.Prefix(organization)
	rand.Read(t[copy(t[:], prefix[:]):]) // never returns an error: it ends the program instead
	return t
}
