package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
	s.t.Helper()
	client := redis.NewClient(s.Options())
	defer client.Close()
	info, err := client.Info(s.t.Context(), "replication").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Promote makes a replica a primary of its own.
func (s *Server) Promote() { s.follow("NO", "ONE") }

// Follow makes a server a replica of another one.
func (s *Server) Follow(primary *Server) { s.follow("127.0.0.1", fmt.Sprint(primary.Port)) }

func (s *Server) follow(host, port string) {
	s.t.Helper()
	client := redis.NewClient(s.Options())
	defer client.Close()
	if err := client.SlaveOf(context.Background(), host, port).Err(); err != nil {
		s.t.Fatal(err)
	}
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
	s := startTCP(t, func(program []string) []string { return []string{program[0], file, "--sentinel"} })
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
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	var servers []*Server
	for range 3 {
		servers = append(servers, StartTCP(t, "--cluster-enabled", "yes"))
	}
	for i, s := range servers {
		c := s.Client()
		if err := c.ClusterAddSlotsRange(t.Context(), i*Slots/3, (i+1)*Slots/3-1).Err(); err != nil {
			t.Fatal(err)
		}
		// Servers of one epoch choose new ones when they meet. One that is late
		// takes a slot back that has moved since.
		if err := c.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.ClusterMeet(t.Context(), "127.0.0.1", fmt.Sprint(servers[0].Port)).Err(); i > 0 && err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		c := s.Client()
		Eventually(t, "all servers know each other", func() bool {
			info := c.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_size:3") && strings.Contains(info, "cluster_state:ok")
		})
	}
	return servers
}
