package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// decide claims a key, or returns the record that keeps it from being claimed.
// A row that it claims is to be swept after the retention.
func (s *Store) decide(
	ctx context.Context, q querier, statements claiming, c *idem.Claim, retention time.Duration,
) (idem.Record, error) {
	if s.mysql != nil {
		return s.beginMySQL(ctx, q, c)
	}
	args := claims.Args(c)
	if statements.fresh != "" {
		args = claims.PostgresArgs(c, retention)
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
			n = 4 // those of claims.PeekArgs
		}
		r, err := s.decision(ctx, q, statement, nil, args[:n]...)
		if !errors.Is(err, sql.ErrNoRows) {
			return r, err
		}
	}
	return idem.Record{}, claims.ErrOvertaken
}

// decision reads the row of a statement that begins; first is where the columns
// go that it has before the others.
func (s *Store) decision(
	ctx context.Context, q querier, statement string, first []any, args ...any,
) (idem.Record, error) {
	var a claims.Answer
	if err := s.one(ctx, q, statement, append(first, a.Columns()...), args...); err != nil {
		return idem.Record{}, err
	}
	return a.Record()
}
