package pgtest

import (
	"database/sql"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/testlib/dbserver"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Server is a Postgres that a test may kill.
type Server struct {
	*dbserver.Server
	t testing.TB
}

// NewServer returns a server without data. Postgres serves no user without a name.
func NewServer(t testing.TB) *Server {
	t.Helper()
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skipf("left out: it needs a line for this user in /etc/passwd; %v", err)
	}
	servers.Postgres.Address(t) // so that it is left out with the others
	return &Server{dbserver.New(t, "postgres"), t}
}

// Run runs a program of Postgres to its end.
func (p *Server) Run(program string, args ...string) {
	p.t.Helper()
	p.Server.Run(p.program(program), args...)
}

// program is where a program of Postgres lies.
func (p *Server) program(name string) string {
	p.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if found == nil {
		return servers.Program(p.t, name, "postgresql")
	}
	slices.Sort(found)
	return found[len(found)-1]
}

// Data is the directory of the server's data.
func (p *Server) Data() string { return p.Dir + "/data" }

func (p *Server) dsn() string {
	return "postgres://postgres@/postgres?sslmode=disable&host=" + p.Dir
}

// Start starts the server, which makes its data unless it has some, and waits until it serves.
func (p *Server) Start() {
	p.t.Helper()
	if _, err := os.Stat(p.Data()); err != nil {
		p.Run("initdb", "-D", p.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	}
	p.Server.Start(p.open(), p.program("postgres"), "-D", p.Data(), "-k", p.Dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off")
}

// Open returns a pool that is closed after the test.
func (p *Server) Open() *sql.DB {
	p.t.Helper()
	db := p.open()
	p.t.Cleanup(func() { db.Close() })
	return db
}

func (p *Server) open() *sql.DB {
	db, err := sql.Open("pgx", p.dsn())
	if err != nil {
		p.t.Fatal(err)
	}
	return db
}

// Schema makes a schema in the server.
func (p *Server) Schema() *pgx.ConnConfig { return newSchema(p.t, p.dsn()) }
