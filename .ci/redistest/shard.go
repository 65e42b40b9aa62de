package redistest

import (
	"strings"
	"testing"
)

// StartShards starts a cluster of three primaries with a replica each, which
// takes over a second after its primary does not answer. A primary that is away
// leaves the others serving.
func StartShards(t testing.TB) (primaries, replicas []*Server) {
	t.Helper()
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}
	primaries = startCluster(t, args...)
	for _, p := range primaries {
		r := StartTCP(t, args...)
		replicas = append(replicas, r)
		id := p.Client().Do(t.Context(), "CLUSTER", "MYID").Val().(string)
		c := r.Client()
		if err := c.ClusterMeet(t.Context(), "127.0.0.1", p.Addr[strings.LastIndex(p.Addr, ":")+1:]).Err(); err != nil {
			t.Fatal(err)
		}
		Eventually(t, "a replica knows its primary", func() bool {
			return c.Do(t.Context(), "CLUSTER", "REPLICATE", id).Err() == nil
		})
		Eventually(t, "a replica follows", func() bool {
			return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
	}
	for _, s := range append(replicas, primaries...) {
		c := s.Client()
		Eventually(t, "all servers know each other", func() bool {
			nodes := c.ClusterNodes(t.Context()).Val()
			return strings.Count(nodes, " connected") == 6 && strings.Count(nodes, "slave ") == 3 &&
				!strings.Contains(nodes, "fail")
		})
	}
	return primaries, replicas
}
