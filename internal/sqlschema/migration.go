package sqlschema

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Schema is the tables of a store in their present version.
type Schema struct {
	Table string   // the table with the rows; its name and _schema is where the version is
	Steps []string // the statements that make the tables, and those that lead from each version to the next
	Engine
}

// first is the version of the tables that the first of the steps makes. Versions
// before it are those of the development before v0.1.0.
const first = 100

// latest is the version to which all steps lead.
func (m Schema) latest() int { return first + len(m.Steps) - 1 }

// An Engine is a kind of database. In its statements {table} stands for the name
// of the table.
type Engine struct {
	name    string // of the function that makes a Store for it
	alone   string // a statement that the others refuse
	exists  string // asks whether {table} is there; needs no right on it
	prepare string // makes the table of the version
	stay    string // has what the steps make get into the schema of the table, where the database may take another
	commits bool   // each statement that changes the schema commits

	// isolation is that of the transaction with the steps, where the default of
	// the database may not let it see what was written while it waited.
	isolation sql.IsolationLevel
}

const versionTable = `
	CREATE TABLE IF NOT EXISTS {table}_schema (version integer NOT NULL);
	INSERT INTO {table}_schema SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM {table}_schema);`

// Postgres takes all steps in one transaction. Another server that migrates
// waits for it.
func Postgres() Engine {
	return Engine{
		name: "Postgres", alone: "SELECT pg_backend_pid()",
		exists: "SELECT to_regclass('{table}') IS NOT NULL",
		// Postgres lets two sessions try to make one table at once, and one of
		// them fails. The number has no meaning. The lock ends with these
		// statements, which are one transaction.
		prepare: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;" +
			"SELECT pg_advisory_xact_lock(7136293384015523);" + versionTable,
		stay: "SELECT set_config('search_path', concat_ws(', ', quote_ident(n.nspname), " +
			"nullif(current_setting('search_path'), '')), true) FROM pg_class AS c JOIN pg_namespace AS n " +
			"ON n.oid = c.relnamespace WHERE c.oid = to_regclass('{table}')",
		isolation: sql.LevelReadCommitted,
	}
}

// SQLite does as Postgres. Another process waits for the file.
func SQLite() Engine {
	return Engine{
		name: "SQLite", alone: "SELECT sqlite_version()",
		exists:  "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{table}')",
		prepare: versionTable,
	}
}

// MySQL is MariaDB too. Each statement that changes the schema commits, so that
// the next Migrate finishes one that was interrupted.
func MySQL() Engine {
	return Engine{
		name: "MySQL", alone: "SELECT CONNECTION_ID()",
		exists: "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND " +
			"table_name = '{table}')",
		prepare: `
			CREATE TABLE IF NOT EXISTS {table}_schema (
				id      TINYINT NOT NULL PRIMARY KEY,
				version INTEGER NOT NULL,
				begun   INTEGER NOT NULL DEFAULT 0 -- the version to which Migrate was on the way
			) ENGINE=InnoDB;

			INSERT IGNORE INTO {table}_schema (id, version) VALUES (1, 0);`,
		commits: true,
	}
}

// Migrate makes the tables, or brings those of an older version up to date.
func (m Schema) Migrate(ctx context.Context, db *sql.DB) error {
	current, err := m.isCurrent(ctx, db)
	if err != nil {
		return cmp.Or(m.mistaken(ctx, db), err)
	}
	if current {
		return nil
	}
	if m.commits {
		return m.migrateByStatement(ctx, db)
	}
	return m.migrate(ctx, db)
}

// isCurrent reports whether there is nothing to do.
func (m Schema) isCurrent(ctx context.Context, db *sql.DB) (bool, error) {
	// Asked first, because a version that cannot be read is no reason to make
	// the tables.
	there, err := m.has(ctx, db, m.Table+"_schema")
	if err != nil || !there {
		return false, err
	}
	version, err := m.version(ctx, db)
	if errors.Is(err, sql.ErrNoRows) {
		// Another server may have made the table and not filled it yet. Then
		// there are no rows to keep, or there is a version by now.
		if there, err := m.has(ctx, db, m.Table); err != nil || !there {
			return false, err
		}
		version, err = m.version(ctx, db)
	}
	return version == m.latest(), err
}

// migrate takes all steps in one transaction.
func (m Schema) migrate(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, m.sql(m.prepare)); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: m.isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// The write comes first: another server that migrates waits here, in
	// Postgres for the row and in SQLite for the file.
	if _, err := tx.ExecContext(ctx, m.sql("UPDATE {table}_schema SET version = version")); err != nil {
		return err
	}
	done, err := m.stepsDone(ctx, tx, 0)
	if err != nil {
		return err
	}
	steps := m.Steps[done:]
	if m.stay != "" {
		steps = append([]string{m.sql(m.stay)}, steps...)
	}
	for _, step := range steps {
		if _, err := tx.ExecContext(ctx, step); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, m.sql("UPDATE {table}_schema SET version = "+fmt.Sprint(m.latest()))); err != nil {
		return err
	}
	return tx.Commit()
}

// migrateByStatement takes the steps where no transaction can take them back.
// When it is interrupted, the next call begins the step again and passes over
// what is there.
func (m Schema) migrateByStatement(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The lock belongs to the session. In a Galera cluster it holds on one node
	// only; there, and when the session ends early, servers that migrate at the
	// same time pass over what the other has made. Its name is not NULL without a
	// default database, so that the next statement says what is missing.
	lock := m.sql("LEFT(CONCAT_WS(' ', '{table}', DATABASE()), 64)")
	var locked sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+lock+", 3600)").Scan(&locked); err != nil {
		return err
	}
	if !locked.Bool {
		return errors.New("another server has been migrating for an hour")
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK("+lock+")")
	if err := m.execEach(ctx, conn, m.sql(m.prepare)); err != nil {
		return err
	}
	var begun int
	if err := conn.QueryRowContext(ctx, m.sql("SELECT begun FROM {table}_schema")).Scan(&begun); err != nil {
		return err
	}
	done, err := m.stepsDone(ctx, conn, begun)
	if err != nil {
		return err
	}
	for ; done < len(m.Steps); done++ {
		to := fmt.Sprint(first + done)
		for _, statements := range []string{
			m.sql("UPDATE {table}_schema SET begun = " + to),
			m.Steps[done],
			m.sql("UPDATE {table}_schema SET version = " + to),
		} {
			if err := m.execEach(ctx, conn, statements); err != nil {
				return err
			}
		}
	}
	return nil
}

// execEach runs statements one by one, since not every connection takes several
// at once. What a statement makes may be there already.
func (m Schema) execEach(ctx context.Context, conn *sql.Conn, statements string) error {
	for _, statement := range strings.Split(strings.TrimSpace(statements), ";\n\n") {
		if _, err := conn.ExecContext(ctx, statement); err != nil && !slices.Contains(mysqlExists, MySQLNumber(err)) {
			return err
		}
	}
	return nil
}

// A queryer is a database, a connection or a transaction.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (m Schema) sql(statement string) string {
	return strings.ReplaceAll(statement, "{table}", m.Table)
}

// Has reports whether the table is there. It needs no right on it.
func (m Schema) Has(ctx context.Context, db *sql.DB) (bool, error) { return m.has(ctx, db, m.Table) }

func (m Schema) has(ctx context.Context, q queryer, name string) (there bool, err error) {
	err = q.QueryRowContext(ctx, strings.ReplaceAll(m.exists, "{table}", name)).Scan(&there)
	return there, err
}

// stepsDone returns how many steps were taken. Tables without a version are an
// error, unless a migration to a version of today has begun.
func (m Schema) stepsDone(ctx context.Context, q queryer, begun int) (int, error) {
	version, err := m.version(ctx, q)
	if err != nil || version != 0 || begun >= first {
		return max(version-first+1, 0), err
	}
	there, err := m.has(ctx, q, m.Table)
	if err == nil && there {
		err = fmt.Errorf("there is a table %s that Migrate did not make: %s", m.Table, m.adopt())
	}
	return 0, err
}

// adopt says what to do with tables that Migrate does not update.
func (m Schema) adopt() string {
	return fmt.Sprintf("drop all tables of the store (GUIDES.md, Remove Sallyport) and call Migrate, or change them "+
		"to what Schema makes and then run UPDATE %s_schema SET version = %d", m.Table, m.latest())
}

// version returns the version of the tables, of those that this package knows.
func (m Schema) version(ctx context.Context, q queryer) (version int, err error) {
	if err := q.QueryRowContext(ctx, m.sql("SELECT version FROM {table}_schema")).Scan(&version); err != nil {
		return 0, fmt.Errorf("the version of the tables cannot be read from %s_schema: %w", m.Table, err)
	}
	switch {
	case version < 0:
		return 0, fmt.Errorf("the tables are of version %d, which no version of this package has made", version)
	case version > m.latest():
		return 0, fmt.Errorf("the tables are of version %d and this package knows none after %d: update the server",
			version, m.latest())
	case 0 < version && version < first:
		return 0, fmt.Errorf("the tables are of version %d, from the development before v0.1.0, and Migrate does not "+
			"update them: %s", version, m.adopt())
	}
	return version, nil
}
