package ratelimitredis_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

const leftOut = "left out: ratelimitredis on Redis; SALLYPORT_REDIS=redis://127.0.0.1:6379/0 go test ./ratelimit/ratelimitredis/ runs it"

// options are those of the Redis server for the tests.
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
	return unhurried(o)
}

// unhurried gives a client more time than a slow machine needs.
func unhurried(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	return o
}

func connect(t testing.TB, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// ownPrefix returns a new prefix. Its keys are deleted after the test.
func ownPrefix(t testing.TB, client redis.UniversalClient) string {
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		for _, key := range keysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

// keysOf lists what a Store with the prefix has in Redis.
func keysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var keys []string
	all := client.Scan(context.Background(), 0, "{"+prefix+"*", 1000).Iterator()
	for all.Next(context.Background()) {
		keys = append(keys, all.Val())
	}
	if err := all.Err(); err != nil {
		t.Error(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys) // SCAN may return a key twice
}

// patient leaves Redis more time than a busy machine needs.
var patient = ratelimit.FailoverOptions{Budget: patience, Logger: slog.New(slog.DiscardHandler)}

// patientStore has its own prefix. The test fails if it decides without Redis.
func patientStore(t testing.TB, client redis.UniversalClient) *ratelimitredis.Store {
	return patientStoreAt(t, client, ownPrefix(t, client))
}

func patientStoreAt(t testing.TB, client redis.UniversalClient, prefix string) *ratelimitredis.Store {
	s := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	t.Cleanup(func() {
		if n := s.Fallbacks(); n > 0 {
			t.Errorf("%d decisions were made without Redis", n)
		}
	})
	return s
}

func policy(count int64, period time.Duration) *ratelimit.Policy {
	return &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: count, Period: period}}
}

func take(t testing.TB, s ratelimit.Store, charges ...ratelimit.Charge) ratelimit.Decision {
	t.Helper()
	d, err := s.Take(t.Context(), charges)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// server is a Redis server that a test starts, on a socket of its own: nobody
// else can get that while the server is down.
type server struct {
	t     testing.TB
	args  []string
	addr  string
	port  int // of startTCP
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// newServer returns a server that does not run yet.
func newServer(t testing.TB, args ...string) *server {
	t.Helper()
	if os.Getenv("SALLYPORT_REDIS") == "" {
		t.Skip(leftOut)
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("left out: ratelimitredis on a Redis that fails; with redis-server on the PATH the tests start one")
	}
	dir, err := os.MkdirTemp("", "redis") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{t: t, addr: filepath.Join(dir, "socket")}
	s.args = append([]string{program, "--port", "0", "--unixsocket", s.addr, "--dir", dir, "--save", ""}, args...)
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
	})
	return s
}

// startTCP starts a server that other servers find, which cannot do with a
// socket. The bus of a cluster has the port 10,000 above. Another server may
// have taken either port.
func startTCP(t testing.TB, args ...string) *server {
	t.Helper()
	return startProgram(t, func(program []string) []string { return append(program, args...) })
}

// startProgram starts what arguments returns, given those of newServer.
func startProgram(t testing.TB, arguments func([]string) []string) *server {
	t.Helper()
	for range 100 {
		s := newServer(t)
		s.port = 12_000 + mathrand.IntN(10_000) // below those that connections get
		s.addr = fmt.Sprintf("127.0.0.1:%d", s.port)
		s.args = append(arguments(s.args), "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1")
		if s.starts() {
			return s
		}
	}
	t.Fatal("found no free port")
	return nil
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := newServer(t, args...)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	if !s.starts() {
		s.t.Fatal("redis-server has ended")
	}
}

// starts reports whether the server answers; otherwise it has ended.
func (s *server) starts() bool {
	s.t.Helper()
	cmd, ended := exec.Command(s.args[0], s.args[1:]...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	client := redis.NewClient(s.options())
	defer client.Close()
	answers, process := false, fmt.Sprintf("process_id:%d\r\n", cmd.Process.Pid)
	eventually(s.t, "the server answers or ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			answers = strings.Contains(client.Info(context.Background(), "server").Val(), process)
			return answers
		}
	})
	return answers
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// hang stops the process, so that it accepts requests and answers none. It
// returns when the process has stopped.
func (s *server) hang() {
	s.cmd.Process.Signal(syscall.SIGSTOP)
	s.t.Cleanup(s.resume)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("the server did not stop: status %v, %v", status, err)
	}
}

func (s *server) resume() {
	if s.cmd != nil {
		s.cmd.Process.Signal(syscall.SIGCONT)
	}
}

func (s *server) options() *redis.Options {
	return unhurried(&redis.Options{Addr: s.addr})
}

func (s *server) client() *redis.Client { return connect(s.t, s.options()) }

// rights makes the user that the operator's guide names, and returns the
// options of its client.
func (s *server) rights(user string) *redis.Options {
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
	if err := s.client().Do(s.t.Context(), args...).Err(); err != nil || len(args) < 6 {
		s.t.Fatalf("the guide's rights of %s are %q: %v", user, line, err)
	}
	o := s.options()
	o.Username, o.Password = user, "PASSWORD"
	return o
}

// refusals returns what the server has refused for want of a right, but for the
// names that clients give themselves, which they may not.
func (s *server) refusals() (refused []string) {
	s.t.Helper()
	entries, err := s.client().ACLLog(s.t.Context(), 100).Result()
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

// scriptCalls returns how many scripts the server has run.
func scriptCalls(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(info) {
		for _, name := range []string{"cmdstat_eval:calls=", "cmdstat_evalsha:calls="} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				number, _, _ := strings.Cut(rest, ",")
				n, err := strconv.Atoi(number)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

// patience bounds what a test waits for. Only what hangs takes that long.
const patience = 5 * time.Minute

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	end := time.After(patience)
	for !holds() {
		select {
		case <-end:
			t.Fatalf("after %v it is not so that %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
