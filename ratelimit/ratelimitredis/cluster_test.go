package ratelimitredis_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// startCluster starts one server that has all slots of a cluster, and refuses
// scripts on more than one of them with CROSSSLOT.
func startCluster(t testing.TB) (*server, *redis.ClusterClient) {
	s := redistest.StartTCP(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	if err := s.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Options().Addr}})
	t.Cleanup(func() { client.Close() })
	redistest.Eventually(t, "the cluster serves",
		func() bool { return client.Set(t.Context(), "a", "b", time.Second).Err() == nil })
	return s, client
}

// All counters of a decision are in one slot. A script on several is refused.
func TestCluster(t *testing.T) {
	t.Parallel()
	_, client := startCluster(t)
	err := client.Eval(t.Context(), "return 1", []string{"a", "b"}).Err()
	if err == nil || !strings.Contains(err.Error(), "slot") {
		t.Fatalf("a script on two slots: got %v, want CROSSSLOT", err)
	}
	const prefix = "cluster"
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	for org := range 20 {
		var charges []ratelimit.Charge
		for _, name := range []string{"organization", "key", "route", "client"} {
			p := named(name, 3)
			// Braces in buckets are no hash tags.
			bucket := fmt.Sprintf("%s %d{}{a}}", name, org)
			if name == "client" {
				bucket = "192.0.2.1"
				p.Limit.Count = 20
			}
			charges = append(charges, ratelimit.Charge{Policy: p, Bucket: bucket, Cost: 1})
		}
		d := take(t, store, charges...)
		if !d.Allowed {
			t.Fatalf("organization %d was denied: %+v", org, d)
		}
		if left := d.States[3].Remaining; left != int64(19-org) {
			t.Errorf("the address that %d organizations come from has %d of 20 left", org+1, left)
		}
	}
	slots := map[int64]bool{}
	for _, key := range redistest.KeysOf(t, client, prefix) {
		slots[client.ClusterKeySlot(t.Context(), key).Val()] = true
	}
	if len(slots) != 1 {
		t.Errorf("the keys of 20 organizations lie in %d slots", len(slots))
	}
	if n := fallbacks(store); n > 0 {
		t.Errorf("%d decisions were made without Redis", n)
	}
}

// While the slot of the counters moves around a cluster, every decision that
// Redis makes is charged once to both of its buckets, and one that it cannot
// make, because the buckets are on two servers, charges neither.
func TestResharding(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{servers[0].Options().Addr}, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { client.Close() })
	const prefix, units = "moving", 1_000_000
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient}).Counters()
	var charges []ratelimit.Charge
	for _, name := range []string{"organization", "key"} {
		p := &ratelimit.Policy{Name: name, Limit: ratelimit.Limit{Count: 1, Period: time.Hour, Burst: units}}
		charges = append(charges, ratelimit.Charge{Policy: p, Bucket: "b", Cost: 1})
	}
	var admitted, failed atomic.Int64
	moved := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-moved:
					return
				default:
				}
				switch d, err := store.Take(t.Context(), charges); {
				case err != nil:
					failed.Add(1)
				case !d.Allowed:
					t.Errorf("denied with %+v", d)
				default:
					admitted.Add(1)
				}
			}
		})
	}
	// Some decisions end in each state of the slot.
	some := func() {
		want := admitted.Load() + failed.Load() + 20
		redistest.Eventually(t, "some decisions end", func() bool { return admitted.Load()+failed.Load() >= want })
	}
	some()
	moving := redistest.NewResharding(t, servers, int(client.ClusterKeySlot(t.Context(), prefix).Val()))
	for range 3 {
		moving.Move(func(int) { some() })
		some()
	}
	close(moved)
	wg.Wait()
	free := []ratelimit.Charge{charges[0], charges[1]}
	free[0].Cost, free[1].Cost = 0, 0
	d := take(t, store, free...)
	for i, s := range d.States[:2] {
		if charged := units - s.Remaining; charged != admitted.Load() {
			t.Errorf("bucket %d: %d units were charged for %d decisions", i, charged, admitted.Load())
		}
	}
	if moving.Redirected("ASK") == 0 || moving.Redirected("MOVED") == 0 || moving.Redirected("TRYAGAIN") == 0 {
		t.Errorf("got %d ASK, %d MOVED and %d TRYAGAIN, want some",
			moving.Redirected("ASK"), moving.Redirected("MOVED"), moving.Redirected("TRYAGAIN"))
	}
	t.Logf("%d decisions, and %d that were not made", admitted.Load(), failed.Load())
}
