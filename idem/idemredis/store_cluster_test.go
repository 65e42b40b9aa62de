package idemredis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// Every method works on the server of a Redis Cluster that has the key, and
// Check asks all servers.
func TestCluster(t *testing.T) {
	servers := []*server{startNode(t), startNode(t)}
	first, second := servers[0].client(), servers[1].client()
	for _, err := range []error{
		first.ClusterAddSlotsRange(t.Context(), 0, 8191).Err(),
		second.ClusterAddSlotsRange(t.Context(), 8192, 16383).Err(),
		first.ClusterMeet(t.Context(), "127.0.0.1", strings.TrimPrefix(servers[1].addr, "127.0.0.1:")).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*redis.Client{first, second} {
		eventually(t, "both servers know each other", func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_size:2") && strings.Contains(info, "cluster_state:ok")
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].options().Addr}})
	t.Cleanup(func() { client.Close() })
	store := idemredis.New(client, idemredis.Options{})
	for i := range 20 {
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
		if n := s.client().DBSize(t.Context()).Val(); n == 0 {
			t.Errorf("server %d has none of 20 keys", i)
		}
		s.set("maxmemory-policy", "allkeys-lru")
		if err := store.Check(t.Context()); err == nil {
			t.Errorf("Check takes it that server %d evicts", i)
		}
		s.set("maxmemory-policy", "noeviction")
	}
}
