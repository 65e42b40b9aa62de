// Package dbserver starts the servers that a test has for itself.
package dbserver

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// patience bounds what a test waits for. Only what hangs takes that long.
const patience = 10 * time.Minute

// A Server is one of the test's own, on a socket of its own.
type Server struct {
	t    testing.TB
	Dir  string               // of its data and of its socket
	attr *syscall.SysProcAttr // as whom it runs

	Process *os.Process   // nil after Kill
	ended   chan struct{} // closed when the process has ended
}

// New returns a server that does not run yet, and that ends with the test. When
// the test runs as root, the server runs as another user, if it refuses to be
// root; "" if it does not.
func New(t testing.TB, as string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "server") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{t: t, Dir: dir, attr: &syscall.SysProcAttr{}}
	t.Cleanup(s.Kill)
	if os.Getuid() == 0 && as != "" {
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

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr, cmd.Dir = s.attr, s.Dir
	return cmd
}

// Run runs a program to its end, as the server's user.
func (s *Server) Run(program string, args ...string) {
	s.t.Helper()
	if out, err := s.command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", program, err, out)
	}
}

// Start starts the server and waits until db, which it closes, reaches it. After a kill a server does
// not start while sessions of the last one live.
func (s *Server) Start(db *sql.DB, program string, args ...string) {
	s.t.Helper()
	defer db.Close()
	deadline := time.Now().Add(patience)
	for err := errors.New("not started"); err != nil; err = db.PingContext(context.Background()) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not start: %v", program, err)
		}
		if !s.Runs() {
			s.Launch(program, args...)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Launch starts the server.
func (s *Server) Launch(program string, args ...string) {
	s.t.Helper()
	cmd, ended := s.command(program, args...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(ended)
	}()
	s.Process, s.ended = cmd.Process, ended
}

// Runs reports whether the server was launched and has not ended.
func (s *Server) Runs() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.Process != nil
	}
}

// Kill ends the server without a word. Sessions of a Postgres notice by
// themselves.
func (s *Server) Kill() {
	if s.Process != nil {
		s.Process.Kill()
		<-s.ended
		s.Process = nil
	}
}

// Execute runs a statement that must not fail, also when the test is over.
func Execute(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
