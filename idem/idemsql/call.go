package idemsql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/internal/claims"
)

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// calm returns the context for a statement. In SQLite no statement is
// interrupted: a driver may lose track of one that was, and the file stays
// locked by its writes. A statement takes no longer than the busy_timeout, and
// await does not wait for it.
func (s *Store) calm(ctx context.Context) context.Context {
	if s.oneWriter {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// onPool lets do use the pool. The wait for a connection ends with ctx.
func (s *Store) onPool(ctx context.Context, do func(ctx context.Context, q querier) error) error {
	if !s.oneWriter {
		if err := s.locate(ctx, s.db); err != nil {
			return err
		}
		return do(ctx, s.db)
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(s.calm(ctx), conn)
}

// await does something with the pool, and returns when ctx ends. What comes later
// goes to late, if that is not nil.
func await[T any](
	ctx context.Context, s *Store, doing string, do func(ctx context.Context, q querier) (T, error), late func(T),
) (T, error) {
	return claims.Await(ctx, "idemsql: "+doing, func() (got T, err error) {
		err = s.onPool(ctx, func(ctx context.Context, q querier) (err error) {
			got, err = do(ctx, q)
			return err
		})
		return got, err
	}, late)
}

// locate finds the schema of the table when the store is first used.
func (s *Store) locate(ctx context.Context, q querier) error {
	return s.names.Locate(ctx, func(ctx context.Context, statement string, dest []any, _ ...any) error {
		return s.one(ctx, q, statement, dest)
	})
}

// one runs a statement to its end and scans its only row. A write that returns
// a row is complete only when its rows have been read.
func (s *Store) one(ctx context.Context, q querier, statement string, dest []any, args ...any) error {
	found := false
	err := s.all(ctx, q, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(dest...)
	}, statement, args...)
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// all runs a query to its end and has scan read each of its rows.
func (s *Store) all(ctx context.Context, q querier, scan func(*sql.Rows) error, statement string, args ...any) error {
	statement, args = s.sql(statement, args)
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// write runs a write of one row. The error is ErrLost when it found no row to
// write.
func (s *Store) write(ctx context.Context, q querier, statement string, args ...any) error {
	rows, err := s.exec(ctx, q, statement, args...)
	if err == nil && rows == 0 {
		err = idem.ErrLost
	}
	return err
}

// exec runs a write and returns how many rows it has changed.
func (s *Store) exec(ctx context.Context, q querier, statement string, args ...any) (rows int, err error) {
	statement, args = s.sql(statement, args)
	result, err := q.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}
