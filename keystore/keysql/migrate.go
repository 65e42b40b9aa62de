package keysql

import (
	"context"
	"fmt"
	"slices"
)

const (
	versionTable = `
		CREATE TABLE IF NOT EXISTS sallyport_keys_schema (version integer NOT NULL);
		INSERT INTO sallyport_keys_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM sallyport_keys_schema);`

	// Postgres does not keep two sessions from making one table at once, and
	// one of them fails. The number has no meaning; it ends with these
	// statements, which are one transaction.
	postgresPrepare = "SELECT pg_advisory_xact_lock(7136293384015523);" + versionTable

	readVersion = "SELECT version FROM sallyport_keys_schema"
)

// Migrate makes the tables, or brings those of an older version of this
// package up to date. It does nothing when they are, or are newer. Any number
// of servers may call it at the same time. What it does it does in one
// transaction, and it needs the right to create tables only when there is
// something to do. In SQLite it waits for the lock of the file as long as the
// busy_timeout of the connection says, also when ctx ends before.
//
// Nothing else in this package calls it.
func (s *Store) Migrate(ctx context.Context) error {
	var version int
	if err := s.db.QueryRowContext(ctx, readVersion).Scan(&version); err == nil && version >= len(s.steps) {
		return nil
	}
	if err := s.migrate(ctx); err != nil {
		return fmt.Errorf("keysql: migrate: %w", err)
	}
	return nil
}

func (s *Store) migrate(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.prepare); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// A write comes first: whoever else migrates waits here, in Postgres for
	// the row and in SQLite for the file.
	if _, err := tx.ExecContext(ctx, "UPDATE sallyport_keys_schema SET version = version"); err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, readVersion).Scan(&version); err != nil {
		return err
	}
	for _, step := range s.steps[min(version, len(s.steps)):] {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, s.sql("UPDATE sallyport_keys_schema SET version = ?1"), max(version, len(s.steps))); err != nil {
		return err
	}
	return tx.Commit()
}

// Schema returns what [Store.Migrate] runs, for a team that has a migration
// tool of its own and does not call it: the first text makes the tables, and
// each later one, in a later version of this package, adds to what is there.
// The texts are also the files in the directory schema.
func (s *Store) Schema() []string { return slices.Clone(s.steps) }
