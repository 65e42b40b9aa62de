package idemredis_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
)

// startReplica starts a server that follows another one.
func startReplica(t testing.TB, primary *server) *server {
	t.Helper()
	primary.set("repl-diskless-sync-delay", "0")
	replica := startTCP(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.port))
	replicates(t, primary, replica)
	return replica
}

// replicates waits until the replica has all that the primary has done.
func replicates(t testing.TB, primary, replica *server) {
	t.Helper()
	of, at := primary.client(), replica.client()
	eventually(t, "the replica has everything", func() bool {
		done := field(t, of, "master_repl_offset")
		return field(t, at, "master_link_status") == "up" && field(t, at, "slave_repl_offset") == done
	})
}

// field is what a server says of its replication.
func field(t testing.TB, c *redis.Client, name string) string {
	t.Helper()
	info, err := c.Info(t.Context(), "replication").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// promote makes a replica a primary of its own.
func (s *server) promote() {
	s.t.Helper()
	client := redis.NewClient(s.options())
	defer client.Close()
	if err := client.SlaveOf(context.Background(), "NO", "ONE").Err(); err != nil {
		s.t.Fatal(err)
	}
}

// follow makes a server a replica of another one.
func (s *server) follow(primary *server) {
	s.t.Helper()
	client := redis.NewClient(s.options())
	defer client.Close()
	if err := client.SlaveOf(context.Background(), "127.0.0.1", fmt.Sprint(primary.port)).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// address is one that a client is told anew when it connects.
type address struct{ atomic.Pointer[server] }

func (a *address) options() *redis.Options {
	return &redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, a.Load().options().Addr)
		},
	}
}

// failoverOptions leave Redis more time than a busy machine needs, because one
// that is dead refuses connections at once.
var failoverOptions = idem.Options{Timeout: time.Minute, Lease: 2 * time.Second, Wait: time.Second}

// A replica is promoted while the old primary still acknowledges writes, which
// are lost with it. What the replica has does not run again; the package
// comment says what becomes of the rest.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	old := startTCP(t)
	replica := startReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, connect(t, at.options()), failoverOptions, rows.create)
	// Of the process that asks after the failover nothing is in memory.
	elsewhere := mustStack(t, connect(t, at.options()), failoverOptions, rows.create)

	// Each handler makes the next request: all of them run while the replica is
	// promoted or the old primary dies.
	want := func(key string, status int) {
		t.Helper()
		if w := ask(t, key, func() *httptest.ResponseRecorder { return s.post(key) }); w.Code != status {
			t.Errorf("%s: got %d, want %d\n%s", key, w.Code, status, w.Body)
		}
	}
	rows.after["claim kept"] = func() {
		want("answer lost", 201)
		want("all lost", 201)
		want("claim lost", 409)
	}
	rows.after["answer lost"] = func() {
		replicates(t, old, replica)
		replica.promote()
	}
	rows.after["claim lost"] = func() {
		old.kill()
		want("without a primary", 503)
		at.Store(replica)
	}
	want("kept", 201)
	want("claim kept", 201)
	clear(rows.after)
	rows.mustBeOneEach(t, "kept", "claim kept", "answer lost", "all lost", "claim lost")

	for _, key := range []string{"kept", "claim kept", "without a primary", "later"} {
		succeeds(t, key, func() *httptest.ResponseRecorder { return elsewhere.post(key) })
	}
	rows.mustBeOneEach(t, "kept", "claim kept", "without a primary", "later")
	eventually(t, "the outcome of the create whose answer was lost is unknown", func() bool {
		w := elsewhere.post("answer lost")
		return w.Code == 409 && strings.Contains(w.Body.String(), "idempotency_outcome_unknown")
	})
	rows.mustBeOneEach(t, "answer lost")
	for _, key := range []string{"all lost", "claim lost"} {
		succeeds(t, key, func() *httptest.ResponseRecorder { return elsewhere.post(key) })
		if n := rows.of[key]; n != 2 {
			t.Errorf("%s: %d rows, want 2, as the package comment says", key, n)
		}
	}
}

// With min-replicas-to-write a primary that lost its replica acknowledges
// nothing, so that nothing is lost with it.
func TestPrimaryWithoutItsReplica(t *testing.T) {
	t.Parallel()
	old := startTCP(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
	replica := startReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, connect(t, at.options()), failoverOptions, rows.create)
	elsewhere := mustStack(t, connect(t, at.options()), failoverOptions, rows.create)

	succeeds(t, "kept", func() *httptest.ResponseRecorder { return s.post("kept") })
	rows.after["during"] = func() {
		replicates(t, old, replica)
		replica.promote()
		eventually(t, "the primary knows that its replica has gone", func() bool { return field(t, old.client(), "connected_slaves") == "0" })
	}
	if w := s.post("during"); w.Code != 201 {
		t.Fatalf("during: got %d, want 201\n%s", w.Code, w.Body)
	}
	delete(rows.after, "during")
	if w := ask(t, "a create without a replica", func() *httptest.ResponseRecorder { return s.post("refused") }); w.Code != 503 {
		t.Errorf("a create without a replica: got %d, want 503\n%s", w.Code, w.Body)
	}
	old.kill()
	at.Store(replica)
	bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.runner.WaitSettled(bounded); err != nil {
		t.Fatalf("what waited to be saved: %v", err)
	}
	keys := []string{"kept", "during", "refused", "later"}
	for _, key := range keys {
		succeeds(t, key, func() *httptest.ResponseRecorder { return elsewhere.post(key) })
	}
	rows.mustBeOneEach(t, keys...)
}

// A primary that becomes a replica refuses writes. The client then connects to
// the new one, and nothing runs twice.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	old := startTCP(t)
	replica := startReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, connect(t, at.options()), failoverOptions, rows.create)
	succeeds(t, "kept", func() *httptest.ResponseRecorder { return s.post("kept") })
	rows.after["during"] = func() {
		replicates(t, old, replica)
		replica.promote()
		old.follow(replica)
		at.Store(replica)
	}
	if w := s.post("during"); w.Code != 201 {
		t.Fatalf("during: got %d, want 201\n%s", w.Code, w.Body)
	}
	delete(rows.after, "during")
	keys := []string{"kept", "during", "later"}
	for _, key := range keys {
		for _, process := range []*stack{s, mustStack(t, connect(t, at.options()), failoverOptions, rows.create)} {
			succeeds(t, key, func() *httptest.ResponseRecorder { return process.post(key) })
		}
	}
	rows.mustBeOneEach(t, keys...)
}

// startSentinel starts a Sentinel that watches the primary, and returns its
// address.
func startSentinel(t *testing.T, primary *server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor creates 127.0.0.1 %d 1\nsentinel down-after-milliseconds creates 3000\nsentinel failover-timeout creates 5000\n", primary.port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startProgram(t, func(program []string) []string { return []string{program[0], file, "--sentinel"} })
	sentinel := redis.NewSentinelClient(s.options())
	t.Cleanup(func() { sentinel.Close() })
	eventually(t, "the Sentinel knows the replica", func() bool {
		replicas, err := sentinel.Replicas(t.Context(), "creates").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok"
	})
	return s.options().Addr
}

// A primary dies, and a Sentinel promotes its replica, while requests go on.
func TestSentinel(t *testing.T) {
	t.Parallel()
	old := startTCP(t)
	replica := startReplica(t, old)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "creates", SentinelAddrs: []string{startSentinel(t, old)}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	rows := newRows()
	s := mustStack(t, client, failoverOptions, rows.create)
	var before []string
	for i := range 10 {
		key := fmt.Sprint("before-", i)
		before = append(before, key)
		succeeds(t, key, func() *httptest.ResponseRecorder { return s.post(key) })
	}
	replicates(t, old, replica)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					key := fmt.Sprintf("meanwhile-%d-%d", worker, n)
					ask(t, key, func() *httptest.ResponseRecorder { return s.post(key) })
				}
			}
		})
	}
	old.kill()
	eventually(t, "the replica is promoted", func() bool { return field(t, replica.client(), "role") == "master" })
	succeeds(t, "after", func() *httptest.ResponseRecorder { return s.post("after") })
	close(stop)
	wg.Wait()
	bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.runner.WaitSettled(bounded); err != nil {
		t.Fatalf("what waited to be saved: %v", err)
	}
	elsewhere := mustStack(t, replica.client(), failoverOptions, rows.create)
	keys := append(before, "after", "later")
	for _, key := range keys {
		succeeds(t, key, func() *httptest.ResponseRecorder { return elsewhere.post(key) })
	}
	// Each request was made once, so none may have run twice, whatever was
	// lost.
	rows.mustBeOneEach(t, keys...)
}
