package idemredis_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
)

// A primary of a Redis Cluster is killed, hangs, or hands over to its replica,
// while clients create and retry what fails, and while slots move between the
// others. Meanwhile the keys of the other primaries are served, and nothing runs
// twice. With the replica its keys are served again.
func TestShardAway(t *testing.T) {
	for _, test := range []struct {
		name string
		away func(t *testing.T, primaries, replicas []*redistest.Server)
	}{
		{"killed", func(_ *testing.T, primaries, _ []*redistest.Server) { primaries[0].Kill() }},
		{"hung", func(_ *testing.T, primaries, _ []*redistest.Server) { primaries[0].Hang() }},
		{"failover", func(t *testing.T, _, replicas []*redistest.Server) {
			if err := replicas[0].Client().ClusterFailover(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}},
		{"killed while slots move", func(t *testing.T, primaries, _ []*redistest.Server) {
			primaries[0].Kill()
			if n := moveSlots(t, primaries[1], primaries[2], redistest.Slots/3+1, 1000); n == 0 {
				t.Error("no key has moved")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			primaries, replicas := startShards(t)
			client := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{primaries[0].Addr, primaries[1].Addr, primaries[2].Addr}, ContextTimeoutEnabled: true,
			})
			t.Cleanup(func() { client.Close() })
			store := idemredis.New(client, idemredis.Options{})
			r := idem.NewRunner(store, idem.Options{Logger: quiet, Timeout: 3 * time.Second})
			const prefix = "sallyport:idem:"
			var asked, served, again atomic.Int64
			var mu sync.Mutex
			runs := map[string]int{}
			var away atomic.Bool
			done := make(chan struct{})
			var clients sync.WaitGroup
			for worker := range 12 {
				clients.Go(func() {
					for n := 0; ; n++ {
						name := strconv.Itoa(worker) + "-" + strconv.Itoa(n)
						key := idem.NewKey("org_1", name)
						slot := redisSlot(key, prefix) < redistest.Slots/3
						for try := range 4 { // as SDKs retry
							select {
							case <-done:
								return
							case <-time.After(20 * time.Millisecond):
							}
							began := time.Now()
							record, e, err := r.Begin(t.Context(), idem.Claim{Key: key, Tenant: name}, nil)
							if e != nil {
								mu.Lock()
								runs[name]++
								mu.Unlock()
								e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeDone, Payload: []byte(name)})
							}
							ok := err == nil && (e != nil || record.State == idem.Done) && time.Since(began) < 3*time.Second
							if away.Load() && !slot && try == 0 {
								asked.Add(1)
								if ok {
									served.Add(1)
								}
							}
							if away.Load() && slot && ok {
								again.Add(1)
							}
							if ok {
								break
							}
						}
					}
				})
			}
			<-time.After(time.Second)
			away.Store(true)
			test.away(t, primaries, replicas)
			redistest.Eventually(t, "the replica serves its keys", func() bool { return again.Load() > 50 })
			<-time.After(2 * time.Second)
			close(done)
			clients.Wait()
			if n, of := served.Load(), asked.Load(); n*100 < of*95 || of < 100 {
				t.Errorf("%d of %d requests with keys of the others were served, want 95 of 100", n, of)
			} else {
				t.Logf("%d of %d with keys of the others were served, %d of the one that was away", n, of, again.Load())
			}
			for name, n := range runs {
				if n > 1 {
					t.Errorf("%s ran %d times", name, n)
				}
			}
		})
	}
}

// moveSlots moves slots with their keys as redis-cli does, and returns how many
// keys there were.
func moveSlots(t *testing.T, from, to *redistest.Server, first, slots int) (moved int) {
	t.Helper()
	do := func(s *redistest.Server, command ...any) *redis.Cmd {
		t.Helper()
		got := s.Client().Do(t.Context(), command...)
		if got.Err() != nil {
			t.Fatalf("%v: %v", command, got.Err())
		}
		return got
	}
	source, target := do(from, "CLUSTER", "MYID").Val(), do(to, "CLUSTER", "MYID").Val()
	host, port, _ := strings.Cut(to.Addr, ":")
	for slot := first; slot < first+slots; slot++ {
		do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
		do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
		for {
			keys, _ := do(from, "CLUSTER", "GETKEYSINSLOT", slot, 100).Slice()
			if len(keys) == 0 {
				break
			}
			do(from, append([]any{"MIGRATE", host, port, "", 0, 5000, "REPLACE", "KEYS"}, keys...)...)
			moved += len(keys)
		}
		do(to, "CLUSTER", "SETSLOT", slot, "NODE", target)
		do(from, "CLUSTER", "SETSLOT", slot, "NODE", target)
	}
	return moved
}

// redisSlot is that of a key with a prefix.
func redisSlot(key idem.Key, prefix string) int {
	var crc uint16
	for _, b := range fmt.Appendf(nil, "%s%x", prefix, key[:]) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % redistest.Slots
}

// startShards starts a cluster of three primaries with a replica each, which
// takes over a second after its primary does not answer. A primary that is away
// leaves the others serving.
func startShards(t *testing.T) (primaries, replicas []*redistest.Server) {
	t.Helper()
	args := []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}
	primaries = redistest.StartCluster(t, args...)
	for _, p := range primaries {
		r := redistest.StartTCP(t, args...)
		replicas = append(replicas, r)
		id := p.Client().Do(t.Context(), "CLUSTER", "MYID").Val().(string)
		c := r.Client()
		if err := c.ClusterMeet(t.Context(), "127.0.0.1", fmt.Sprint(p.Port)).Err(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "a replica knows its primary", func() bool {
			return c.Do(t.Context(), "CLUSTER", "REPLICATE", id).Err() == nil
		})
		redistest.Eventually(t, "a replica follows", func() bool {
			return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
	}
	for _, s := range append(replicas, primaries...) {
		c := s.Client()
		redistest.Eventually(t, "all servers know each other", func() bool {
			nodes := c.ClusterNodes(t.Context()).Val()
			return strings.Count(nodes, " connected") == 6 && strings.Count(nodes, "slave ") == 3 &&
				!strings.Contains(nodes, "fail")
		})
	}
	return primaries, replicas
}
