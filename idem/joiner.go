package idem

import (
	"context"
	"errors"
)

// Joiner is an ability that a [Store] may have: to put the claim, the rows that the request writes and its answer into one
// transaction, so that all of it happens or none.
type Joiner interface {
	// Join decides as [Store.Begin] does. Joined is not nil exactly when Record.State is Claimed; the claim is then held by a
	// transaction, needs no lease, and ends by Joined.Settle alone. After an error nothing is held.
	//
	// ctx bounds Join and nothing else: the transaction outlives it. Join may wait until ctx is done for its turn where only
	// few transactions can be open, but not for another that holds the same key: that is InFlight, with a zero Fingerprint
	// where the other's cannot be read.
	Join(ctx context.Context, c Claim) (Record, Joined, error)
}

// Joined is a claim held by a transaction.
type Joined interface {
	// Context returns a context that carries the transaction to whoever runs the request.
	Context(parent context.Context) context.Context

	// Settle ends the transaction; it is called once. [Finished] commits the record with the rows, or without them when
	// s.Undo is set; [NotStarted] rolls everything back. There is no unknown outcome here: a Runner turns OutcomeUnknown into
	// NotStarted.
	//
	// [ErrCommitUnknown] when COMMIT itself failed, so that it may or may not have happened; after any other error nothing of
	// the transaction remains. A Runner waits for it no longer than Options.Timeout, and takes a commit that lasts longer for
	// one that nobody knows of.
	Settle(ctx context.Context, s Settlement) error
}

// ErrCommitUnknown means that a transaction was to be committed and that nobody knows whether it was. A repeat of the request
// finds either all of it or nothing.
var ErrCommitUnknown = errors.New("idem: not known whether the transaction was committed")
