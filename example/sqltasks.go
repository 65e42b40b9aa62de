package main

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/idem/idemsql"
)

// sqlTasks keeps tasks in a database. In a joined request it writes in the
// request's transaction, so that a task and the reply that tells of it are
// there together or not at all.
type sqlTasks struct {
	db      *sql.DB
	dialect tasksDialect
}

// A tasksDialect is what the two databases do not have in common.
type tasksDialect struct {
	lock    string // a statement that makes migrations take turns, or ""
	numbers string // what stands before the number of a parameter
	whole   bool   // a statement must not be interrupted: the driver would leave it open, and with it the file locked
}

var (
	postgresTasks = tasksDialect{lock: `SELECT pg_advisory_xact_lock(hashtext('example_tasks'))`, numbers: "$"}
	sqliteTasks   = tasksDialect{numbers: "?", whole: true}
)

const taskColumns = `id, title, state, created_micros, cancelled_micros`

// migrate makes the table. Two servers may do it at the same time.
func (s *sqlTasks) migrate(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range []string{
		s.dialect.lock,
		`CREATE TABLE IF NOT EXISTS example_tasks (
			tenant           TEXT   NOT NULL,
			id               TEXT   NOT NULL,
			title            TEXT   NOT NULL,
			state            TEXT   NOT NULL,
			created_micros   BIGINT NOT NULL,
			cancelled_micros BIGINT NOT NULL DEFAULT 0,
			PRIMARY KEY (tenant, id)
		)`,
		`CREATE INDEX IF NOT EXISTS example_tasks_newest ON example_tasks (tenant, created_micros, id)`,
	} {
		if statement == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// in is the request's own transaction, or the pool.
func (s *sqlTasks) in(ctx context.Context) querier {
	if tx, ok := idemsql.Tx(ctx); ok {
		return tx
	}
	return s.db
}

// query spells the parameters $1, $2, … as the database does.
func (s *sqlTasks) query(text string) string { return strings.ReplaceAll(text, "$", s.dialect.numbers) }

func (s *sqlTasks) Create(ctx context.Context, tenant, title string) (task, error) {
	t := task{ID: "task_" + xid.New().String(), Title: title, State: open,
		CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	_, err := s.in(ctx).ExecContext(ctx,
		s.query(`INSERT INTO example_tasks (tenant, `+taskColumns+`) VALUES ($1, $2, $3, $4, $5, 0)`),
		tenant, t.ID, t.Title, t.State, t.CreatedAt.UnixMicro())
	return t, err
}

// knows reports whether an id is one that Create makes. Other text need not
// even be text to a database.
func knows(id string) bool {
	_, err := cursorAt(task{ID: id})
	return err == nil && strings.HasPrefix(id, "task_")
}

func (s *sqlTasks) Find(ctx context.Context, tenant, id string) (task, error) {
	if !knows(id) {
		return task{}, errNoTask
	}
	found, err := s.read(ctx, `SELECT `+taskColumns+` FROM example_tasks WHERE tenant = $1 AND id = $2`, tenant, id)
	if err != nil {
		return task{}, err
	}
	if len(found) == 0 {
		return task{}, errNoTask
	}
	return found[0], nil
}

func (s *sqlTasks) List(ctx context.Context, tenant string, after cursor, limit int) ([]task, error) {
	if after == (cursor{}) {
		after.micros = math.MaxInt64
	}
	return s.read(ctx, `SELECT `+taskColumns+` FROM example_tasks WHERE tenant = $1 AND (created_micros, id) < ($2, $3)
		ORDER BY created_micros DESC, id DESC LIMIT $4`, tenant, after.micros, after.taskID(), limit)
}

func (s *sqlTasks) Cancel(ctx context.Context, tenant, id string) (task, error) {
	if !knows(id) {
		return task{}, errNoTask
	}
	_, err := s.in(ctx).ExecContext(ctx,
		s.query(`UPDATE example_tasks SET state = $1, cancelled_micros = $2 WHERE tenant = $3 AND id = $4 AND state = $5`),
		cancelled, time.Now().UnixMicro(), tenant, id, open)
	if err != nil {
		return task{}, err
	}
	return s.Find(ctx, tenant, id)
}

func (s *sqlTasks) read(ctx context.Context, query string, args ...any) (all []task, err error) {
	in := s.in(ctx)
	if s.dialect.whole {
		ctx = context.WithoutCancel(ctx)
	}
	rows, err := in.QueryContext(ctx, s.query(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = []task{}
	for rows.Next() {
		var t task
		var created, ended int64
		if err := rows.Scan(&t.ID, &t.Title, &t.State, &created, &ended); err != nil {
			return nil, err
		}
		t.CreatedAt = time.UnixMicro(created).UTC()
		if ended != 0 {
			t.CancelledAt = time.UnixMicro(ended).UTC()
		}
		all = append(all, t)
	}
	return all, rows.Err()
}
