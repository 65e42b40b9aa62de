package idem

import (
	"context"
	"time"
)

// Counter is a [Store] that counts the units that operations use: [Memory], and
// the stores of packages idemsql and idempgx.
//
// Units are fields of the claim and of the settlement, so that the step which
// decides about a reply decides about its units:
//
//   - A claim with an Account holds its Units. A take-over replaces the account,
//     the units and the time of what is taken over.
//   - [OutcomeDone] charges the Units of the Settlement, which may be none.
//   - [OutcomeUnknown], and a lease that has lapsed, leave a charge that is
//     uncertain, of the Settlement's or the Claim's Units, until the claim is
//     taken over or settled. When its retention ends it is final, and uncertain.
//   - [OutcomeFree] charges nothing where it removes the record, and neither does a
//     Settle that gets an error.
//   - A transaction charges when it is committed, and nothing with RollBack.
//
// A record whose charge is not added up yet is remembered beyond its retention:
// until then its key cannot be claimed by another request.
type Counter interface {
	Store

	// Count charges an account for something that has no key and is done. The zero
	// Account, and units that are not positive, are not charged.
	Count(ctx context.Context, a Account, units int64) error

	// Used returns how many units of an account, and of those within it, were
	// charged since the beginning of a UTC day, or ever for the zero time, those
	// that are uncertain among them; and the time of the store's clock. Those of a claim that is held under
	// a live lease, or by a transaction, do not count yet.
	Used(ctx context.Context, a Account, since time.Time) (units int64, now time.Time, err error)

	// Charges returns the oldest charges that are final and were not acknowledged,
	// in the order of their numbers, at most limit. Each is returned at least
	// once, however late its transaction commits. One that was just made may not
	// be among them yet.
	Charges(ctx context.Context, limit int) ([]Charge, error)

	// Acknowledge removes the charges up to a number that Charges has returned; up
	// to a higher one, also those that nobody has read. What is used does not
	// change.
	Acknowledge(ctx context.Context, number int64) error

	// Uncertain returns the charges that are uncertain and not final, the oldest
	// first, at most limit.
	Uncertain(ctx context.Context, limit int) ([]Charge, error)
}

// A Charge is what one operation has used.
type Charge struct {
	// Number is higher than those of all charges that became final before; 0 for
	// one that is not final.
	Number int64
	// ID names the operation, by 32 hexadecimal digits. It is the same each time
	// that the charge is read, and no other charge has it.
	ID      string
	Account Account
	Units   int64
	// Began is when the claim was made, by the store's clock: the charge counts in
	// that UTC day.
	Began time.Time
	// Uncertain is set if nobody knows whether the operation took effect.
	Uncertain bool
}
