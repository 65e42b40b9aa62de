package redistest

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/dbserver"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Server is a Redis of the test's own, on a socket of its own: nobody else can
// get that while the server is down. It keeps what it acknowledged when it is
// killed.
type Server struct {
	*dbserver.Server
	Addr string
	Port int // of StartTCP
	t    testing.TB
	args []string
}

// New returns a server that does not run yet.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	servers.Redis.Address(t) // so that it is left out with the others
	program := servers.Program(t, "redis-server", "redis-server")
	s := &Server{Server: dbserver.New(t, ""), t: t}
	s.Addr = filepath.Join(s.Dir, "socket")
	s.args = append([]string{program, "--port", "0", "--unixsocket", s.Addr, "--dir", s.Dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no"}, args...)
	return s
}

// StartTCP starts a server that other servers find, which cannot do with a
// socket. The bus of a cluster has the port 10,000 above. Another server may
// have taken either port.
func StartTCP(t testing.TB, args ...string) *Server {
	t.Helper()
	return startTCP(t, func(program []string) []string { return append(program, args...) })
}

// startTCP starts what arguments returns, given those of New.
func startTCP(t testing.TB, arguments func([]string) []string) *Server {
	t.Helper()
	for range 100 {
		s := New(t)
		s.Port = 12_000 + mathrand.IntN(10_000) // below those that connections get
		s.Addr = fmt.Sprintf("127.0.0.1:%d", s.Port)
		s.args = append(arguments(s.args), "--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1")
		if s.starts() {
			return s
		}
	}
	t.Fatal("found no free port")
	return nil
}

// Start starts a server on a socket.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	s.Start()
	return s
}

func (s *Server) Start() {
	s.t.Helper()
	if !s.starts() {
		s.t.Fatal("redis-server has ended")
	}
}

// starts reports whether the server answers; otherwise it has ended.
func (s *Server) starts() bool {
	s.t.Helper()
	s.Launch(s.args[0], s.args[1:]...)
	client := redis.NewClient(s.Options())
	defer client.Close()
	answers, process := false, fmt.Sprintf("process_id:%d\r\n", s.Process.Pid)
	Eventually(s.t, "the server answers or ends", func() bool {
		answers = s.Runs() && strings.Contains(client.Info(context.Background(), "server").Val(), process)
		return answers || !s.Runs()
	})
	return answers
}

// Hang stops the process, so that it takes requests in and answers none. It
// returns when the process has stopped.
func (s *Server) Hang() {
	s.Process.Signal(syscall.SIGSTOP)
	s.t.Cleanup(s.Resume)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("the server did not stop: status %v, %v", status, err)
	}
}

func (s *Server) Resume() {
	if s.Process != nil {
		s.Process.Signal(syscall.SIGCONT)
	}
}

// Fill leaves a server with less memory than it uses, and Empty with as much as
// it wants.
func (s *Server) Fill()  { s.Set("maxmemory", "1") }
func (s *Server) Empty() { s.Set("maxmemory", "0") }

func (s *Server) Set(parameter, value string) {
	s.t.Helper()
	if err := s.Client().ConfigSet(context.Background(), parameter, value).Err(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) Options() *redis.Options {
	return Unhurried(&redis.Options{Addr: s.Addr})
}

func (s *Server) Client() *redis.Client { return Connect(s.t, s.Options()) }

// Rights makes the user that the operator's guide names, and returns the
// options of its client.
func (s *Server) Rights(user string) *redis.Options {
	s.t.Helper()
	guide, err := os.ReadFile("../../.github/OPERATING.md")
	if err != nil {
		s.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(guide), "  ACL SETUSER "+user+" ")
	line, _, _ = strings.Cut(line, "\n")
	args := []any{"ACL", "SETUSER", user}
	for _, right := range strings.Fields(line) {
		args = append(args, right)
	}
	if err := s.Client().Do(s.t.Context(), args...).Err(); err != nil || len(args) < 6 {
		s.t.Fatalf("the guide's rights of %s are %q: %v", user, line, err)
	}
	o := s.Options()
	o.Username, o.Password = user, "PASSWORD"
	return o
}

// Refusals returns what the server has refused for want of a right, but for the
// names that clients give themselves, which they may not.
func (s *Server) Refusals() (refused []string) {
	s.t.Helper()
	entries, err := s.Client().ACLLog(s.t.Context(), 100).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client|") {
			refused = append(refused, e.Reason+" "+e.Object)
		}
	}
	return refused
}
