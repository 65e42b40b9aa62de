package keysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sallyport-go/sallyport/internal/sqlschema"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A Store keeps keys in a database. Its tables have to be there, see
// [Store.Migrate].
//
// An error other than those of package keystore means that the database could
// not answer, and wraps the driver's error, or that of the context when it has
// ended. A write does not outlast its context, but the database may still
// carry it out.
//
// A Store is safe for concurrent use, and holds nothing that has to be closed.
type Store struct {
	db *sql.DB
	dialect
	prefix string
}

// Options are the settings of a [Store].
type Options struct {
	// Prefix is what the names of the tables, their indexes and their triggers
	// begin with, in place of "sallyport_": at most 40 of the characters a-z,
	// 0-9 and _, and no digit first. Stores with different prefixes in one
	// database do not see each other.
	Prefix string
}

var _ issuing.Store = (*Store)(nil)

// Postgres returns a Store in the Postgres database db, which it asks nothing
// yet. The tables are those that the search_path of its connections finds. It
// panics when db is nil or the prefix is not valid, and so do SQLite and MySQL.
func Postgres(db *sql.DB, o Options) *Store { return newStore(db, postgres, o) }

// SQLite is [Postgres] for a SQLite database.
func SQLite(db *sql.DB, o Options) *Store { return newStore(db, sqlite, o) }

// MySQL is [Postgres] for a MySQL or MariaDB database, which the connections
// must have as their default.
func MySQL(db *sql.DB, o Options) *Store { return newStore(db, mysql, o) }

func newStore(db *sql.DB, d dialect, o Options) *Store {
	if db == nil {
		panic("keysql: a Store needs a database")
	}
	prefix := cmp.Or(o.Prefix, sqlschema.DefaultPrefix)
	sqlschema.CheckPrefix("keysql", prefix)
	d.sql, d.steps = sqlschema.WithPrefix(prefix, d.sql, d.steps)
	return &Store{db, d, prefix}
}

// Lookup implements [keystore.Store].
func (s *Store) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	return s.key(ctx, "lookup", "digest = ?1", d[:])
}

// Find implements [issuing.Store].
func (s *Store) Find(ctx context.Context, organization, id string) (*keystore.Key, error) {
	return s.key(ctx, "find", "organization = ?1 AND id = ?2", organization, id)
}

// FindIssued implements [issuing.Store].
func (s *Store) FindIssued(ctx context.Context, organization, actor, issueToken string) (*keystore.Key, error) {
	return s.key(ctx, "find issued", "organization = ?1 AND created_by = ?2 AND "+s.issued,
		organization, actor, issueToken)
}

// key returns the one key for which the condition holds.
func (s *Store) key(ctx context.Context, doing, condition string, args ...any) (*keystore.Key, error) {
	for _, arg := range args {
		if text, ok := arg.(string); ok && !isText(text) {
			return nil, keystore.ErrNotFound
		}
	}
	k, err := scanKey(s.queryRow(ctx, "SELECT "+columns+" FROM sallyport_keys WHERE "+condition, args...))
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	if k.Parent == "" {
		return k, nil
	}
	err = s.rows(ctx, doing, statement{ancestors, []any{k.Organization, k.Parent}}, func(rows *sql.Rows) error {
		above, err := scanKey(rows)
		k.Ancestors = append(k.Ancestors, above)
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// ancestors selects a key and those above it. It is a statement of its own, so
// that a key without a parent costs no more: a change that returned before the
// first one began is seen by both.
const ancestors = `WITH RECURSIVE line (key_id, above, depth) AS (
		SELECT id, parent, 1 FROM sallyport_keys WHERE organization = ?1 AND id = ?2
		UNION ALL
		SELECT k.id, k.parent, line.depth + 1 FROM line
		JOIN sallyport_keys AS k ON k.id = line.above AND k.organization = ?1 WHERE line.depth < 3
	)
	SELECT ` + columns + " FROM line JOIN sallyport_keys ON id = key_id ORDER BY depth"

const onConflict = " ON CONFLICT DO NOTHING"

// A statement is SQL with its arguments, before the dialect has seen it.
type statement struct {
	query string
	args  []any
}

// where adds a condition, if it is asked for, in which ? stands for arg.
func (st *statement) where(asked bool, condition string, arg any) {
	if asked {
		st.args = append(st.args, arg)
		st.query += strings.ReplaceAll(condition, "?", fmt.Sprint("?", len(st.args)))
	}
}

// inserting returns the statement that stores k, or what is wrong with k.
func (s *Store) inserting(k *keystore.Key) (statement, error) {
	successorOf := k.RotatedFrom
	if k.Parent != "" { // takes the place of a successor, which an earlier version would make without a parent
		successorOf = k.ID
	}
	return statement{
		"INSERT INTO sallyport_keys (" + columns +
			", root) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, " +
			"?14, ?15, 1, ?16, ?17, ?18, ?19, ?20)" + onConflict,
		[]any{
			k.ID, digestBytes(k), k.Organization, string(k.Environment), k.Name, k.Hint, asJSON(k.Scopes, "[]"),
			s.time(k.CreatedAt), k.CreatedBy, s.optional(k.ExpiresAt), s.optional(k.RevokedAt), k.Suspended,
			s.optional(k.LastUsedAt),
			k.IssueToken, successorOf, k.Legacy, asJSON(k.Attributes, "{}"), asJSON(k.Networks, "[]"), k.Parent, rootOf(k),
		}}, s.checkFields(k)
}

// rootOf returns the id of the last of the ancestors, "" if there are none.
func rootOf(k *keystore.Key) string {
	if n := len(k.Ancestors); n > 0 {
		return k.Ancestors[n-1].ID
	}
	return k.Parent
}

// conflict returns why k could not be inserted.
func (s *Store) conflict(ctx context.Context, k *keystore.Key) error {
	var exists bool
	err := s.queryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM sallyport_keys WHERE id = ?4)
			OR EXISTS (SELECT 1 FROM sallyport_keys WHERE digest = ?5)
			OR EXISTS (SELECT 1 FROM sallyport_keys WHERE organization = ?1 AND created_by = ?2 AND `+s.issued+")",
		k.Organization, k.CreatedBy, k.IssueToken, k.ID, digestBytes(k)).Scan(&exists)
	switch {
	case err != nil:
		return failed(ctx, "insert", err)
	case exists || k.RotatedFrom == "":
		return issuing.ErrExists
	}
	return issuing.ErrRotated
}

func (s *Store) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	query, args = s.sql(query, args)
	return s.db.QueryRowContext(ctx, query, args...)
}

// rows calls scan for each row of a query.
func (s *Store) rows(ctx context.Context, doing string, st statement, scan func(*sql.Rows) error) error {
	query, args := s.sql(st.query, st.args)
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return failed(ctx, doing, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return failed(ctx, doing, err)
		}
	}
	return failed(ctx, doing, rows.Err())
}

// each calls row for each row of a query, which is scanned into dest.
func (s *Store) each(ctx context.Context, doing string, st statement, dest []any, row func()) error {
	return s.rows(ctx, doing, st, func(rows *sql.Rows) error {
		err := rows.Scan(dest...)
		if err == nil {
			row()
		}
		return err
	})
}

// exec runs a write and returns how many rows it wrote.
func (s *Store) exec(ctx context.Context, doing, query string, args ...any) (rows int64, err error) {
	return s.run(ctx, doing, func() (int64, error) { return s.execOn(ctx, s.db, statement{query, args}) })
}

// execOn runs a write on the pool or in a transaction.
func (s *Store) execOn(ctx context.Context, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, st statement) (rows int64, err error) {
	query, args := s.sql(st.query, st.args)
	result, err := on.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// run calls write, which does all of its work or none, and returns how many
// rows it wrote.
func (s *Store) run(ctx context.Context, doing string, write func() (int64, error)) (rows int64, err error) {
	type outcome struct {
		rows int64
		err  error
	}
	// In a goroutine, because SQLite waits for the lock of the file as long as
	// its busy_timeout says and no driver ends that wait with the context.
	done := make(chan outcome, 1)
	begin := func() {
		rows, err := write()
		for sqlschema.MySQLAgain(err) && ctx.Err() == nil {
			rows, err = write()
		}
		if sqlschema.MySQLNumber(err) == sqlschema.MySQLDuplicate {
			rows, err = 0, nil
		}
		done <- outcome{rows, err}
	}
	if ctx.Err() == nil {
		go begin()
	}
	select {
	case o := <-done:
		rows, err = o.rows, o.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	return rows, failed(ctx, doing, err)
}

// notMigrated finds a table or a column that is missing.
var notMigrated = regexp.MustCompile("42P01|42703|42S02|42S22|no such (table|column)|no column named").MatchString

// failed returns the error of a statement as the caller gets it.
func failed(ctx context.Context, doing string, err error) error {
	switch ended := ctx.Err(); {
	case err == nil:
		return nil
	case ended != nil && !errors.Is(err, ended):
		// Each driver has its own words for a statement that was interrupted,
		// and "no rows" is among them.
		return fmt.Errorf("keysql: %s: %w (%v)", doing, ended, err)
	case errors.Is(err, sql.ErrNoRows):
		return keystore.ErrNotFound
	case notMigrated(err.Error()):
		return fmt.Errorf("keysql: %s: %w; call Migrate", doing, err)
	}
	return fmt.Errorf("keysql: %s: %w", doing, err)
}
