package keysql

import (
	"context"
	"fmt"
	"slices"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// Migrate makes the tables, or brings those of an older version of this package
// up to date. It does nothing when they are. Any number of servers may call it
// at the same time. It takes one transaction, and needs the right to create
// tables only when there is something to do. In SQLite it waits for the lock of
// the file as long as the busy_timeout of the connection says, even if ctx ends
// before. MySQL cannot roll back changes of a schema: there the next Migrate
// finishes one that was interrupted.
//
// In Postgres and MySQL it waits for the transactions that have read or written
// the keys, such as a backup, and meanwhile all lookups wait for it. Give ctx a
// deadline of a few seconds, and call Migrate again if that was too short.
//
// It returns an error, which says what to do, when the tables are of a later
// version than this package knows, of the development before v0.1.0, or not made
// by Migrate.
//
// Nothing else in this package calls it.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.schema().Migrate(ctx, s.db); err != nil {
		return fmt.Errorf("keysql: migrate: %w", err)
	}
	return nil
}

func (s *Store) schema() sqlschema.Schema {
	return sqlschema.Schema{Table: s.prefix + "keys", Steps: s.steps, Engine: s.engine}
}

// Check returns all that it finds to keep the store from working: another
// database than the store is for, tables or columns that are missing, one that
// is read-only, and in Postgres a pooler that breaks the driver's statements,
// for which it needs two connections. It changes nothing. Call it when the
// program starts, after Migrate, and not with each request.
func (s *Store) Check(ctx context.Context) error {
	err := s.schema().Check(ctx, s.db,
		columns+", root, changed, last_used_from, observed_since, refusals FROM {table}",
		"id, scope, day FROM {table}_scopes", "id, day, requests FROM {table}_days", entryColumns+" FROM {table}_audit")
	if err != nil {
		return fmt.Errorf("keysql: check: %w", err)
	}
	return nil
}

// Schema returns what [Store.Migrate] runs, for a team that has a migration
// tool of its own and does not call it: the first text makes the tables, and
// each later one, in a later version of this package, adds to what is there.
// The texts are also the files in the directory schema. Those for MySQL are
// several statements each, for a connection that takes them (multiStatements).
func (s *Store) Schema() []string { return slices.Clone(s.steps) }
