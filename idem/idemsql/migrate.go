package idemsql

import (
	"context"
	"fmt"
	"slices"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
)

// Migrate makes the tables, or brings those of an older version of this package
// up to date. It does nothing when it is. Any number of servers may call it at
// the same time. What it does it does in one transaction, and it needs the
// right to create tables only when there is something to do. In SQLite it waits
// for the lock of the file as long as the busy_timeout of the connection says,
// also when ctx ends before. In MySQL, where a schema cannot be taken back, an
// interrupted Migrate is finished by the next one.
//
// In Postgres a step to a later version waits for the transactions that have
// used the table, such as a backup, and meanwhile all keyed requests wait for
// it. The second step also reads the table once, for its index. Give ctx a
// deadline of a few seconds, and call Migrate again if that was too short. With
// many millions of rows make the columns and the index by hand before, the index
// CONCURRENTLY: the step passes over what is there. Drop the index if that has
// failed: it is there and not valid, and nothing uses it.
//
// It returns an error, which says what to do, when the table is of a later
// version than this package knows, of the development before v0.1.0, or not made
// by Migrate.
//
// Nothing else in this package calls it.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.schema().Migrate(ctx, s.db); err != nil {
		return fmt.Errorf("idemsql: migrate: %w", err)
	}
	return nil
}

func (s *Store) schema() sqlschema.Schema {
	return sqlschema.Schema{Table: s.options.Prefix + "idem", Steps: s.steps, Engine: s.engine}
}

// Check returns all that it finds to keep the store from working: another
// database than the store is for, a table or column that is missing, one that
// is read-only, and in Postgres a pooler that breaks the driver's statements,
// for which it needs two connections. It changes nothing. Call it when the
// program starts, after Migrate, and not with each request.
func (s *Store) Check(ctx context.Context) error {
	s.locate(ctx, s.db) // the other tables have to be in the schema of the first
	err := s.schema().Check(ctx, s.db, s.columns+" FROM {table}", s.names.Text("account, day, units FROM sallyport_used"),
		s.names.Text("number, id, account, units, began, uncertain FROM sallyport_usage"))
	if err != nil {
		return fmt.Errorf("idemsql: check: %w", err)
	}
	return nil
}

// Schema returns what [Store.Migrate] runs, for a team that has a migration
// tool of its own and does not call it: the first text makes the table, and
// each later one, in a later version of this package, adds to what is there.
// The texts are also the files in the directory schema. Those for MySQL are
// several statements each, for a connection that takes them (multiStatements).
func (s *Store) Schema() []string { return slices.Clone(s.steps) }
