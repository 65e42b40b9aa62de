package idemredis_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

func connectCluster(t testing.TB, servers []*server) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{servers[0].Options().Addr}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// Every method works on the server of a Redis Cluster that has the key, which is
// its shard once it is known. Check asks all servers, and Erase looks in each.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	store := idemredis.New(connectCluster(t, servers), idemredis.Options{})
	if got := store.Shard(idem.Key{}); got != "" {
		t.Errorf("before the first command: got the shard %q", got)
	}
	for i := range 30 {
		c := aClaim(fmt.Sprint(i))
		mustBegin(t, store, c, idem.Claimed)
		want := servers[redisSlot(c.Key, "sallyport:idem:")*3/redistest.Slots].Addr
		if got := store.Shard(c.Key); got != want {
			t.Errorf("got the shard %q, want %q", got, want)
		}
		if err := store.Extend(t.Context(), c.Key, c.Token, c.Lease); err != nil {
			t.Error(err)
		}
		mustSettle(t, store, c, finished(fmt.Sprint(i)))
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
	fill(t, store, 50)
	mustErase(t, store, 50, 0)
	alone := redistest.Connect(t, redistest.Options(t))
	one := ownStore(t, alone)
	mustBegin(t, one, aClaim("one"), idem.Claimed)
	if got := one.Shard(idem.Key{}); got != "" {
		t.Errorf("without a cluster: got the shard %q", got)
	}
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
		record, e, err := r.Begin(t.Context(), idem.Claim{Key: idem.NewKey("org_1", key), Tenant: "org_1"}, nil)
		switch {
		case err != nil:
			t.Errorf("key %s: %v", key, err)
		case e != nil:
			mu.Lock()
			runs[key]++
			mu.Unlock()
			if err := e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(key)}); err != nil {
				t.Errorf("key %s: %v", key, err)
			}
		case record.State != idem.Done || string(record.Payload) != key:
			t.Errorf("key %s: got %v %q, want its answer", key, record.State, record.Payload)
		}
	}

	slot := int(connectCluster(t, servers).ClusterKeySlot(t.Context(), prefix).Val())
	moving := redistest.NewResharding(t, servers, slot)
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
		half := 0
		moving.Move(func(moved int) {
			if moved == half {
				some()
			}
			if moved == 0 {
				half = moving.Keys() / 2
			}
		})
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
		mustSaveAll(t, r)
	}
	if moving.Redirected("ASK") == 0 || moving.Redirected("MOVED") == 0 {
		t.Errorf("got %d ASK and %d MOVED, want some", moving.Redirected("ASK"), moving.Redirected("MOVED"))
	}
}
