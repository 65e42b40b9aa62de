package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// sqlTasks keeps tasks in a database. In a joined request it writes in the
// request's transaction, so that a task and the reply that tells of it are
// there together or not at all.
type sqlTasks struct {
	db   taskDatabase
	lock string // begins a migration, so that two take turns
}

const postgresLock = `SELECT pg_advisory_xact_lock(hashtext('example_tasks'));`

// A taskDatabase runs statements in the request's own transaction, or without
// one.
type taskDatabase interface {
	exec(ctx context.Context, query string, args ...any) error
	query(ctx context.Context, query string, args []any, row func(scan) error) error
}

type scan = func(columns ...any) error

// migrate makes the table. Two servers may do it at the same time.
func (s *sqlTasks) migrate(ctx context.Context) error {
	return s.db.exec(ctx, s.lock+`CREATE TABLE IF NOT EXISTS example_tasks (
		tenant           TEXT   NOT NULL,
		id               TEXT   NOT NULL,
		title            TEXT   NOT NULL,
		state            TEXT   NOT NULL,
		created_micros   BIGINT NOT NULL,
		cancelled_micros BIGINT NOT NULL DEFAULT 0,
		PRIMARY KEY (tenant, id)
	)`)
}

func (s *sqlTasks) Create(ctx context.Context, tenant, title string) (task, error) {
	t := newTask(title)
	return t, s.db.exec(ctx,
		`INSERT INTO example_tasks (tenant, id, title, state, created_micros) VALUES ($1, $2, $3, $4, $5)`,
		tenant, t.ID, t.Title, t.State, t.CreatedAt.UnixMicro())
}

func (s *sqlTasks) Find(ctx context.Context, tenant, id string) (task, error) {
	found, err := s.read(ctx, `WHERE tenant = $1 AND id = $2`, tenant, id)
	if err != nil {
		return task{}, err
	}
	if len(found) == 0 {
		return task{}, errNoTask
	}
	return found[0], nil
}

func (s *sqlTasks) List(ctx context.Context, tenant, after string, limit int) ([]task, error) {
	if after == "" {
		after = "task_w" // behind all ids, in any collation
	}
	return s.read(ctx, `WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3`, tenant, after, limit)
}

func (s *sqlTasks) Cancel(ctx context.Context, tenant, id string) (task, error) {
	if err := s.db.exec(ctx,
		`UPDATE example_tasks SET state = $1, cancelled_micros = $2 WHERE tenant = $3 AND id = $4 AND state = $5`,
		cancelled, now().UnixMicro(), tenant, id, open); err != nil {
		return task{}, err
	}
	return s.Find(ctx, tenant, id)
}

func (s *sqlTasks) read(ctx context.Context, where string, args ...any) ([]task, error) {
	all := []task{}
	err := s.db.query(ctx, `SELECT id, title, state, created_micros, cancelled_micros FROM example_tasks `+where, args,
		func(row scan) error {
			var t task
			var created, ended int64
			if err := row(&t.ID, &t.Title, &t.State, &created, &ended); err != nil {
				return err
			}
			t.CreatedAt = time.UnixMicro(created).UTC()
			if ended != 0 {
				t.CancelledAt = time.UnixMicro(ended).UTC()
			}
			all = append(all, t)
			return nil
		})
	return all, err
}

// sqlDatabase is a database that is reached by database/sql.
type sqlDatabase struct {
	db      *sql.DB
	numbers string // what stands before the number of a parameter
	whole   bool   // a statement must not be interrupted: the driver would leave it open, and with it the file locked
}

// in is the request's own transaction, or the pool.
func (d sqlDatabase) in(ctx context.Context) interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
} {
	if tx, ok := idemsql.Tx(ctx); ok {
		return tx
	}
	return d.db
}

// text spells the parameters $1, $2, … as the database does.
func (d sqlDatabase) text(query string) string { return strings.ReplaceAll(query, "$", d.numbers) }

func (d sqlDatabase) exec(ctx context.Context, query string, args ...any) error {
	_, err := d.in(ctx).ExecContext(ctx, d.text(query), args...)
	return err
}

func (d sqlDatabase) query(ctx context.Context, query string, args []any, row func(scan) error) (err error) {
	in := d.in(ctx)
	if d.whole {
		ctx = context.WithoutCancel(ctx)
	}
	rows, err := in.QueryContext(ctx, d.text(query), args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
