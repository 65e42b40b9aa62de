package idemsql

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// errOvertaken means that a row changed between two looks at it.
var errOvertaken = errors.New("another request was quicker")

// errCorrupt means that something else than this package has written to the
// table.
var errCorrupt = errors.New("a row of the table has no valid fingerprint")

// again reports whether the same statement may succeed now. In Postgres a
// statement outside a transaction can fail to serialize when the server's
// default isolation is higher than READ COMMITTED, and in MySQL two statements
// can wait for each other.
func again(err error) bool {
	return err == errOvertaken || sqlState(err) == serializationFailure || mysqlNumber(err) == mysqlDeadlock
}

// decide claims a key, or returns the record that keeps it from being claimed.
// A row that it claims is to be swept after the retention.
func (s *Store) decide(
	ctx context.Context, q querier, statements claiming, c idem.Claim, retention time.Duration,
) (idem.Record, error) {
	if s.mysql != nil {
		return s.beginMySQL(ctx, q, c)
	}
	args := claimArgs(c)
	if statements.fresh != "" {
		args = append(args, lockNumber(c.Key), retention.Microseconds())
		err := s.write(ctx, q, statements.fresh, args...)
		if err == nil {
			return idem.Record{State: idem.Claimed, Fingerprint: c.Fingerprint, Attempt: 1}, nil
		}
		if err != idem.ErrLost {
			return idem.Record{}, err
		}
	}
	for _, statement := range statements.decide {
		n := len(args)
		if statement == s.peek {
			n = len(peekArgs(c))
		}
		r, err := s.decision(ctx, q, statement, nil, args[:n]...)
		if !errors.Is(err, sql.ErrNoRows) {
			return r, err
		}
	}
	return idem.Record{}, errOvertaken
}

// lockNumber returns the second number of the advisory lock of a key. Keys that
// share one are told that the other is in flight, until it has ended.
func lockNumber(key idem.Key) int32 { return int32(binary.BigEndian.Uint32(key[:])) }

// peekArgs returns the parameters of dialect.peek.
func peekArgs(c idem.Claim) []any {
	return []any{c.Key[:], c.Token[:], c.Fingerprint[:], c.Reexecute}
}

// claimArgs returns the parameters of all statements that begin.
func claimArgs(c idem.Claim) []any {
	return append(peekArgs(c), c.Lease.Microseconds(), c.Retention.Microseconds())
}

// decision reads the row of a statement that begins; first is where the columns
// go that it has before the others.
func (s *Store) decision(
	ctx context.Context, q querier, statement string, first []any, args ...any,
) (idem.Record, error) {
	var (
		state, left int64
		fingerprint []byte
		r           idem.Record
	)
	dest := append(first, &state, &fingerprint, &r.Attempt, &left, &r.Payload)
	if err := s.one(ctx, q, statement, dest, args...); err != nil {
		return idem.Record{}, err
	}
	r.State = idem.State(state)
	// The only row without a fingerprint stands for a lock that another holds.
	if n := copy(r.Fingerprint[:], fingerprint); n != len(r.Fingerprint) && (n > 0 || r.State != idem.InFlight) {
		return idem.Record{}, errCorrupt
	}
	switch r.State {
	case idem.InFlight:
		r.RetryAfter = time.Duration(left) * time.Microsecond
	case idem.Done:
		r.Retained = true
	}
	return r, nil
}
