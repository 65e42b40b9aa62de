package ratelimitredis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// startCluster starts one server that has all slots of a cluster, and refuses
// scripts on more than one of them with CROSSSLOT.
func startCluster(t testing.TB) *redis.ClusterClient {
	_, client := startClusterServer(t)
	return client
}

func startClusterServer(t testing.TB) (*server, *redis.ClusterClient) {
	s := redistest.StartTCP(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
	if err := s.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Options().Addr}})
	t.Cleanup(func() { client.Close() })
	redistest.Eventually(t, "the cluster serves", func() bool { return client.Set(t.Context(), "a", "b", time.Second).Err() == nil })
	return s, client
}

// All counters of a decision are in one slot. A script on several is refused.
func TestCluster(t *testing.T) {
	client := startCluster(t)
	err := client.Eval(t.Context(), "return 1", []string{"a", "b"}).Err()
	if err == nil || !strings.Contains(err.Error(), "slot") {
		t.Fatalf("a script on two slots: got %v, want CROSSSLOT", err)
	}
	const prefix = "cluster"
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	slots := map[int64]bool{}
	for org := range 20 {
		var charges []ratelimit.Charge
		for _, name := range []string{"organization", "key", "route", "client"} {
			p := policy(3, time.Hour)
			p.Name = name
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
