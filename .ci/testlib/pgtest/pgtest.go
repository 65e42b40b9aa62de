// Package pgtest has what the tests on Postgres share, with pgx as their only
// driver: a schema of its own for each test in a server that many use, servers
// that a test kills, and a pooler.
package pgtest

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/.ci/testlib/dbserver"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Schema makes a schema of the test's own in the Postgres that tests may use.
func Schema(t testing.TB) *pgx.ConnConfig {
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
	dbserver.Execute(t, admin, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		defer admin.Close()
		// A test that ended early may have left transactions open.
		dbserver.Execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
			"WHERE application_name = '"+schema+"' AND pid <> pg_backend_pid(); "+
			"SET lock_timeout = '1min'; DROP SCHEMA "+schema+" CASCADE")
	})
	config.RuntimeParams["search_path"] = schema
	config.RuntimeParams["application_name"] = schema
	return config
}
