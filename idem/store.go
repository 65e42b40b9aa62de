package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps claims and their outcomes. Each method is one atomic decision: of
// any number of callers, in any number of processes, exactly one gets [Claimed]
// for a key.
//
// Durations are measured by the store's own clock, which must not jump:
// monotonic in a process, the server's time elsewhere. A refusal is a Record or
// one of the errors named here. After any other error the store's work may or
// may not have been done.
//
// A method returns soon after ctx is done. A Store that does so in any case,
// also when the network or its driver hangs, has a method HonorsContext(), and a
// [Joiner] has JoinHonorsContext() if Join and the Settle of its transactions
// do. A [Runner] calls it in the goroutine of the request. Otherwise each call
// has a goroutine of its own, which the Runner can leave behind.
//
// A Store whose keys lie on several servers, as in a Redis Cluster, has a method
// Shard(Key) string. It names the server that has a key now, or returns "" when
// that is not known, and asks no server. While one of them is away, a Runner
// goes on asking the others.
//
// A Store is safe for concurrent use. Without a [Seal], who can read the store
// can read what clients were answered. Package
// [github.com/sallyport-go/sallyport/idem/idemtest] checks an implementation.
type Store interface {
	// Begin claims a key or says what is there:
	//
	//   - No record, or its retention is over: the claim is recorded, and the
	//     answer is [Claimed] with Attempt 1. When the store has no room for
	//     it, the error is [ErrFull] and nothing is recorded.
	//   - c.Token already holds the claim, because a driver sent the call
	//     again: [Claimed] with the same Attempt. The lease is renewed, also
	//     when it had lapsed, unless a Begin has answered Unknown since.
	//   - The claim is held by another token and its lease is live: [InProgress],
	//     with RetryAfter.
	//   - Settled as [OutcomeDone]: [Done], with the payload.
	//   - Settled as [OutcomeUnknown], or unsettled with a lapsed lease:
	//     [Unknown]. But with c.Reexecute, and with a recorded fingerprint
	//     equal to c.Fingerprint, the claim is taken over: [Claimed] with
	//     Attempt one higher, and c.Token in place of the old token. Of several
	//     callers that try, one takes over and the others see [InProgress].
	//     After Unknown the token that holds the claim can settle it, and not
	//     renew it: its request must not begin anything that the caller will
	//     not find when it looks.
	//
	// In each case Record.Fingerprint is that of the first request. An
	// unsettled claim is remembered for c.Retention from the last Begin that
	// was answered with Claimed, and at least until its lease ends.
	Begin(ctx context.Context, c Claim) (Record, error)

	// Extend makes the lease end the given time from now, also when it had
	// lapsed. It returns [ErrLost], and changes nothing, when the token does
	// not hold the claim: taken over, settled, freed or forgotten; or when a
	// Begin has answered Unknown.
	Extend(ctx context.Context, key Key, token ClaimToken, lease time.Duration) error

	// Settle ends a claim. The token must hold the claim; whether the lease has
	// lapsed does not matter. It returns [ErrLost], and changes nothing, when
	// the record is gone or another token took the claim over.
	//
	// [OutcomeDone] and [OutcomeUnknown] replace the claim by its outcome, which
	// is remembered for s.Retention from now; [OutcomeFree] removes the record.
	// But for a claim that took over, of an Attempt above 1, it counts as
	// OutcomeUnknown: how the run before ended is still not known.
	//
	// The same token may settle again, because clients of databases resend:
	// with the same Outcome and Payload the answer is nil, else [ErrSettled],
	// and nothing changes. When OutcomeFree has removed the record it is ErrLost.
	//
	// The store may keep s.Payload and s.Summary; the caller does not write to
	// them afterwards. Settle never returns [ErrFull]: Begin reserved room for
	// the outcome at least.
	Settle(ctx context.Context, key Key, token ClaimToken, s Settlement) error
}

// Eraser is a Store that can remove all records of an organization, as all
// stores of this module can.
type Eraser interface {
	Store
	// Erase removes the replies and the claims of an organization, whichever
	// their tenants, and returns how many; after an error some are removed. It
	// may read all records. A repeat of what was erased runs again, so revoke the
	// organization's API keys first. A request that runs meanwhile gets
	// [ErrLost], unless it is joined: then its reply is stored. Erase once more
	// when the longest handler has ended.
	Erase(ctx context.Context, organization string) (removed int, err error)
}

// The refusals of a Store.
var (
	// ErrLost means that the token does not hold the claim, or not any more.
	ErrLost = errors.New("idem: the claim is held by another or is gone")
	// ErrFull means that the store has no room for another claim. Nothing was
	// recorded.
	ErrFull = errors.New("idem: the store is full")
	// ErrSettled means that the claim was settled before, in another way.
	ErrSettled = errors.New("idem: settled before, with another outcome")
)

// ClaimToken proves who holds a claim. The caller chooses it and uses it for
// one claim only. A Store keeps it with the outcome too.
type ClaimToken [16]byte

// Claim asks for the right to run a request. [Runner.Begin] says which fields
// its caller gives.
type Claim struct {
	Key   Key
	Token ClaimToken
	// Tenant is on whose account the request runs, waits and takes room in the
	// store. A take-over does not change it.
	Tenant string
	// Organization is by which an [Eraser] finds the claim, the same for all of
	// a Tenant. "" means Tenant.
	Organization string
	// Fingerprint is a hash of what a repeat must have in common with the first
	// request of its key, such as its body.
	Fingerprint [32]byte
	// Lease is how long the claim is held unless it is renewed, Retention how
	// long it is remembered. Both are positive, and Retention is not the
	// shorter one.
	Lease, Retention time.Duration
	// Reexecute takes over a claim with an unknown outcome. The request may
	// then run twice.
	Reexecute bool
	// Account is charged for Units, in a [Counter]; "" counts nothing. Other
	// stores ignore both.
	Account Account
	Units   int64
}

func (c *Claim) organization() string { return cmp.Or(c.Organization, c.Tenant) }

// State is what a Store knows of a key. A [Runner] takes the zero State, which is
// none of them, for an error of the store.
type State uint8

const (
	Claimed    State = iota + 1 // the caller holds the claim and must run
	InProgress                  // another holds the claim, and its lease is live
	Done                        // there is a reply
	Unknown                     // it was begun, and its outcome is not known
)

func (s State) String() string {
	if s < Claimed || s > Unknown {
		return fmt.Sprintf("State(%d)", uint8(s))
	}
	return [...]string{Claimed: "claimed", InProgress: "in progress", Done: "done", Unknown: "unknown"}[s]
}

// Record is the answer to a Claim.
type Record struct {
	State State
	// Fingerprint is that of the first request with the key. It is zero only
	// when State is InProgress and the store cannot read what another transaction
	// holds.
	Fingerprint [32]byte
	// Attempt is set when State is Claimed: 1, or more after a take-over.
	Attempt int
	// RetryAfter is set when State is InProgress: how long until the lease ends
	// if its holder does not renew it. Zero means that it is not known.
	RetryAfter time.Duration
	// Payload is set when State is Done. Do not write to it: the store or
	// another caller may hold the same bytes. Empty and nil are the same.
	Payload []byte
	// Retained says, when State is Done, that Payload is the Settlement's
	// Payload, byte for byte. Otherwise the store evicted the payload for want
	// of room, and Payload is the Settlement's Summary, or empty; or a [Seal]
	// did not open it, and Payload is empty.
	Retained bool
}

// Outcome is how a claim ends. The zero Outcome is OutcomeUnknown, which never
// lets a request run twice.
type Outcome uint8

const (
	OutcomeUnknown Outcome = iota // it was begun; how it ended is not known
	OutcomeDone                   // there is a reply: Payload
	OutcomeFree                   // proven that this run did nothing: the key is free again
)

// Settlement ends a claim.
type Settlement struct {
	Outcome Outcome
	// Payload is the reply of a request that is done. A store does not look into
	// it, and keeps it whole for as long as it has room, whatever its length.
	Payload []byte
	// Summary is what a store keeps in place of Payload when it runs out of
	// room. Keep it under 1 KiB, with a [Seal] 40 bytes less.
	Summary []byte
	// RollBack, in joined mode only, keeps the record and rolls back what the
	// request wrote in its transaction.
	RollBack bool
	// Retention is how long the outcome is remembered, from the time it is
	// stored. Positive; a [Runner] fills it in.
	Retention time.Duration
	// Units is what the Account of the Claim is charged for.
	Units int64
}
