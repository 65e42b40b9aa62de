package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/.ci/servers"
)

// patience bounds what a test waits for. Only what hangs takes that long.
const patience = 10 * time.Minute

// A server is a database server of the test's own, on a socket of its own.
type server struct {
	t    testing.TB
	Dir  string               // of its data and of its socket
	attr *syscall.SysProcAttr // as whom it runs; it refuses to be root

	process *os.Process
	ended   chan struct{} // closed when the process has ended
}

func newServer(t testing.TB, as string) server {
	t.Helper()
	dir, err := os.MkdirTemp("", "sql") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := server{t: t, Dir: dir, attr: &syscall.SysProcAttr{}}
	if os.Getuid() == 0 {
		owner, err := user.Lookup(as)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		s.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr, cmd.Dir = s.attr, s.Dir
	return cmd
}

// run runs a program to its end.
func (s *server) run(program string, args ...string) {
	s.t.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// start starts the server and waits until it serves. After a kill a server does
// not start while sessions of the last one live.
func (s *server) start(db *sql.DB, program string, args ...string) {
	s.t.Helper()
	defer db.Close()
	deadline := time.Now().Add(patience)
	for err := errors.New("not started"); err != nil; err = db.PingContext(context.Background()) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not start: %v", program, err)
		}
		if !s.runs() {
			cmd, ended := s.command(program, args...), make(chan struct{})
			if err := cmd.Start(); err != nil {
				s.t.Fatal(err)
			}
			go func() {
				cmd.Wait()
				close(ended)
			}()
			s.process, s.ended = cmd.Process, ended
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (s *server) runs() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.process != nil
	}
}

// Kill ends the server without a word. Sessions of a Postgres notice by
// themselves.
func (s *server) Kill() {
	if s.process != nil {
		s.process.Kill()
		<-s.ended
		s.process = nil
	}
}

// OwnPostgres is a Postgres that a test may kill.
type OwnPostgres struct{ server }

// NewPostgres returns a server without data.
func NewPostgres(t testing.TB) *OwnPostgres {
	t.Helper()
	servers.Postgres.Address(t) // so that it is left out with the others
	p := &OwnPostgres{newServer(t, "postgres")}
	t.Cleanup(p.Kill)
	return p
}

// Run runs a program of Postgres to its end.
func (p *OwnPostgres) Run(program string, args ...string) {
	p.t.Helper()
	p.run(p.program(program), args...)
}

// program is where a program of Postgres lies.
func (p *OwnPostgres) program(name string) string {
	p.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if found == nil {
		return servers.Program(p.t, name, "postgresql")
	}
	slices.Sort(found)
	return found[len(found)-1]
}

// Init makes the server's data.
func (p *OwnPostgres) Init() {
	p.t.Helper()
	p.Run("initdb", "-D", p.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
}

// Data is the directory of the server's data.
func (p *OwnPostgres) Data() string { return p.Dir + "/data" }

func (p *OwnPostgres) dsn() string {
	return "postgres://postgres@/postgres?sslmode=disable&host=" + p.Dir
}

// Start starts the server and waits until it serves.
func (p *OwnPostgres) Start() {
	p.t.Helper()
	p.start(p.open(), p.program("postgres"), "-D", p.Data(), "-k", p.Dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off")
}

// Open returns a pool that is closed after the test.
func (p *OwnPostgres) Open() *sql.DB {
	p.t.Helper()
	db := p.open()
	p.t.Cleanup(func() { db.Close() })
	return db
}

func (p *OwnPostgres) open() *sql.DB {
	db, err := sql.Open("pgx", p.dsn())
	if err != nil {
		p.t.Fatal(err)
	}
	return db
}

// Schema makes a schema in the server.
func (p *OwnPostgres) Schema() *pgx.ConnConfig { return newSchema(p.t, p.dsn()) }

// OwnMariaDB is a MariaDB that a test may kill.
type OwnMariaDB struct {
	server
	program string
}

// NewMariaDB returns a server that does not run yet.
func NewMariaDB(t testing.TB) *OwnMariaDB {
	t.Helper()
	servers.MariaDB.Address(t) // so that it is left out with the others
	install := servers.Program(t, "mariadb-install-db", "mariadb-server")
	m := &OwnMariaDB{newServer(t, "mysql"), servers.Program(t, "mariadbd", "mariadb-server")}
	t.Cleanup(m.Kill)
	m.run(install, "--no-defaults", "--datadir="+m.Dir+"/data", "--tmpdir="+m.Dir, "--skip-test-db")
	return m
}

func (m *OwnMariaDB) dsn() string { return "root@unix(" + m.Dir + "/socket)/mysql" }

// Start starts the server and waits until it serves.
func (m *OwnMariaDB) Start() {
	m.t.Helper()
	db, err := sql.Open("mysql", m.dsn())
	if err != nil {
		m.t.Fatal(err)
	}
	// A server that starts removes the temporary files of others.
	m.start(db, m.program, "--no-defaults", "--datadir="+m.Dir+"/data", "--tmpdir="+m.Dir, "--socket="+m.Dir+"/socket",
		"--pid-file="+m.Dir+"/pid", "--skip-networking", "--skip-grant-tables",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=16M")
}

// Database makes a database in the server.
func (m *OwnMariaDB) Database() *mysql.Config { return newDatabase(m.t, m.dsn()) }
