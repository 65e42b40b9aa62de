package servers

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// patience bounds what a test waits for. Only what hangs takes that long.
const patience = 10 * time.Minute

// A Daemon is a server of the test's own, on a socket of its own.
type Daemon struct {
	T       testing.TB
	Dir     string        // of its data and of its socket
	Process *os.Process   // nil after Kill
	ended   chan struct{} // closed when the process has ended
	as      []string      // what makes a program run as another user
}

// NewDaemon returns a server that does not run yet, and that ends with the test.
// When the test runs as root, the server runs as another user, if it refuses to
// be root; "" if it does not.
func NewDaemon(t testing.TB, as string) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "server") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &Daemon{T: t, Dir: dir}
	t.Cleanup(d.Kill)
	if os.Getuid() == 0 && as != "" {
		d.Run("chown", as, dir)
		d.as = []string{"setpriv", "--reuid=" + as, "--regid=" + as, "--clear-groups"}
	}
	return d
}

func (d *Daemon) command(program string, args ...string) *exec.Cmd {
	all := append(slices.Concat(d.as, []string{program}), args...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Dir = d.Dir
	return cmd
}

// Run runs a program to its end, as the server's user.
func (d *Daemon) Run(program string, args ...string) {
	d.T.Helper()
	if out, err := d.command(program, args...).CombinedOutput(); err != nil {
		d.T.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// Start starts the server and waits until db, which it closes, reaches it. After a
// kill a server does not start while sessions of the last one live.
func (d *Daemon) Start(db *sql.DB, program string, args ...string) {
	d.T.Helper()
	defer db.Close()
	deadline := time.Now().Add(patience)
	for err := errors.New("not started"); err != nil; err = db.PingContext(context.Background()) {
		if time.Now().After(deadline) {
			d.T.Fatalf("%s does not start: %v", program, err)
		}
		if !d.Runs() {
			d.Launch(program, args...)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Launch starts the server.
func (d *Daemon) Launch(program string, args ...string) {
	d.T.Helper()
	cmd, ended := d.command(program, args...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		d.T.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(ended)
	}()
	d.Process, d.ended = cmd.Process, ended
}

// Runs reports whether the server was launched and has not ended.
func (d *Daemon) Runs() bool {
	select {
	case <-d.ended:
		return false
	default:
		return d.Process != nil
	}
}

// Kill ends the server without a word. Sessions of a Postgres notice by
// themselves.
func (d *Daemon) Kill() {
	if d.Process != nil {
		d.Process.Kill()
		<-d.ended
		d.Process = nil
	}
}

// Execute runs a statement that must not fail, also when the test is over.
func Execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
