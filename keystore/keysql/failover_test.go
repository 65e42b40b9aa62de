package keysql_test

import (
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

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// ownPostgres is a server of the test's own.
type ownPostgres struct {
	t    *testing.T
	dir  string // with its socket
	data string
}

// TestPromotedReplica: a replica that was promoted counts its changes from an
// earlier number than the primary had reached. A position of the primary is
// then unknown to it, however many transactions follow, so that caches forget
// all.
func TestPromotedReplica(t *testing.T) {
	if os.Getenv("SALLYPORT_POSTGRES") == "" {
		t.Skip("left out: keysql on a Postgres that fails over; with SALLYPORT_POSTGRES set it runs where Postgres is installed")
	}
	primary, replica := newPostgres(t), newPostgres(t)
	primary.run("initdb", "-D", primary.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	primary.start()
	db := primary.open()
	store := keysql.Postgres(db, keysql.Options{})
	migrate(t, store)
	k := inserted(t, store, "acme", 1)[0]
	replica.run("pg_basebackup", "-D", replica.data, "-R", "-c", "fast", "--no-sync", "-h", primary.dir, "-U", "postgres")
	spendTransactions(t, db, 50) // which the replica never gets
	position := present(t, store)
	db.Close()
	primary.run("pg_ctl", "stop", "-D", primary.data, "-m", "immediate")

	replica.start()
	replica.run("pg_ctl", "promote", "-w", "-t", "600", "-D", replica.data)
	db = replica.open()
	store = keysql.Postgres(db, keysql.Options{})
	k.RevokedAt = time.Now()
	update(t, store, k)
	spendTransactions(t, db, 200)
	if _, _, err := store.Changes(t.Context(), position); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of the primary on the promoted replica: got %v, want ErrNotFound", err)
	}
	since := present(t, store)
	spendTransactions(t, db, 10)
	if _, _, err := store.Changes(t.Context(), since); err != nil {
		t.Errorf("a position of its own: got %v", err)
	}
	// A crash may lose the last numbers too.
	replica.run("pg_ctl", "restart", "-w", "-t", "600", "-D", replica.data, "-m", "immediate", "-l", os.DevNull)
	db = replica.open()
	spendTransactions(t, db, 200)
	if _, _, err := keysql.Postgres(db, keysql.Options{}).Changes(t.Context(), since); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("a position of before a crash: got %v, want ErrNotFound", err)
	}
}

func newPostgres(t *testing.T) *ownPostgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "keysql")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	chown(t, dir)
	return &ownPostgres{t, dir, filepath.Join(dir, "data")}
}

// spendTransactions makes the numbers of transactions grow.
func spendTransactions(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		if _, err := db.ExecContext(t.Context(), `SELECT pg_current_xact_id()`); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a program of Postgres, which refuses to be root.
func (p *ownPostgres) run(program string, args ...string) {
	p.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if path, err := exec.LookPath(program); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		p.t.Skip("left out: keysql on a Postgres that fails over; it needs " + program + ", which is in Debian's package postgresql")
	}
	slices.Sort(found)
	cmd := exec.CommandContext(p.t.Context(), found[len(found)-1], args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = asPostgres(p.t)
	if program == "pg_ctl" { // the server keeps its output open
		if err := cmd.Run(); err != nil {
			log, _ := os.ReadFile(p.data + ".log")
			p.t.Fatalf("%s: %v\n%s", program, err, log)
		}
	} else if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

func (p *ownPostgres) start() {
	p.t.Helper()
	p.run("pg_ctl", "start", "-w", "-t", "600", "-D", p.data, "-l", p.data+".log", "-o",
		"-k "+p.dir+" -c listen_addresses= -c fsync=off -c hot_standby=on")
	p.t.Cleanup(func() {
		stop := exec.Command("sh", "-c", "kill -QUIT $(head -1 "+p.data+"/postmaster.pid) 2>/dev/null")
		_ = stop.Run() // it may have ended
	})
}

func (p *ownPostgres) open() *sql.DB {
	p.t.Helper()
	db, err := sql.Open("pgx", "postgres://postgres@/postgres?sslmode=disable&host="+p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { db.Close() })
	return db
}

func asPostgres(t *testing.T) *syscall.SysProcAttr {
	if os.Getuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func chown(t *testing.T, dir string) {
	if attr := asPostgres(t); attr != nil {
		if err := os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
}
