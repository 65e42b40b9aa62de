package idemsql_test

import (
	"context"
	"errors"
	"net"
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

	"github.com/sallyport-go/sallyport/middleware"
)

// ownPostgres is a Postgres that a test may kill.
type ownPostgres struct {
	t        *testing.T
	programs string
	dir      string
	port     int
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
	dir, err := os.MkdirTemp("", "idemsql")
	if err != nil {
		t.Fatal(err)
	}
	p := &ownPostgres{t: t, programs: filepath.Dir(found[len(found)-1]), dir: dir, attr: &syscall.SysProcAttr{}}
	t.Cleanup(func() {
		p.kill()
		os.RemoveAll(dir)
	})
	if os.Getuid() == 0 {
		owner, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		p.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.command("initdb", "-D", p.dir+"/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	return p
}

func (p *ownPostgres) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.programs, program), args...)
	cmd.SysProcAttr = p.attr
	cmd.Dir = p.dir
	return cmd
}

func (p *ownPostgres) dsn() string {
	return "postgres://postgres@127.0.0.1:" + strconv.Itoa(p.port) + "/postgres?sslmode=disable"
}

// start starts the server and waits until it serves. After a kill it does not start while sessions of the last one live.
func (p *ownPostgres) start() {
	p.t.Helper()
	conf, err := pgx.ParseConfig(p.dsn())
	if err != nil {
		p.t.Fatal(err)
	}
	db := stdlib.OpenDB(*conf)
	defer db.Close()
	deadline := time.Now().Add(time.Minute)
	for err = errors.New("not started"); err != nil; err = db.PingContext(context.Background()) {
		if time.Now().After(deadline) {
			p.t.Fatalf("Postgres does not start: %v", err)
		}
		if p.cmd == nil || syscall.Kill(p.cmd.Process.Pid, 0) != nil {
			p.cmd = p.command("postgres", "-D", p.dir+"/data", "-p", strconv.Itoa(p.port), "-k", p.dir,
				"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "logging_collector=off")
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

// Postgres is killed and comes back: no request takes longer than the timeouts allow, nothing is done twice, and service goes
// on by itself.
func TestPostgresKilled(t *testing.T) {
	const (
		timeout = 500 * time.Millisecond // of each call of the store
		wait    = time.Second            // for another that has the key
		handler = time.Second
		slack   = 2 * time.Second // of a busy machine
	)
	postgres := newPostgres(t)
	postgres.start()
	for _, mode := range []string{"joined", "leased"} {
		t.Run(mode, func(t *testing.T) {
			d := newSchema(t, postgres.dsn()).migrated(t)
			o := middleware.IdempotencyOptions{Join: mode == "joined", StoreTimeout: timeout, Wait: wait, Timeout: handler, Lease: crashLease}
			h := create
			if mode == "leased" {
				h = createLeased
			}
			var servers [2]*server
			for i := range servers {
				servers[i] = newServer(t, d, o, h)
			}
			var n atomic.Int64
			clients := startCrowd(t, 8, timeout+wait+handler+timeout+slack, func(key string) (answer, error) {
				return servers[n.Add(1)%2].post(key, key), nil
			})
			for range max(*kills/5, 1) {
				<-time.After(300 * time.Millisecond)
				postgres.kill()
				postgres.start()
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
