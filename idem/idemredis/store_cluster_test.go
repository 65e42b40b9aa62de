package idemredis_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

func connectCluster(t testing.TB, servers []*server) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].Options().Addr}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

// Every method works on the server of a Redis Cluster that has the key, and
// Check asks all servers.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	store := idemredis.New(connectCluster(t, servers), idemredis.Options{})
	for i := range 30 {
		c := aClaim(fmt.Sprint(i))
		mustBegin(t, store, c, idem.Claimed)
		if err := store.Extend(t.Context(), c.Key, c.Token, c.Lease); err != nil {
			t.Error(err)
		}
		if err := store.Settle(t.Context(), c.Key, c.Token, finished(fmt.Sprint(i))); err != nil {
			t.Error(err)
		}
		if r := mustBegin(t, store, again(c), idem.Done); string(r.Payload) != fmt.Sprint(i) {
			t.Errorf("got the payload %q, want %d", r.Payload, i)
		}
	}
	if err := store.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for i, s := range servers {
		if n := s.Client().DBSize(t.Context()).Val(); n == 0 {
			t.Errorf("server %d has none of 30 keys", i)
		}
		s.Set("maxmemory-policy", "allkeys-lru")
		if err := store.Check(t.Context()); err == nil {
			t.Errorf("Check takes it that server %d evicts", i)
		}
		s.Set("maxmemory-policy", "noeviction")
	}
}

// resharding moves one slot of a cluster from server to server.
type resharding struct {
	t       testing.TB
	servers []*server
	clients []*redis.Client
	ids     []string
	slot    int
	at      int // the server that has the slot
}

func newResharding(t testing.TB, servers []*server, slot int) *resharding {
	r := &resharding{t: t, servers: servers, slot: slot, at: slot * len(servers) / redistest.Slots}
	for _, s := range servers {
		c := s.Client()
		r.clients = append(r.clients, c)
		r.ids = append(r.ids, c.Do(t.Context(), "CLUSTER", "MYID").Val().(string))
	}
	return r
}

func (r *resharding) do(server int, args ...any) any {
	r.t.Helper()
	reply, err := r.clients[server].Do(r.t.Context(), args...).Result()
	if err != nil {
		r.t.Errorf("%v: %v", args, err)
	}
	return reply
}

// move moves the slot to the next server, as redis-cli does. between is called
// when the slot is announced and when half of its keys are moved.
func (r *resharding) move(between func()) {
	from, to := r.at, (r.at+1)%len(r.servers)
	r.do(to, "CLUSTER", "SETSLOT", r.slot, "IMPORTING", r.ids[from])
	r.do(from, "CLUSTER", "SETSLOT", r.slot, "MIGRATING", r.ids[to])
	between()
	half := int(r.do(from, "CLUSTER", "COUNTKEYSINSLOT", r.slot).(int64)) / 2
	for moved := 0; ; moved++ {
		if moved == half {
			between()
		}
		keys, _ := r.do(from, "CLUSTER", "GETKEYSINSLOT", r.slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		r.do(from, "MIGRATE", "127.0.0.1", r.servers[to].Port, keys[0], 0, 60_000)
	}
	for _, server := range []int{to, from, 3 - to - from} {
		r.do(server, "CLUSTER", "SETSLOT", r.slot, "NODE", r.ids[to])
	}
	r.at = to
}

// redirected returns how often the servers answered with an error such as
// MOVED.
func (r *resharding) redirected(name string) (sum int) {
	for _, c := range r.clients {
		for line := range strings.Lines(c.Info(r.t.Context(), "errorstats").Val()) {
			if count, ok := strings.CutPrefix(line, "errorstat_"+name+":count="); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(count))
				sum += n
			}
		}
	}
	return sum
}

// While a slot moves around a cluster, two processes create with keys in it.
// None runs twice, and all get their answers.
func TestResharding(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	// One slot for all keys.
	const prefix = "{moving}:"
	var processes []*idem.Runner
	for range 2 {
		store := idemredis.New(connectCluster(t, servers), idemredis.Options{Prefix: prefix})
		processes = append(processes, idem.NewRunner(store, idem.Options{Timeout: time.Minute, Logger: quiet}))
	}
	var mu sync.Mutex
	runs := map[string]int{}
	create := func(process int, key string) {
		r := processes[process]
		record, e, err := r.Begin(t.Context(), idem.Request{Key: idem.NewKey("org_1", key), Owner: "org_1"})
		switch {
		case err != nil:
			t.Errorf("key %s: %v", key, err)
		case e != nil:
			mu.Lock()
			runs[key]++
			mu.Unlock()
			if err := e.Settle(t.Context(), idem.Settlement{Outcome: idem.Finished, Payload: []byte(key)}); err != nil {
				t.Errorf("key %s: %v", key, err)
			}
		case record.State != idem.Done || string(record.Payload) != key:
			t.Errorf("key %s: got %v %q, want its answer", key, record.State, record.Payload)
		}
	}

	slot := int(connectCluster(t, servers).ClusterKeySlot(t.Context(), prefix).Val())
	moving := newResharding(t, servers, slot)
	moved := make(chan struct{})
	var total sync.WaitGroup
	for worker := range 4 {
		total.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-moved:
					return
				default:
				}
				key := fmt.Sprintf("%d-%d", worker, n)
				var wg sync.WaitGroup
				for process := range processes {
					wg.Go(func() { create(process, key) })
				}
				wg.Wait()
				if n > 0 { // and an earlier one once more
					create(n%2, fmt.Sprintf("%d-%d", worker, n/2))
				}
			}
		})
	}
	// Some keys are created in each state of the slot.
	some := func() {
		mu.Lock()
		want := len(runs) + 20
		mu.Unlock()
		redistest.Eventually(t, "some keys are created", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(runs) >= want
		})
	}
	some()
	for range 4 {
		moving.move(some)
		some()
	}
	close(moved)
	total.Wait()
	for key, n := range runs {
		if n != 1 {
			t.Errorf("key %s ran %d times", key, n)
		}
		create(0, key)
	}
	for _, r := range processes {
		bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := r.WaitSettled(bounded); err != nil {
			t.Error(err)
		}
	}
	if moving.redirected("ASK") == 0 || moving.redirected("MOVED") == 0 {
		t.Errorf("got %d ASK and %d MOVED, want some", moving.redirected("ASK"), moving.redirected("MOVED"))
	}
}
