package main

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// sqlTasks keeps tasks in a database. In a joined request it writes in the
// request's transaction, so that a task and the reply that tells of it are
// there together or not at all.
type sqlTasks struct {
	db     *sql.DB
	sqlite bool
}

// migrate makes the table. Two servers may do it at the same time.
func (s *sqlTasks) migrate(ctx context.Context) error {
	lock := `SELECT pg_advisory_xact_lock(hashtext('fleet_tasks'));`
	if s.sqlite {
		lock = ""
	}
	_, err := s.db.ExecContext(ctx, lock+`CREATE TABLE IF NOT EXISTS fleet_tasks (
		tenant TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (tenant, id))`)
	return err
}

func (s *sqlTasks) Create(ctx context.Context, tenant, title string) (task, error) {
	t := newTask(title)
	return t, s.exec(ctx, `INSERT INTO fleet_tasks VALUES ($1, $2, $3, $4)`, tenant, t.ID, t.Title, t.State)
}

func (s *sqlTasks) Find(ctx context.Context, tenant, id string) (task, error) {
	found, err := s.read(ctx, `WHERE tenant = $1 AND id = $2`, tenant, id)
	if err != nil || len(found) == 0 {
		return task{}, cmp.Or(err, error(errNoTask))
	}
	return found[0], nil
}

func (s *sqlTasks) List(ctx context.Context, tenant string) ([]task, error) {
	return s.read(ctx, `WHERE tenant = $1 ORDER BY id DESC LIMIT 100`, tenant)
}

func (s *sqlTasks) Cancel(ctx context.Context, tenant, id string) (task, error) {
	if err := s.exec(ctx, `UPDATE fleet_tasks SET state = $1 WHERE tenant = $2 AND id = $3`, cancelled, tenant,
		id); err != nil {
		return task{}, err
	}
	return s.Find(ctx, tenant, id)
}

// in is the request's own transaction, or the pool.
func (s *sqlTasks) in(ctx context.Context) interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
} {
	if tx, ok := idemsql.Tx(ctx); ok {
		return tx
	}
	return s.db
}

// text spells the parameters $1, $2, … as the database does.
func (s *sqlTasks) text(query string) string {
	if s.sqlite {
		return strings.ReplaceAll(query, "$", "?")
	}
	return query
}

func (s *sqlTasks) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.in(ctx).ExecContext(ctx, s.text(query), args...)
	return err
}

func (s *sqlTasks) read(ctx context.Context, where string, args ...any) ([]task, error) {
	in := s.in(ctx)
	if s.sqlite { // a statement that is interrupted stays open, and with it the file locked
		ctx = context.WithoutCancel(ctx)
	}
	rows, err := in.QueryContext(ctx, s.text(`SELECT id, title, state FROM fleet_tasks `+where), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []task{}
	for rows.Next() {
		var t task
		if err := rows.Scan(&t.ID, &t.Title, &t.State); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, rows.Err()
}
