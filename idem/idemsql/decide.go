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

// again reports whether the same statement may succeed now. In Postgres one
// outside a transaction fails to serialize when the server's default is a
// higher isolation than READ COMMITTED.
func again(err error) bool { return err == errOvertaken || sqlState(err) == serializationFailure }

// decide claims a key or says what is there.
func (s *Store) decide(ctx context.Context, q querier, statements []string, c idem.Claim) (idem.Record, error) {
	args := append(peekArgs(c), c.Lease.Microseconds(), c.Retention.Microseconds())
	if s.locks {
		args = append(args, int32(binary.BigEndian.Uint32(c.Key.Digest[:])))
	}
	for _, statement := range statements {
		n := len(args)
		if statement == s.peek {
			n = len(peekArgs(c))
		}
		r, err := decision(ctx, q, statement, args[:n]...)
		if !errors.Is(err, sql.ErrNoRows) {
			return r, err
		}
	}
	return idem.Record{}, errOvertaken
}

// peekArgs returns the parameters of dialect.peek.
func peekArgs(c idem.Claim) []any {
	return []any{c.Key.Partition[:], c.Key.Digest[:], c.Token[:], c.Fingerprint[:], c.Reexecute}
}

// decision reads the row of a statement that begins.
func decision(ctx context.Context, q querier, statement string, args ...any) (idem.Record, error) {
	var (
		state, left int64
		fingerprint []byte
		r           idem.Record
	)
	if err := one(ctx, q, statement, []any{&state, &fingerprint, &r.Attempt, &left, &r.Payload}, args...); err != nil {
		return idem.Record{}, err
	}
	r.State = idem.State(state)
	copy(r.Fingerprint[:], fingerprint)
	switch r.State {
	case idem.InFlight:
		r.LeaseLeft = time.Duration(left) * time.Microsecond
	case idem.Done:
		r.Retained = true
	}
	return r, nil
}
