package ratelimitredis_test

import (
	"fmt"
	"strconv"
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
	names := []string{"organization", "key", "route", "client"}
	for _, spread := range []bool{false, true} {
		prefix := fmt.Sprint("spread-", spread)
		store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: prefix, Spread: spread, Failover: patient})
		slots := map[int64]bool{}
		for org := range 20 {
			var charges []ratelimit.Charge
			for _, name := range names {
				p := policy(3, time.Hour)
				p.Name = name
				// Braces in buckets are no hash tags.
				bucket := fmt.Sprintf("%s %d{}{a}}", name, org)
				if name == "client" && !spread {
					bucket = "192.0.2.1"
					p.Limit.Count = 20
				}
				charges = append(charges, ratelimit.Charge{Policy: p, Bucket: bucket, Cost: 1})
			}
			d := take(t, store, charges...)
			if !d.Allowed {
				t.Fatalf("organization %d was denied: %+v", org, d)
			}
			if left := d.States[3].Remaining; !spread && left != int64(19-org) {
				t.Errorf("the address that %d organizations come from has %d of 20 left", org+1, left)
			}
		}
		for _, key := range redistest.KeysOf(t, client, prefix) {
			slots[client.ClusterKeySlot(t.Context(), key).Val()] = true
		}
		if want := 20; !spread && len(slots) != 1 || spread && len(slots) != want {
			t.Errorf("Spread %v: the keys of 20 organizations lie in %d slots", spread, len(slots))
		}
		if n := store.Fallbacks(); n > 0 {
			t.Errorf("Spread %v: %d decisions were made without Redis", spread, n)
		}
	}
}

// With Spread, a bucket that always comes with the same first bucket has one
// counter, and so has a first bucket, whatever comes with it.
func TestSpreadCountsOnce(t *testing.T) {
	client := redistest.Connect(t, redistest.Options(t))
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: redistest.OwnPrefix(t, client), Spread: true, Failover: patient})
	org, key := policy(10, time.Hour), policy(10, time.Hour)
	key.Name = "key"
	for i := range 4 {
		take(t, store, ratelimit.Charge{Policy: org, Bucket: "o", Cost: 1}, ratelimit.Charge{Policy: key, Bucket: "k" + strconv.Itoa(i%2), Cost: 2})
	}
	d := take(t, store, ratelimit.Charge{Policy: org, Bucket: "o"}, ratelimit.Charge{Policy: key, Bucket: "k0"}, ratelimit.Charge{Policy: key, Bucket: "k1"})
	for i, want := range []int64{6, 6, 6} {
		if got := d.States[i].Remaining; got != want {
			t.Errorf("take %d: got %d left, want %d", i, got, want)
		}
	}
}
