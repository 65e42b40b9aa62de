package idemsql_test

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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sallyport-go/sallyport/idem"
)

// ownPostgres is a Postgres that a test may kill.
type ownPostgres struct {
	t        *testing.T
	programs string
	dir      string               // of its data and of its socket
	attr     *syscall.SysProcAttr // as whom it runs; it refuses to be root
	cmd      *exec.Cmd
}

func newPostgres(t *testing.T) *ownPostgres {
	t.Helper()
	if os.Getenv("SALLYPORT_POSTGRES") == "" {
		t.Skip("left out: idemsql on a Postgres that is killed; with SALLYPORT_POSTGRES set it runs where Postgres is installed")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		t.Skip("left out: idemsql on a Postgres that is killed; it needs initdb, which is in Debian's package postgresql")
	}
	slices.Sort(found)
	p := &ownPostgres{t: t, programs: filepath.Dir(found[len(found)-1])}
	p.dir, p.attr = ownDirectory(t, "postgres")
	t.Cleanup(p.kill)
	if out, err := p.command("initdb", "-D", p.dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	return p
}

func (p *ownPostgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.SysProcAttr = p.attr
	cmd.Dir = p.dir
	return cmd
}

func (p *ownPostgres) database() database { return newSchema(p.t, p.dsn()).migrated(p.t) }

func (p *ownPostgres) dsn() string {
	return "postgres://postgres@/postgres?sslmode=disable&host=" + p.dir
}

// start starts the server and waits until it serves. After a kill it does not
// start while sessions of the last one live.
func (p *ownPostgres) start() {
	p.t.Helper()
	conf, err := pgx.ParseConfig(p.dsn())
	if err != nil {
		p.t.Fatal(err)
	}
	db := stdlib.OpenDB(*conf)
	defer db.Close()
	deadline := time.Now().Add(patience)
	for err = errors.New("not started"); err != nil; err = db.PingContext(context.Background()) {
		if time.Now().After(deadline) {
			p.t.Fatalf("Postgres does not start: %v", err)
		}
		if p.cmd == nil || syscall.Kill(p.cmd.Process.Pid, 0) != nil {
			p.cmd = p.command("postgres", "-D", p.dir+"/data", "-k", p.dir,
				"-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off")
			if err := p.cmd.Start(); err != nil {
				p.t.Fatal(err)
			}
			go p.cmd.Wait()
		}
		<-time.After(50 * time.Millisecond)
	}
}

// kill ends the server without a word; its sessions notice by themselves.
func (p *ownPostgres) kill() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd = nil
	}
}

// ownMariaDB is a MariaDB that a test may kill.
type ownMariaDB struct {
	t      *testing.T
	server string
	dir    string
	attr   *syscall.SysProcAttr
	cmd    *exec.Cmd
}

func newMariaDB(t *testing.T) *ownMariaDB {
	t.Helper()
	if os.Getenv("SALLYPORT_MARIADB") == "" {
		t.Skip("left out: idemsql on a MariaDB that is killed; with SALLYPORT_MARIADB set it runs where MariaDB is installed")
	}
	m := &ownMariaDB{t: t, attr: &syscall.SysProcAttr{}}
	install, err := exec.LookPath("mariadb-install-db")
	if err == nil {
		m.server, err = exec.LookPath("mariadbd")
	}
	if err != nil {
		t.Skip("left out: idemsql on a MariaDB that is killed; it needs mariadbd, which is in Debian's package mariadb-server")
	}
	m.dir, m.attr = ownDirectory(t, "mysql")
	t.Cleanup(m.kill)
	cmd := exec.Command(install, "--no-defaults", "--datadir="+m.dir+"/data", "--tmpdir="+m.dir, "--skip-test-db")
	cmd.SysProcAttr, cmd.Dir = m.attr, m.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	return m
}

func (m *ownMariaDB) database() database {
	return newDatabase(m.t, m.dsn()).migrated(m.t)
}

func (m *ownMariaDB) dsn() string {
	return "root@unix(" + m.dir + "/socket)/mysql"
}

func (m *ownMariaDB) start() {
	m.t.Helper()
	m.cmd = exec.Command(m.server, "--no-defaults", "--datadir="+m.dir+"/data", "--socket="+m.dir+"/socket", "--pid-file="+m.dir+"/pid",
		"--tmpdir="+m.dir, // a server that starts removes the temporary files of others
		"--skip-networking", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=16M")
	m.cmd.SysProcAttr, m.cmd.Dir = m.attr, m.dir
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	db, err := sql.Open("mysql", m.dsn())
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(patience); db.PingContext(context.Background()) != nil; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatal("MariaDB does not start")
		}
	}
	var tmpdir string
	if err := db.QueryRowContext(m.t.Context(), "SELECT @@tmpdir").Scan(&tmpdir); err != nil || tmpdir != m.dir {
		m.t.Fatalf("the folder for temporary files: got %q, %v, want %q", tmpdir, err, m.dir)
	}
}

func (m *ownMariaDB) kill() {
	if m.cmd != nil {
		m.cmd.Process.Kill()
		m.cmd.Wait()
		m.cmd = nil
	}
}

// ownDirectory makes a directory for the data of a server, which refuses to be
// root and then runs as user.
func ownDirectory(t *testing.T, as string) (dir string, attr *syscall.SysProcAttr) {
	t.Helper()
	dir, err := os.MkdirTemp("", "idemsql")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		owner, err := user.Lookup(as)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return dir, attr
}

func TestPostgresKilled(t *testing.T) { testServerKilled(t, newPostgres(t)) }
func TestMariaDBKilled(t *testing.T)  { testServerKilled(t, newMariaDB(t)) }

// A server is killed and comes back: no request hangs, nothing is done twice,
// and service goes on by itself.
func testServerKilled(t *testing.T, own interface {
	start()
	kill()
	database() database
}) {
	own.start()
	for _, mode := range []string{"joined", "leased"} {
		t.Run(mode, func(t *testing.T) {
			d := own.database()
			o := options{Options: idem.Options{Join: mode == "joined", Wait: time.Second, Timeout: 30 * time.Second, Lease: crashLease}}
			h := create
			if mode == "leased" {
				h = createLeased
			}
			var servers [2]*server
			for i := range servers {
				servers[i] = newServer(t, d, o, h)
			}
			var n atomic.Int64
			clients := startCrowd(t, 8, func(key string) (a answer, err error) {
				within(t, "a request", func() { a = servers[n.Add(1)%2].post(key, key) })
				return a, nil
			})
			for range max(*kills/5, 1) {
				<-time.After(300 * time.Millisecond)
				own.kill()
				own.start()
			}
			before := clients.next.Load()
			for clients.next.Load() < before+100 && !t.Failed() { // service resumes
				<-time.After(10 * time.Millisecond)
			}
			clients.leave()
			for _, s := range servers {
				if err := s.WaitSettled(t.Context()); err != nil {
					t.Error(err)
				}
			}
			created, unknown := clients.stop()
			t.Logf("%s: %d keys, %d of them with an unknown outcome", mode, created+unknown, unknown)
			db := d.open(t)
			mustCount(t, db, "SELECT count(*) - count(DISTINCT title) FROM tasks", 0)
			rows := count(t, db, "SELECT count(*) FROM tasks")
			if mode == "joined" && (unknown != 0 || rows != created) || rows < created || rows > created+unknown {
				t.Errorf("got %d rows for %d tasks created and %d unknown", rows, created, unknown)
			}
		})
	}
}
