// Package redisnew tests the Redis stores with clients of a newer go-redis than
// the module requires, whose version is a floor for everybody who imports it.
package redisnew

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// patient leaves Redis more time than a busy machine needs.
var patient = ratelimit.FailoverOptions{Budget: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)}

// options are those of the Redis server for the tests.
func options(t testing.TB) *redis.Options {
	t.Helper()
	url := os.Getenv("SALLYPORT_REDIS")
	if url == "" {
		t.Skip("left out: a newer go-redis on Redis; SALLYPORT_REDIS=redis://127.0.0.1:6379/0 go test ./... in .redisnew runs it")
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
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
	return keys
}

// startServer starts a Redis server on a free port.
func startServer(t testing.TB, args ...string) (*redis.Options, *os.Process) {
	t.Helper()
	options(t)
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("left out: a Redis that hangs; with redis-server on the PATH the tests start one")
	}
	port := 0
	for port == 0 {
		// Below those that connections get.
		p := 12_000 + mathrand.IntN(10_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
			listener.Close()
			port = p
		}
	}
	cmd := exec.Command(program, append([]string{"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", ""}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	o := &redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", port)}
	client := redis.NewClient(o)
	defer client.Close()
	eventually(t, "the server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
	return o, cmd.Process
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
