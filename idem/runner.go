package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// The refusals of a [Runner] beyond those of its Store.
var (
	// ErrMismatch means that the key was used for another request. Repeating it never helps.
	ErrMismatch = errors.New("idem: the key was used for another request")
	// ErrTooMany means that the owner has as many requests running as it may.
	ErrTooMany = errors.New("idem: too many requests are running")
	// ErrLeaseLapsed is the cause with which [Execution.Context] is cancelled when the claim could not be renewed and is about to
	// lapse, or has.
	ErrLeaseLapsed = errors.New("idem: the claim could not be renewed in time")
)

// Options are the settings of a [Runner]. The zero value of each field stands for its default.
type Options struct {
	Lease              time.Duration   // 15 s; renewed every third of it
	Retention          time.Duration   // 24 h; not less than Lease
	Wait               time.Duration   // 10 s; how long a duplicate waits for the first; negative: it does not
	Timeout            time.Duration   // 2 s; for one call of the store
	Waiters            int             // 4,096; duplicates that may wait at once
	WaitersPerOwner    int             // 256
	ExecutionsPerOwner int             // 1,024; requests that may run at once, those whose save is retried included
	Reexecute          bool            // take over a claim whose outcome nobody knows; may run a request twice
	Join               bool            // use the store's [Joiner], which it must have
	Draining           <-chan struct{} // closed: nobody waits any more
	Logger             *slog.Logger    // [slog.Default]
}

// Request is a request as a [Runner] sees it.
type Request struct {
	Key Key
	// Owner is on whose account the request runs and waits, for the limits of Options.
	Owner       string
	Fingerprint Sum
}

// Runner decides who runs a request, who waits for it and who gets which answer.
type Runner struct {
	store   Store
	options Options
}

// NewRunner returns a Runner on a store.
func NewRunner(s Store, o Options) *Runner { return &Runner{store: s, options: o} }

// Begin claims the request's key, or waits for whoever holds it.
func (r *Runner) Begin(ctx context.Context, req Request) (Record, *Execution, error) {
	return Record{}, nil, errors.ErrUnsupported
}

// WaitSettled waits until nothing is left to be saved in the background, or until ctx is done.
func (r *Runner) WaitSettled(ctx context.Context) error { return nil }
