package idem

import (
	"context"
	"errors"
	"time"
)

// Joiner is what a [Store] implements when it can put the claim, the rows that
// the request writes and its reply into one transaction, so that all of it
// takes effect or nothing does.
type Joiner interface {
	// Join decides as [Store.Begin] does. When Record.State is Claimed there is a
	// Transaction, and else none. It holds the claim, which needs no lease, and
	// only its Settle ends it. After an error nothing is held.
	//
	// ctx bounds Join alone: the transaction outlives it.
	//
	// While as many transactions are open as may be, Join waits for one to end,
	// until timeout, or half of it all if that is less, is left to the deadline of
	// ctx: then the error is [ErrNoTurn]. It gives up earlier when the database
	// has answered no call for as long as timeout. With a timeout of 0 the Joiner
	// chooses these times.
	//
	// Join does not wait for a transaction that holds the same key. The answer
	// is then InProgress, with a zero Fingerprint if the other's cannot be read.
	Join(ctx context.Context, c Claim, timeout time.Duration) (Record, Transaction, error)
}

// Transaction is a transaction that holds a claim.
type Transaction interface {
	// Context returns a context that carries the transaction to the handler of
	// the request. Give the handler no way to end it: rows that it commits itself
	// stand without the reply.
	Context(parent context.Context) context.Context

	// Settle ends the transaction; it is called once. [OutcomeDone] commits the
	// record with the rows, or without them when s.RollBack is set; [OutcomeFree]
	// rolls everything back. A Runner passes OutcomeFree for OutcomeUnknown.
	//
	// The error is [ErrCommitUnknown] when COMMIT itself failed, so that it may
	// or may not have happened. After any other error nothing of the
	// transaction remains: [ErrConstraint] and [ErrBroken] when the request
	// itself is the cause, and else another try may succeed. A Runner waits no
	// longer than Options.Timeout, and then reports ErrCommitUnknown itself.
	Settle(ctx context.Context, s Settlement) error
}

// ErrNoTurn means that as many transactions as may be open were in use all the
// time. It says nothing about the database. A Runner also reports it while 1024
// calls of Join have not returned.
var ErrNoTurn = errors.New("idem: all transactions were in use")

// ErrCommitUnknown means that a transaction may or may not have been committed.
// A repeat of the request finds either all of it or nothing.
var ErrCommitUnknown = errors.New("idem: not known whether the transaction was committed")

// ErrConstraint means that a transaction was rolled back because what the
// request wrote breaks a constraint that is checked at COMMIT.
var ErrConstraint = errors.New("idem: a constraint keeps the transaction from being committed")

// ErrBroken means that a transaction was rolled back because of the state in
// which the request left it: one of its statements had failed and it went on, or
// it changed the session so that its reply cannot be saved.
var ErrBroken = errors.New("idem: the transaction was left in a state that cannot be committed")
