package idemredis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

const leftOut = "left out: idemredis on Redis; SALLYPORT_REDIS=redis://127.0.0.1:6379/0 go test ./idem/idemredis/ runs it"

// options are those of the Redis that the tests may use.
func options(t testing.TB) *redis.Options {
	t.Helper()
	url := os.Getenv("SALLYPORT_REDIS")
	if url == "" {
		t.Skip(leftOut)
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// ownPrefix is that of keys which nobody else has, and which go with the test.
func ownPrefix(t testing.TB, client redis.UniversalClient) string {
	prefix := "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		for _, key := range keysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

func keysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var keys []string
	all := client.Scan(context.Background(), 0, prefix+"*", 1000).Iterator()
	for all.Next(context.Background()) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		t.Error(err)
	}
	return keys
}

func ownStore(t testing.TB, client redis.UniversalClient) *idemredis.Store {
	return idemredis.New(client, idemredis.Options{Prefix: ownPrefix(t, client)})
}

// newToken returns a token that no other claim has.
func newToken() (t idem.ClaimToken) {
	rand.Read(t[:])
	return t
}

// aClaim is a claim that does not lapse while a test runs.
func aClaim(key string) idem.Claim {
	return idem.Claim{
		Key: idem.NewKey("org_1", key), Token: newToken(), Fingerprint: idem.Fingerprint{1},
		Lease: time.Minute, Retention: time.Hour,
	}
}

// again is c by another token.
func again(c idem.Claim) idem.Claim {
	c.Token = newToken()
	return c
}

func mustBegin(t testing.TB, s idem.Store, c idem.Claim, want idem.State) idem.Record {
	t.Helper()
	r, err := s.Begin(t.Context(), c)
	if err != nil || r.State != want {
		t.Fatalf("Begin: got %v, %v, want %v", r.State, err, want)
	}
	return r
}

func finished(payload string) idem.Settlement {
	return idem.Settlement{Outcome: idem.Finished, Payload: []byte(payload), Retention: time.Hour}
}

// server is a Redis of the test's own, on a port of its own. It keeps what it
// acknowledged over kill -9.
type server struct {
	t    testing.TB
	args []string
	port int
	cmd  *exec.Cmd
}

// newServer returns a server that does not run yet.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	if os.Getenv("SALLYPORT_REDIS") == "" {
		t.Skip(leftOut)
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("left out: idemredis on a Redis that fails; with redis-server on the PATH the tests start one")
	}
	s := &server{t: t, port: freePort(t)}
	s.args = append([]string{program, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "yes", "--appendfsync", "always"}, args...)
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
	})
	return s
}

// freePort is none that a connection could get while the server is down, and
// neither is the one 10,000 above it, which a cluster uses as well.
func freePort(t testing.TB) int {
	for range 100 {
		port := 12_000 + mathrand.IntN(10_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("found no free port")
	return 0
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewClient(s.options())
	defer client.Close()
	eventually(s.t, "the server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
}

// kill is kill -9.
func (s *server) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	s.cmd = nil
}

// hang stops the process, so that it takes requests in and answers none.
func (s *server) hang() {
	s.cmd.Process.Signal(syscall.SIGSTOP)
	s.t.Cleanup(s.resume)
}

func (s *server) resume() {
	if s.cmd != nil {
		s.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// fill leaves a server with less memory than it uses, and empty with as much as
// it wants.
func (s *server) fill()  { s.set("maxmemory", "1") }
func (s *server) empty() { s.set("maxmemory", "0") }

func (s *server) set(parameter, value string) {
	s.t.Helper()
	client := redis.NewClient(s.options())
	defer client.Close()
	if err := client.ConfigSet(context.Background(), parameter, value).Err(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) options() *redis.Options {
	return &redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", s.port)}
}

func (s *server) client() *redis.Client { return connect(s.t, s.options()) }

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-end:
			t.Fatalf("after two minutes it is not so that %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
