// Package redistest has what the tests of the Redis stores share: clients, and
// servers that a test kills, hangs and cuts off.
package redistest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// Options are those of the Redis that the tests may use.
func Options(t testing.TB) *redis.Options {
	t.Helper()
	o, err := redis.ParseURL(servers.Redis.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	return Unhurried(o)
}

// Unhurried gives a client more time than a slow machine needs.
func Unhurried(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = Patience, Patience, Patience, Patience
	return o
}

// Connect returns a client that is closed after the test.
func Connect(t testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// OwnPrefix is that of keys which nobody else has, and which go with the test.
func OwnPrefix(t testing.TB, client redis.UniversalClient) string {
	prefix := "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		for _, key := range KeysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

// KeysOf lists what a Store with the prefix has in Redis.
func KeysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var keys []string
	all := client.Scan(context.Background(), 0, "*"+prefix+"*", 1000).Iterator()
	for all.Next(context.Background()) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		t.Error(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys) // SCAN may return a key twice
}

// Patience bounds what a test waits for. Only what hangs takes that long.
const Patience = 5 * time.Minute

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !holds(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v it is not so that %s", Patience, what)
		}
	}
}

// Server is a Redis of the test's own, on a socket of its own: nobody else can
// get that while the server is down. It keeps what it acknowledged when it is
// killed.
type Server struct {
	*servers.Daemon
	Addr string
	Port int      // of StartTCP
	args []string // of redis-server; a file of settings is the first
}

// New returns a server that does not run yet.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	servers.Redis.Address(t) // so that it is left out with the others
	s := &Server{Daemon: servers.NewDaemon(t, "")}
	s.Addr = s.Dir + "/socket"
	s.args = append(slices.Clone(args), "--port", "0", "--unixsocket", s.Addr, "--dir", s.Dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no")
	return s
}

// StartTCP starts a server that other servers find, which cannot do with a
// socket. The bus of a cluster has the port 10,000 above. Another server may
// have taken either port.
func StartTCP(t testing.TB, args ...string) *Server {
	t.Helper()
	for range 100 {
		s := New(t, args...)
		s.Port = 12_000 + mathrand.IntN(10_000) // below those that connections get
		s.Addr = fmt.Sprintf("127.0.0.1:%d", s.Port)
		s.args = append(s.args, "--port", fmt.Sprint(s.Port), "--bind", "127.0.0.1")
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
	s.T.Helper()
	if !s.starts() {
		s.T.Fatal("redis-server has ended")
	}
}

// starts reports whether the server answers; otherwise it has ended.
func (s *Server) starts() bool {
	s.T.Helper()
	s.Launch(servers.Program(s.T, "redis-server", "redis-server"), s.args...)
	client := redis.NewClient(s.Options())
	defer client.Close()
	answers, process := false, fmt.Sprintf("process_id:%d\r\n", s.Process.Pid)
	Eventually(s.T, "the server answers or ends", func() bool {
		answers = s.Runs() && strings.Contains(client.Info(context.Background(), "server").Val(), process)
		return answers || !s.Runs()
	})
	return answers
}

// Hang stops the process, so that it takes requests in and answers none. It
// returns when the process has stopped.
func (s *Server) Hang() {
	s.Process.Signal(syscall.SIGSTOP)
	s.T.Cleanup(s.Resume)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.T.Fatalf("the server did not stop: status %v, %v", status, err)
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
	s.T.Helper()
	if err := s.Client().ConfigSet(context.Background(), parameter, value).Err(); err != nil {
		s.T.Fatal(err)
	}
}

func (s *Server) Options() *redis.Options {
	return Unhurried(&redis.Options{Addr: s.Addr})
}

func (s *Server) Client() *redis.Client { return Connect(s.T, s.Options()) }

// Rights makes the user that the operator's guide names, and returns the
// options of its client.
func (s *Server) Rights(user string) *redis.Options {
	s.T.Helper()
	guide, err := os.ReadFile("../../.github/OPERATING.md")
	if err != nil {
		s.T.Fatal(err)
	}
	_, line, _ := strings.Cut(string(guide), "  ACL SETUSER "+user+" ")
	line, _, _ = strings.Cut(line, "\n")
	args := []any{"ACL", "SETUSER", user}
	for _, right := range strings.Fields(line) {
		args = append(args, right)
	}
	if err := s.Client().Do(s.T.Context(), args...).Err(); err != nil || len(args) < 6 {
		s.T.Fatalf("the guide's rights of %s are %q: %v", user, line, err)
	}
	o := s.Options()
	o.Username, o.Password = user, "PASSWORD"
	return o
}

// Refusals returns what the server has refused for want of a right, but for the
// names that clients give themselves, which they may not.
func (s *Server) Refusals() (refused []string) {
	s.T.Helper()
	entries, err := s.Client().ACLLog(s.T.Context(), 100).Result()
	if err != nil {
		s.T.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client|") {
			refused = append(refused, e.Reason+" "+e.Object)
		}
	}
	return refused
}
