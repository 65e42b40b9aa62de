package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sallyport-go/sallyport/idem"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// calm returns the context for a statement. In SQLite none is interrupted: a
// driver may forget one that was, and the file stays locked by what it has
// written. It takes no longer than the busy_timeout, and await does not wait
// for that.
func (s *Store) calm(ctx context.Context) context.Context {
	if s.oneWriter {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// onPool lets do use the pool. The wait for a connection ends with ctx.
func (s *Store) onPool(ctx context.Context, do func(ctx context.Context, q querier) error) error {
	if !s.oneWriter {
		return do(ctx, s.db)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(s.calm(ctx), conn)
}

// one runs a statement to its end and scans its only row. A statement that
// writes and returns a row is not done before its rows are read.
func one(ctx context.Context, q querier, statement string, dest []any, args ...any) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		found = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || found {
		return err
	}
	return sql.ErrNoRows
}

// await ends with ctx, as not every driver does: SQLite waits for the file's
// lock as long as its busy_timeout says. It always calls do, and what that
// still returns then goes to late, if that is not nil.
func await[T any](ctx context.Context, doing string, do func() (T, error), late func(T)) (value T, err error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := do()
		for again(err) && ctx.Err() == nil {
			value, err = do()
		}
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, failed(ctx, doing, a.err)
	case <-ctx.Done():
	}
	if late != nil {
		go func() {
			if a := <-done; a.err == nil {
				late(a.value)
			}
		}()
	}
	return value, fmt.Errorf("idemsql: %s: %w", doing, ctx.Err())
}

// failed returns the error of a statement as the caller gets it.
func failed(ctx context.Context, doing string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case ended != nil && !errors.Is(err, ended):
		// Each driver has its own words for a statement that was interrupted,
		// and "no rows" is among them.
		return fmt.Errorf("idemsql: %s: %w (%v)", doing, ended, err)
	case err == idem.ErrLost, err == idem.ErrSettled:
		return err
	}
	return fmt.Errorf("idemsql: %s: %w", doing, err)
}
