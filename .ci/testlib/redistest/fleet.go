package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// StartReplica starts a server that follows another one.
func StartReplica(t testing.TB, primary *Server) *Server {
	t.Helper()
	primary.Set("repl-diskless-sync-delay", "0")
	replica := StartTCP(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.Port))
	Replicates(t, primary, replica)
	return replica
}

// Replicates waits until the replica has all that the primary has done.
func Replicates(t testing.TB, primary, replica *Server) {
	t.Helper()
	Eventually(t, "the replica has everything", func() bool {
		done := primary.Replication("master_repl_offset")
		return replica.Replication("master_link_status") == "up" && replica.Replication("slave_repl_offset") == done
	})
}

// Replication is a field of what the server says of its replication.
func (s *Server) Replication(field string) string {
	s.T.Helper()
	client := redis.NewClient(s.Options())
	defer client.Close()
	return client.InfoMap(s.T.Context(), "replication").Item("Replication", field)
}

// StartSentinel starts a Sentinel that watches the primary, and returns what
// its clients need.
func StartSentinel(t testing.TB, primary *Server) *redis.FailoverOptions {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor primary 127.0.0.1 %d 1\n", primary.Port) +
		"sentinel down-after-milliseconds primary 3000\nsentinel failover-timeout primary 5000\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := StartTCP(t, file, "--sentinel")
	sentinel := redis.NewSentinelClient(s.Options())
	t.Cleanup(func() { sentinel.Close() })
	Eventually(t, "the Sentinel knows the replica", func() bool {
		replicas, err := sentinel.Replicas(t.Context(), "primary").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" &&
			replicas[0]["master-link-status"] == "ok"
	})
	return &redis.FailoverOptions{MasterName: "primary", SentinelAddrs: []string{s.Addr}, ContextTimeoutEnabled: true}
}

// Slots is how many a cluster has.
const Slots = 16_384

// StartCluster starts three servers that have a third of the slots each.
func StartCluster(t testing.TB, args ...string) []*Server {
	t.Helper()
	var all []*Server
	create := []string{"--cluster-yes", "--cluster", "create"}
	for range 3 {
		s := StartTCP(t, append(args, "--cluster-enabled", "yes")...)
		all, create = append(all, s), append(create, s.Addr)
	}
	all[0].Run(servers.Program(t, "redis-cli", "redis-tools"), create...)
	for _, s := range all {
		c := s.Client()
		Eventually(t, "all servers know each other", func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_size:3") && strings.Contains(info, "cluster_state:ok")
		})
	}
	return all
}

// A Resharding moves one slot of a cluster from server to server.
type Resharding struct {
	t       testing.TB
	servers []*Server
	clients []*redis.Client
	slot    int
	at      int // the server that has the slot
}

// NewResharding begins where StartCluster has put the slot.
func NewResharding(t testing.TB, servers []*Server, slot int) *Resharding {
	r := &Resharding{t: t, servers: servers, slot: slot, at: slot * len(servers) / Slots}
	for _, s := range servers {
		r.clients = append(r.clients, s.Client())
	}
	return r
}

func (r *Resharding) do(server int, args ...any) any {
	r.t.Helper()
	reply, err := r.clients[server].Do(r.t.Context(), args...).Result()
	if err != nil {
		r.t.Errorf("%v: %v", args, err)
	}
	return reply
}

// Move moves the slot to the next server, as redis-cli does. between is called
// when the slot is announced, with 0, and after each of its keys, with how many
// have moved.
func (r *Resharding) Move(between func(moved int)) {
	from, to := r.at, (r.at+1)%len(r.servers)
	id := r.do(to, "CLUSTER", "MYID")
	r.do(to, "CLUSTER", "SETSLOT", r.slot, "IMPORTING", r.do(from, "CLUSTER", "MYID"))
	r.do(from, "CLUSTER", "SETSLOT", r.slot, "MIGRATING", id)
	between(0)
	for moved := 1; ; moved++ {
		keys, _ := r.do(from, "CLUSTER", "GETKEYSINSLOT", r.slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		r.do(from, "MIGRATE", "127.0.0.1", r.servers[to].Port, keys[0], 0, 60_000)
		between(moved)
	}
	for _, server := range []int{to, from, 3 - to - from} {
		r.do(server, "CLUSTER", "SETSLOT", r.slot, "NODE", id)
	}
	r.at = to
}

// Keys returns how many keys the server of the slot has in it.
func (r *Resharding) Keys() int {
	n, _ := r.do(r.at, "CLUSTER", "COUNTKEYSINSLOT", r.slot).(int64)
	return int(n)
}

// Redirected returns how often the servers answered with an error such as
// MOVED.
func (r *Resharding) Redirected(name string) (sum int) {
	for _, c := range r.clients {
		count := c.InfoMap(r.t.Context(), "errorstats").Item("Errorstats", "errorstat_"+name)
		n, _ := strconv.Atoi(strings.TrimPrefix(count, "count="))
		sum += n
	}
	return sum
}
