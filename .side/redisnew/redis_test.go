// Package redisnew tests the Redis stores with clients of a newer go-redis than
// the module requires, whose version is a floor for everybody who imports it.
package redisnew

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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// patient leaves Redis more time than a busy machine needs.
var patient = ratelimit.FailoverOptions{Budget: patience, Logger: slog.New(slog.DiscardHandler)}

// options are those of the Redis server for the tests.
func options(t testing.TB) *redis.Options {
	t.Helper()
	url := os.Getenv("SALLYPORT_REDIS")
	if url == "" {
		t.Skip("left out: a newer go-redis on Redis; SALLYPORT_REDIS=redis://127.0.0.1:6379/0 go test ./redisnew in .side runs it")
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

// connect returns a client and the one that sends its commands in pipelines.
func connect(t testing.TB, o *redis.Options) (*redis.Client, *redis.AutoPipeliner) {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	auto, err := client.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	return client, auto
}

// ownPrefix returns a new prefix. Its keys are deleted after the test.
func ownPrefix(t testing.TB, client *redis.Client) string {
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		for _, key := range keysOf(t, client, prefix) {
			client.Del(context.Background(), key)
		}
	})
	return prefix
}

func keysOf(t testing.TB, client *redis.Client, prefix string) []string {
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

// startServer starts a Redis server on a socket of its own.
func startServer(t testing.TB) (*redis.Options, *os.Process) {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	process := starts(t, socket, "--port", "0", "--unixsocket", socket, "--dir", dir)
	if process == nil {
		t.Fatal("redis-server has ended")
	}
	return unhurried(&redis.Options{Addr: socket}), process
}

// startNode starts a server of a cluster, which cannot do with a socket. Its
// bus has the port 10,000 above. Another server may have taken either port.
func startNode(t testing.TB) *redis.Options {
	t.Helper()
	for range 100 {
		port := 12_000 + mathrand.IntN(10_000) // below those that connections get
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if starts(t, addr, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", t.TempDir(),
			"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no") != nil {
			return unhurried(&redis.Options{Addr: addr})
		}
	}
	t.Fatal("found no free port")
	return nil
}

// starts starts a server and returns its process when it answers at addr, or
// nil when it has ended.
func starts(t testing.TB, addr string, args ...string) *os.Process {
	t.Helper()
	options(t)
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("left out: a Redis that hangs; with redis-server on the PATH the tests start one")
	}
	cmd, ended := exec.Command(program, append(args, "--save", "")...), make(chan struct{})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	client := redis.NewClient(unhurried(&redis.Options{Addr: addr}))
	defer client.Close()
	answers, id := false, fmt.Sprintf("process_id:%d\r\n", cmd.Process.Pid)
	eventually(t, "the server answers or ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			answers = strings.Contains(client.Info(context.Background(), "server").Val(), id)
			return answers
		}
	})
	if !answers {
		return nil
	}
	return cmd.Process
}

// hang stops a server, so that it accepts requests and answers none.
func hang(t *testing.T, p *os.Process) {
	p.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { p.Signal(syscall.SIGCONT) })
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the server did not stop: status %v, %v", status, err)
	}
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
