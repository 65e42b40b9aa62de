// Package pgtest has what the tests on Postgres share, with pgx as their only
// driver: a schema of its own for each test in a server that many use, servers
// that a test kills, and a pooler.
package pgtest

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

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
	servers.Execute(t, admin, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		defer admin.Close()
		// A test that ended early may have left transactions open.
		servers.Execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
			"WHERE application_name = '"+schema+"' AND pid <> pg_backend_pid(); "+
			"SET lock_timeout = '1min'; DROP SCHEMA "+schema+" CASCADE")
	})
	config.RuntimeParams["search_path"] = schema
	config.RuntimeParams["application_name"] = schema
	return config
}

// Server is a Postgres that a test may kill.
type Server struct{ *servers.Daemon }

// NewServer returns a server without data. Postgres serves no user without a name.
func NewServer(t testing.TB) *Server {
	t.Helper()
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skipf("left out: it needs a line for this user in /etc/passwd; %v", err)
	}
	servers.Postgres.Address(t) // so that it is left out with the others
	return &Server{servers.NewDaemon(t, "postgres")}
}

// Run runs a program of Postgres to its end.
func (p *Server) Run(program string, args ...string) {
	p.T.Helper()
	p.Daemon.Run(servers.Program(p.T, program, "postgresql"), args...)
}

// Data is the directory of the server's data.
func (p *Server) Data() string { return p.Dir + "/data" }

func (p *Server) dsn() string { return "postgres://postgres@/postgres?sslmode=disable&host=" + p.Dir }

// Start starts the server, which makes its data unless it has some, and waits until it serves.
func (p *Server) Start() {
	p.T.Helper()
	if _, err := os.Stat(p.Data()); err != nil {
		p.Run("initdb", "-D", p.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	}
	p.Daemon.Start(p.Open(), servers.Program(p.T, "postgres", "postgresql"), "-D", p.Data(), "-k", p.Dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off")
}

// Open returns a pool that is closed after the test.
func (p *Server) Open() *sql.DB {
	p.T.Helper()
	db, err := sql.Open("pgx", p.dsn())
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { db.Close() })
	return db
}

// Schema makes a schema in the server.
func (p *Server) Schema() *pgx.ConnConfig { return newSchema(p.T, p.dsn()) }

// PgBouncer starts a pooler that gives each transaction any of its connections,
// and returns how a database is reached through it.
func PgBouncer(t testing.TB, to *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()
	program, d := servers.Program(t, "pgbouncer", "pgbouncer"), servers.NewDaemon(t, "postgres")
	password := ""
	if to.Password != "" { // an empty one is a mistake in the settings
		password = " password='" + to.Password + "'"
	}
	settings := d.Dir + "/pgbouncer.ini"
	if err := os.WriteFile(settings, fmt.Appendf(nil, `
[databases]
pooled = host=%s port=%d dbname=%s user=%s%s connect_query='SET search_path TO %s'
[pgbouncer]
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
`, to.Host, to.Port, to.Database, to.User, password, to.RuntimeParams["search_path"], d.Dir), 0o644); err != nil {
		t.Fatal(err)
	}
	through := to.Copy()
	through.Host, through.Port, through.Database = d.Dir, 6432, "pooled"
	through.TLSConfig, through.Fallbacks = nil, nil
	delete(through.RuntimeParams, "search_path")
	d.Start(stdlib.OpenDB(*through), program, settings)
	return through
}
