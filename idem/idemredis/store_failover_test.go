package idemredis_test

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
)

// address is one that a client is told anew when it connects.
type address struct {
	atomic.Pointer[server]
}

func (a *address) options() *redis.Options {
	return &redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, a.Load().Options().Addr)
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
	old := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)
	// Of the process that asks after the failover nothing is in memory.
	elsewhere := mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)

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
		redistest.Replicates(t, old, replica)
		follow(t, replica, "NO", "ONE")
	}
	rows.after["claim lost"] = func() {
		old.Kill()
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
	redistest.Eventually(t, "the outcome of the create whose answer was lost is unknown", func() bool {
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
	old := redistest.StartTCP(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
	replica := redistest.StartReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)
	elsewhere := mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)

	succeeds(t, "kept", func() *httptest.ResponseRecorder { return s.post("kept") })
	rows.after["during"] = func() {
		redistest.Replicates(t, old, replica)
		follow(t, replica, "NO", "ONE")
		redistest.Eventually(t, "the primary knows that its replica has gone",
			func() bool { return old.Replication("connected_slaves") == "0" })
	}
	if w := s.post("during"); w.Code != 201 {
		t.Fatalf("during: got %d, want 201\n%s", w.Code, w.Body)
	}
	delete(rows.after, "during")
	refused := func() *httptest.ResponseRecorder { return s.post("refused") }
	if w := ask(t, "a create without a replica", refused); w.Code != 503 {
		t.Errorf("a create without a replica: got %d, want 503\n%s", w.Code, w.Body)
	}
	old.Kill()
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
	old := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, old)
	var at address
	at.Store(old)
	rows := newRows()
	s := mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)
	succeeds(t, "kept", func() *httptest.ResponseRecorder { return s.post("kept") })
	rows.after["during"] = func() {
		redistest.Replicates(t, old, replica)
		follow(t, replica, "NO", "ONE")
		follow(t, old, "127.0.0.1", fmt.Sprint(replica.Port))
		at.Store(replica)
	}
	if w := s.post("during"); w.Code != 201 {
		t.Fatalf("during: got %d, want 201\n%s", w.Code, w.Body)
	}
	delete(rows.after, "during")
	keys := []string{"kept", "during", "later"}
	for _, key := range keys {
		for _, process := range []*stack{s, mustStack(t, redistest.Connect(t, at.options()), failoverOptions, rows.create)} {
			succeeds(t, key, func() *httptest.ResponseRecorder { return process.post(key) })
		}
	}
	rows.mustBeOneEach(t, keys...)
}

// A primary dies, and a Sentinel promotes its replica, while requests go on.
func TestSentinel(t *testing.T) {
	t.Parallel()
	old := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, old)
	client := redis.NewFailoverClient(redistest.StartSentinel(t, old))
	t.Cleanup(func() { client.Close() })
	rows := newRows()
	s := mustStack(t, client, failoverOptions, rows.create)
	var before []string
	for i := range 10 {
		key := fmt.Sprint("before-", i)
		before = append(before, key)
		succeeds(t, key, func() *httptest.ResponseRecorder { return s.post(key) })
	}
	redistest.Replicates(t, old, replica)

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
	old.Kill()
	redistest.Eventually(t, "the replica is promoted", func() bool { return replica.Replication("role") == "master" })
	succeeds(t, "after", func() *httptest.ResponseRecorder { return s.post("after") })
	close(stop)
	wg.Wait()
	bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.runner.WaitSettled(bounded); err != nil {
		t.Fatalf("what waited to be saved: %v", err)
	}
	elsewhere := mustStack(t, replica.Client(), failoverOptions, rows.create)
	keys := append(before, "after", "later")
	for _, key := range keys {
		succeeds(t, key, func() *httptest.ResponseRecorder { return elsewhere.post(key) })
	}
	// Each request was made once, so none may have run twice, whatever was
	// lost.
	rows.mustBeOneEach(t, keys...)
}

// follow makes a server a replica, or of NO ONE.
func follow(t *testing.T, s *redistest.Server, host, port string) {
	t.Helper()
	if err := s.Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
}
