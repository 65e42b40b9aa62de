package sqlschema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Check returns what keeps a store from working. Each of needs is columns FROM
// a table. No driver prepares a statement that is executed without arguments.
func (m Schema) Check(ctx context.Context, db *sql.DB, needs ...string) error {
	if _, err := db.ExecContext(ctx, m.alone); err != nil {
		return cmp.Or(m.mistaken(ctx, db), err)
	}
	var errs []error
	missing := ""
	for _, need := range needs {
		if _, err := db.ExecContext(ctx, m.sql("SELECT "+need+" WHERE 1 = 0")); err != nil && missing == "" {
			missing = err.Error()
			errs = append(errs, fmt.Errorf("%w; call Migrate", err))
		}
	}
	if _, err := db.ExecContext(ctx, m.sql("DELETE FROM {table} WHERE 1 = 0")); err != nil && err.Error() != missing {
		errs = append(errs, fmt.Errorf("%w; connect to a server or file that is not read-only, as a user who may write", err))
	}
	if m.name == Postgres().name {
		errs = append(errs, checkPooler(ctx, db))
	}
	return errors.Join(errs...)
}

// mistaken returns an error if the database is one of another kind.
func (e Engine) mistaken(ctx context.Context, db *sql.DB) error {
	for _, other := range []Engine{Postgres(), SQLite(), MySQL()} {
		if _, err := db.ExecContext(ctx, other.alone); err == nil && other.name != e.name {
			return fmt.Errorf("the database is no %s: make the store with %s", e.name, other.name)
		}
	}
	return nil
}

// checkPooler finds drivers that prepare a statement first and then run it,
// while a pooler gives both to whichever session is free. Connections that ask
// in turn get one session, where the names that pgx gives are then taken. The
// nameless statements of lib/pq only meet when several connections ask at once.
func checkPooler(ctx context.Context, db *sql.DB) error {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var conns []*sql.Conn
	for range cmp.Or(min(db.Stats().MaxOpenConnections, 4), 4) {
		if conn, err := db.Conn(soon); err == nil { // the pool below may be smaller
			defer conn.Close()
			conns = append(conns, conn)
		}
	}
	errs := make([]error, len(conns))
	ask := func(i int) {
		defer func() { _ = recover() }() // some drivers panic on the answer to another statement
		for n := i; n < i+24 && errs[i] == nil; n++ {
			var got int
			errs[i] = errors.New("a statement got the answer of another")
			err := conns[i].QueryRowContext(ctx, fmt.Sprintf("SELECT $1::bigint + %d", n%4), n).Scan(&got)
			if err != nil || got == n+n%4 {
				errs[i] = err
			}
		}
	}
	for i := range conns {
		ask(i)
	}
	var group sync.WaitGroup
	for i := range conns {
		group.Go(func() { ask(i) })
	}
	group.Wait()
	err := cmp.Or(errs...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("statements of several connections fail, as behind a pooler in transaction mode: %w; with pgx set "+
		"default_query_exec_mode=cache_describe, with lib/pq binary_parameters=yes, or let the pooler keep sessions", err)
}
