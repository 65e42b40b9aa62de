package claims

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/token"
)

// LongestHandler is longer than any handler holds a transaction. The row of a
// joined claim is the transaction's own until Settle writes its retention, so a
// handler that takes longer than that must not find it expired.
const LongestHandler = 24 * time.Hour

// longestAccount is how many bytes the column has for an account.
const longestAccount = 512

// CheckAccount returns an error for an account that has no room in the table, or
// that lies within none: its charges would be added to nothing.
func CheckAccount(a idem.Account) error {
	if a != "" && a[len(a)-1] != 0 {
		return fmt.Errorf("the account %q, which is not from idem.NewAccount", a)
	}
	if len(a) > longestAccount {
		return fmt.Errorf("an account of %d bytes, more than %d", len(a), longestAccount)
	}
	return nil
}

// Check returns an error for a claim that breaks the contract of idem.Claim, or
// has no room in the table.
func Check(c idem.Claim) error {
	if c.Lease <= 0 || c.Retention < c.Lease {
		return fmt.Errorf("a claim with a lease of %v and a retention of %v", c.Lease, c.Retention)
	}
	return CheckAccount(c.Account)
}

// PeekArgs returns the parameters of Peek.
func PeekArgs(c *idem.Claim) []any { return []any{c.Key[:], c.Token[:], c.Fingerprint[:], c.Reexecute} }

// Args returns the parameters of all statements that begin.
func Args(c *idem.Claim) []any {
	var account, units any
	if c.Account != "" {
		account, units = []byte(c.Account), Units(c.Units)
	}
	return append(PeekArgs(c), c.Lease.Microseconds(), c.Retention.Microseconds(), account, units)
}

// Units returns units as the table has them: sums of thousands of the most that
// are possible have room in 64 bits.
func Units(n int64) int64 { return min(max(n, 0), 1<<48) }

// PostgresArgs returns those of Postgres. The row is to be swept after the
// retention.
func PostgresArgs(c *idem.Claim, retention time.Duration) []any {
	return append(Args(c), lockNumber(c.Key), retention.Microseconds())
}

// KeepArgs returns the parameters of PostgresKeep. The reply gets a token of its
// own: a claim by the old one that is still there was committed by the handler,
// and is not overwritten. It is charged to no account.
func KeepArgs(c idem.Claim, t idem.Settlement) []any {
	rand.Read(c.Token[len(token.Prefix("")):])
	retention := t.Retention.Microseconds()
	return append(PeekArgs(&c), payload(t), retention, nil, nil, lockNumber(c.Key), retention)
}

// SettleArgs returns the parameters of Settle and GiveUp. Release and Settled have
// the first two of them, and SettledAs four.
func SettleArgs(key idem.Key, token idem.ClaimToken, t idem.Settlement) []any {
	state, reply := idem.Unknown, []byte{}
	if t.Outcome == idem.OutcomeDone {
		state, reply = idem.Done, payload(t)
	}
	var units any
	if t.Units > 0 && !t.RollBack {
		units = Units(t.Units)
	}
	return []any{key[:], token[:], int64(state), reply, t.Retention.Microseconds(), units}
}

// payload is not nil, which would be NULL.
func payload(t idem.Settlement) []byte {
	if t.Payload == nil {
		return []byte{}
	}
	return t.Payload
}

// lockNumber returns the second number of the advisory lock of a key. Keys that
// share one are told that the other is in progress, until it has ended.
func lockNumber(key idem.Key) int32 { return int32(binary.BigEndian.Uint32(key[:])) }

// An Answer is the row of a statement that begins.
type Answer struct {
	state, left int64
	fingerprint []byte
	record      idem.Record
}

// Columns returns where the columns go.
func (a *Answer) Columns() []any {
	return []any{&a.state, &a.fingerprint, &a.record.Attempt, &a.left, &a.record.Payload}
}

// Lapsed is the state of a claim whose lease is over and that Mark has to mark.
const Lapsed = idem.Unknown + 1

// errCorrupt means that something else than this module has written to the
// table.
var errCorrupt = errors.New("a row of the table has no valid fingerprint")

// Record returns what the row says.
func (a *Answer) Record() (idem.Record, error) {
	r := a.record
	r.State = idem.State(a.state)
	// The only row without a fingerprint stands for a lock that another holds.
	if n := copy(r.Fingerprint[:], a.fingerprint); n != len(r.Fingerprint) && (n > 0 || r.State != idem.InProgress) {
		return idem.Record{}, errCorrupt
	}
	switch r.State {
	case idem.InProgress:
		r.RetryAfter = time.Duration(a.left) * time.Microsecond
	case idem.Done:
		r.Retained = true
	}
	return r, nil
}

// Ask runs a statement that begins, or its part that only looks.
func Ask(ctx context.Context, one One, statement string, args ...any) (idem.Record, error) {
	var a Answer
	if err := one(ctx, statement, a.Columns(), args...); err != nil {
		return idem.Record{}, err
	}
	return a.Record()
}
