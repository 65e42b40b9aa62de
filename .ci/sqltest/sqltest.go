// Package sqltest has what the tests of the SQL stores share: a place of its
// own for each test in a server that many use, and servers that a test kills.
// It lies in a hidden folder, because the stores have no parent but the module,
// and importers need none of it.
package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

// SQLite returns the name of a file that is not there yet.
func SQLite(t testing.TB) string {
	servers.SQLite.Met(t)
	return filepath.Join(t.TempDir(), "sqlite.db")
}

// Postgres makes a schema of the test's own in the Postgres that tests may use.
func Postgres(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	return newSchema(t, servers.Postgres.Address(t))
}

func newSchema(t testing.TB, dsn string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin := stdlib.OpenDB(*config)
	schema := "sallyport_" + strings.ToLower(rand.Text())
	execute(t, admin, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		defer admin.Close()
		// A test that ended early may have left transactions open.
		execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
			"WHERE application_name = '"+schema+"' AND pid <> pg_backend_pid(); "+
			"SET lock_timeout = '1min'; DROP SCHEMA "+schema+" CASCADE")
	})
	config.RuntimeParams["search_path"] = schema
	config.RuntimeParams["application_name"] = schema
	return config
}

// MariaDB makes a database of the test's own in the MariaDB that tests may use.
func MariaDB(t testing.TB) *mysql.Config {
	t.Helper()
	return newDatabase(t, servers.MariaDB.Address(t))
}

func newDatabase(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = "sallyport_" + strings.ToLower(rand.Text())
	execute(t, admin, "CREATE DATABASE "+config.DBName)
	t.Cleanup(func() {
		defer admin.Close()
		// A transaction that a test left open ends with its connection.
		for _, id := range sessions(t, admin, config.DBName) {
			admin.ExecContext(context.Background(), "KILL "+id) // it may have ended
		}
		execute(t, admin, "SET STATEMENT lock_wait_timeout = 60 FOR DROP DATABASE "+config.DBName)
	})
	return config
}

func sessions(t testing.TB, admin *sql.DB, database string) (ids []string) {
	rows, err := admin.QueryContext(context.Background(), "SELECT id FROM information_schema.processlist WHERE db = ?",
		database)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return ids
}

func execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
