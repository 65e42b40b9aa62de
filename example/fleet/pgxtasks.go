package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/idem/idempgx"
)

// pgxDatabase is a Postgres that is reached by pgx alone.
type pgxDatabase struct{ pool *pgxpool.Pool }

// in is the request's own transaction, or the pool.
func (d pgxDatabase) in(ctx context.Context) interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
} {
	if tx, ok := idempgx.Tx(ctx); ok {
		return tx
	}
	return d.pool
}

func (d pgxDatabase) exec(ctx context.Context, query string, args ...any) error {
	_, err := d.in(ctx).Exec(ctx, query, args...)
	return err
}

func (d pgxDatabase) query(ctx context.Context, query string, args []any, row func(scan) error) error {
	rows, err := d.in(ctx).Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
