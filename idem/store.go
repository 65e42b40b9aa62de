package idem

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps claims and what became of them. Each method is one atomic decision: of any number of callers, in any number of
// processes, exactly one gets [Claimed] for a key.
//
// All durations run on the store's own clock, which must not jump (monotonic in a process, the server's time elsewhere): the
// clocks of the callers play no part. A refusal is a Record or one of the errors named here; any other error means that the
// store could not answer and that its work may or may not have been done. A method returns soon after ctx is done.
//
// A Store is used by many goroutines at once. It keeps payloads as they are given to it: who can read the store can read what
// clients were answered. [github.com/sallyport-go/sallyport/idem/idemtest] holds an implementation to what is said here.
type Store interface {
	// Begin claims a key or says what is there:
	//
	//   - Nothing there, or its retention is over: the claim is recorded, [Claimed] with Attempt 1. When the store has no room
	//     for it: [ErrFull], and nothing is recorded.
	//   - The claim is held by c.Token itself, since clients of databases resend what was not answered: [Claimed] again with
	//     the same Attempt, the lease renewed, also when it had lapsed.
	//   - The claim is held by another token and its lease is live: [InFlight], with LeaseLeft.
	//   - Settled as [Finished]: [Done], with the payload.
	//   - Settled as [OutcomeUnknown], or unsettled with a lapsed lease: [Unknown]; but with c.Reexecute and the recorded
	//     fingerprint equal to c.Fingerprint the claim is taken over: [Claimed] with Attempt one higher, and c.Token in place of
	//     the old one. Of several that try, one gets it and the others see [InFlight].
	//
	// In each case Record.Fingerprint is that of the first request. A claim that nobody settles is remembered for c.Retention
	// from the last Begin that was answered with Claimed, and at least until its lease ends.
	Begin(ctx context.Context, c Claim) (Record, error)

	// Extend makes the lease end the given time from now, also when it had lapsed. [ErrLost] when the token does not hold the
	// claim: taken over, settled, freed or forgotten; nothing changes then.
	Extend(ctx context.Context, key Key, token Token, lease time.Duration) error

	// Settle ends a claim. Holding the token is all it takes: a lease that lapsed, with nobody to take it over, is no
	// hindrance. [ErrLost] when the record is gone or another token took it over; nothing changes then.
	//
	// [Finished] and [OutcomeUnknown] replace the claim by its outcome, which is remembered for s.Retention from now;
	// [NotStarted] removes the record. The same token may settle again: with the same Outcome and Payload that is nil, since
	// clients of databases resend, else [ErrSettled], and nothing changes. A repeated NotStarted finds nothing: ErrLost.
	//
	// The store may keep s.Payload and s.Summary; nobody writes to them afterwards. It never answers [ErrFull] here: Begin set
	// aside the room for at least the fact.
	Settle(ctx context.Context, key Key, token Token, s Settlement) error
}

// The refusals of a Store.
var (
	// ErrLost means that the token does not hold the claim, or does not hold it any more.
	ErrLost = errors.New("idem: the claim is held by another or is gone")
	// ErrFull means that the store has no room for another claim; nothing was recorded.
	ErrFull = errors.New("idem: the store is full")
	// ErrSettled means that the claim was settled before, in another way.
	ErrSettled = errors.New("idem: settled before, with another outcome")
)

// Claim asks for the right to run a request.
type Claim struct {
	Key   Key
	Token Token
	// Fingerprint tells whether a later request with the same key is the same request.
	Fingerprint Sum
	// Lease is how long the claim is held without a sign of life, Retention how long it is remembered. Both are positive, and
	// Retention is not the smaller one.
	Lease, Retention time.Duration
	// Reexecute takes over a claim whose outcome nobody knows, and by that may run a request twice.
	Reexecute bool
}

// State is what a Store knows of a key. The zero State is none of them and never the answer of a Store.
type State uint8

const (
	Claimed  State = iota + 1 // the caller holds the claim and is to run
	InFlight                  // another holds it, and its lease is live
	Done                      // there is an answer
	Unknown                   // it was begun, and nobody knows what became of it
)

func (s State) String() string {
	switch s {
	case Claimed:
		return "claimed"
	case InFlight:
		return "in flight"
	case Done:
		return "done"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Record is the answer to a Claim.
type Record struct {
	State State
	// Fingerprint is that of the first request with the key. It is zero only when State is InFlight and the store cannot
	// read what another transaction holds.
	Fingerprint Sum
	// Attempt is set when State is Claimed: 1, or more after a take-over.
	Attempt int
	// LeaseLeft is set when State is InFlight: how long until the lease ends if its holder gives no further sign of life, 0 for
	// a lease without end.
	// Zero means that it is not known.
	LeaseLeft time.Duration
	// Payload is set when State is Done, and is not to be written to: the store or another caller may hold the same bytes.
	// Empty and nil are the same.
	Payload []byte
	// Retained says, when State is Done, that Payload is the Settlement's Payload, byte for byte. Otherwise the store gave up
	// the payload for want of room, and Payload is the Settlement's Summary, or empty.
	Retained bool
}

// Outcome is how a claim ends. The zero Outcome is OutcomeUnknown, which never lets a request run twice.
type Outcome uint8

const (
	OutcomeUnknown Outcome = iota // begun, and nobody knows what became of it
	Finished                      // there is an answer: Payload
	NotStarted                    // proven that nothing happened: the key is free again
)

func (o Outcome) String() string {
	switch o {
	case OutcomeUnknown:
		return "outcome unknown"
	case Finished:
		return "finished"
	case NotStarted:
		return "not started"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Settlement ends a claim.
type Settlement struct {
	Outcome Outcome
	// Payload is the answer of a Finished request, opaque here. A store keeps it whole for as long as it has room, whatever its
	// length.
	Payload []byte
	// Summary is what a store keeps in place of Payload when it runs out of room. Keep it under 1 KiB.
	Summary []byte
	// Undo, in joined mode only, keeps the record and takes back what else was written in its transaction.
	Undo bool
	// Retention is how long the outcome is remembered, from the time it is stored. Positive, unless Outcome is NotStarted; a
	// [Runner] fills it in.
	Retention time.Duration
}
