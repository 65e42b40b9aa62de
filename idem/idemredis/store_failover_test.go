package idemredis_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
)

// pair is a primary with its replica, and what the clients of processes know.
type pair struct {
	*rows
	t            *testing.T
	old, replica *server
	at           atomic.Pointer[server] // where clients connect
}

func newPair(t *testing.T, args ...string) *pair {
	p := &pair{rows: newRows(), t: t, old: redistest.StartTCP(t, args...)}
	p.replica = redistest.StartReplica(t, p.old)
	p.at.Store(p.old)
	return p
}

// process returns a process that connects to where they do now.
func (p *pair) process() *stack {
	return newStack(p.t, redistest.Connect(p.t, &redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, p.at.Load().Options().Addr)
		},
	}), failoverOptions, p.create)
}

// promote makes the replica a primary when it has all writes.
func (p *pair) promote() {
	redistest.Replicates(p.t, p.old, p.replica)
	follow(p.t, p.replica, "NO", "ONE")
}

// failoverOptions leave Redis more time than a busy machine needs, because one
// that is dead refuses connections at once.
var failoverOptions = idem.Options{Timeout: time.Minute, Lease: 2 * time.Second, Wait: time.Second}

// A replica is promoted while the old primary still acknowledges writes, which
// are lost with it. What the replica has does not run again; the package
// comment says what becomes of the rest.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s, elsewhere := p.process(), p.process() // of what asks after the failover nothing is in memory

	// Each handler makes the next request: all of them run while the replica is
	// promoted or the old primary dies.
	p.after["claim kept"] = func() {
		s.mustGet(t, "answer lost", 201)
		s.mustGet(t, "all lost", 201)
		s.mustGet(t, "claim lost", 409)
	}
	p.after["answer lost"] = p.promote
	p.after["claim lost"] = func() {
		p.old.Kill()
		s.mustGet(t, "without a primary", 503)
		p.at.Store(p.replica)
	}
	s.mustGet(t, "kept", 201)
	s.mustGet(t, "claim kept", 201)
	clear(p.after)
	p.mustBeOneEach(t, "kept", "claim kept", "answer lost", "all lost", "claim lost")

	elsewhere.succeeds(t, "kept", "claim kept", "without a primary", "later")
	p.mustBeOneEach(t, "kept", "claim kept", "without a primary", "later")
	redistest.Eventually(t, "the outcome of the create whose answer was lost is unknown", func() bool {
		w := elsewhere.post("answer lost")
		return w.Code == 409 && strings.Contains(w.Body.String(), "idempotency_outcome_unknown")
	})
	p.mustBeOneEach(t, "answer lost")
	for _, key := range []string{"all lost", "claim lost"} {
		elsewhere.succeeds(t, key)
		if n := p.of[key]; n != 2 {
			t.Errorf("%s: %d rows, want 2, as the package comment says", key, n)
		}
	}
}

// With min-replicas-to-write a primary that lost its replica acknowledges
// nothing, so that nothing is lost with it.
func TestPrimaryWithoutItsReplica(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10")
	s, elsewhere := p.process(), p.process()
	s.succeeds(t, "kept")
	p.after["during"] = func() {
		p.promote()
		redistest.Eventually(t, "the primary knows that its replica has gone",
			func() bool { return p.old.Replication("connected_slaves") == "0" })
	}
	s.mustGet(t, "during", 201)
	clear(p.after)
	s.mustGet(t, "refused", 503)
	p.old.Kill()
	p.at.Store(p.replica)
	mustSaveAll(t, s.runner)
	keys := []string{"kept", "during", "refused", "later"}
	elsewhere.succeeds(t, keys...)
	p.mustBeOneEach(t, keys...)
}

// A primary that becomes a replica refuses writes. The client then connects to
// the new one, and nothing runs twice.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := p.process()
	s.succeeds(t, "kept")
	p.after["during"] = func() {
		p.promote()
		follow(t, p.old, "127.0.0.1", fmt.Sprint(p.replica.Port))
		p.at.Store(p.replica)
	}
	s.mustGet(t, "during", 201)
	clear(p.after)
	keys := []string{"kept", "during", "later"}
	s.succeeds(t, keys...)
	p.process().succeeds(t, keys...)
	p.mustBeOneEach(t, keys...)
}

// A primary dies, and a Sentinel promotes its replica, while requests go on.
func TestSentinel(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	client := redis.NewFailoverClient(redistest.StartSentinel(t, p.old))
	t.Cleanup(func() { client.Close() })
	s := newStack(t, client, failoverOptions, p.create)
	var before []string
	for i := range 10 {
		before = append(before, fmt.Sprint("before-", i))
	}
	s.succeeds(t, before...)
	redistest.Replicates(t, p.old, p.replica)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					s.ask(t, fmt.Sprintf("meanwhile-%d-%d", worker, n))
				}
			}
		})
	}
	p.old.Kill()
	redistest.Eventually(t, "the replica is promoted", func() bool { return p.replica.Replication("role") == "master" })
	s.succeeds(t, "after")
	close(stop)
	wg.Wait()
	mustSaveAll(t, s.runner)
	keys := append(before, "after", "later")
	newStack(t, p.replica.Client(), failoverOptions, p.create).succeeds(t, keys...)
	// Each request was made once, so none may have run twice, whatever was
	// lost.
	p.mustBeOneEach(t, keys...)
}

// follow makes a server a replica, or of NO ONE.
func follow(t *testing.T, s *redistest.Server, host, port string) {
	t.Helper()
	if err := s.Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
}
