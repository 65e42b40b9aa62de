package redisnew

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemredis"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimittest"
)

func TestLimits(t *testing.T) {
	client, auto := connect(t, options(t))
	store := ratelimitredis.New(auto, ratelimitredis.Options{Prefix: ownPrefix(t, client), Failover: patient})
	ratelimittest.Suite{
		New:    func(t *testing.T) ratelimit.Store { return store },
		Atomic: true, Smooth: true, DenialWritesNothing: true,
	}.Run(t)
	if n := store.Fallbacks(); n > 0 {
		t.Errorf("%d decisions were made without Redis", n)
	}
}

// With units ahead no more than the burst is admitted. On a slow machine it
// may be less: units in hand lapse.
func TestLimitsAhead(t *testing.T) {
	client, auto := connect(t, options(t))
	store := ratelimitredis.New(auto, ratelimitredis.Options{Prefix: ownPrefix(t, client), Ahead: 100 * time.Millisecond, Failover: patient})
	one := []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1, Period: 1000 * time.Hour, Burst: 1000}}, Bucket: "b", Cost: 1}}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				d, err := store.Take(t.Context(), one)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n == 0 || n > 1000 || store.Fallbacks() > 0 {
		t.Errorf("%d of a burst of 1000 were admitted, and %d decisions made without Redis", n, store.Fallbacks())
	}
}

// aged is a Store whose keys can be made older.
type aged struct {
	*idemredis.Store
	client *redis.Client
	prefix string
}

func TestReplies(t *testing.T) {
	client, auto := connect(t, options(t))
	idemtest.Suite{
		New: func(t *testing.T) idem.Store {
			prefix := ownPrefix(t, client)
			return aged{idemredis.New(auto, idemredis.Options{Prefix: prefix}), client, prefix}
		},
		Advance: func(t *testing.T, s idem.Store, d time.Duration) {
			a := s.(aged)
			for _, key := range keysOf(t, a.client, a.prefix) {
				left := a.client.PTTL(t.Context(), key).Val() - d
				if err := a.client.PExpire(t.Context(), key, max(left, 0)).Err(); err != nil {
					t.Fatal(err)
				}
			}
		},
	}.Run(t)
	if err := idemredis.New(auto, idemredis.Options{}).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// batches is a hook that counts the pipelines of more than one command.
type batches struct{ atomic.Int64 }

func (*batches) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*batches) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (b *batches) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) > 1 {
			b.Add(1)
		}
		return next(ctx, cmds)
	}
}

// Limits and claims of concurrent requests travel together.
func TestTripsTravelTogether(t *testing.T) {
	client, auto := connect(t, options(t))
	var several batches
	client.AddHook(&several)
	prefix := ownPrefix(t, client)
	limits := ratelimitredis.New(auto, ratelimitredis.Options{Prefix: prefix, Failover: patient})
	replies := idemredis.New(auto, idemredis.Options{Prefix: prefix})
	one := []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.MustParse("1000000-H")}, Bucket: "b", Cost: 1}}
	eventually(t, "a pipeline has several commands", func() bool {
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if d, err := limits.Take(t.Context(), one); err != nil || !d.Allowed {
					t.Errorf("Take: got %+v, %v", d, err)
				}
				c := claim()
				if r, err := replies.Begin(t.Context(), c); err != nil || r.State != idem.Claimed {
					t.Errorf("Begin: got %v, %v", r.State, err)
				}
			})
		}
		wg.Wait()
		return several.Load() > 0
	})
}

// A Redis that hangs holds up nobody for longer than the budget and the
// context, although the client waits for an hour. Then all goes on.
func TestHungServer(t *testing.T) {
	o, process := startServer(t)
	o.ReadTimeout = time.Hour
	_, auto := connect(t, o)
	limits := ratelimitredis.New(auto, ratelimitredis.Options{Failover: ratelimit.FailoverOptions{Cooldown: 10 * time.Millisecond, Logger: patient.Logger}})
	replies := idemredis.New(auto, idemredis.Options{})
	one := []ratelimit.Charge{{Policy: &ratelimit.Policy{Name: "p", Limit: ratelimit.MustParse("1000000-H")}, Bucket: "b", Cost: 1}}
	decides := func() bool {
		before := limits.Fallbacks()
		if d, err := limits.Take(t.Context(), one); err != nil || !d.Allowed {
			t.Errorf("Take: got %+v, %v", d, err)
		}
		return limits.Fallbacks() == before
	}
	eventually(t, "Redis decides", decides)
	hang(t, process)
	for range 20 {
		if decides() {
			t.Error("Redis decided while it hung")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := replies.Begin(ctx, claim()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Begin: got %v, want the end of the context", err)
	}
	process.Signal(continues)
	eventually(t, "Redis decides again", decides)
	c := claim()
	if r, err := replies.Begin(t.Context(), c); err != nil || r.State != idem.Claimed {
		t.Errorf("Begin: got %v, %v, want the claim", r.State, err)
	}
}

// An AutoPipeliner asks one server of a cluster, which Check says.
func TestCheckInFrontOfACluster(t *testing.T) {
	o := startNode(t)
	one := redis.NewClient(o)
	defer one.Close()
	if err := one.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}})
	defer cluster.Close()
	auto, err := cluster.AutoPipeline()
	if err != nil {
		t.Fatal(err)
	}
	store := idemredis.New(auto, idemredis.Options{})
	eventually(t, "the cluster serves", func() bool {
		r, err := store.Begin(t.Context(), claim())
		return err == nil && r.State == idem.Claimed
	})
	if err := store.Check(t.Context()); err == nil {
		t.Error("Check with an AutoPipeliner: got no error")
	}
	if err := idemredis.New(cluster, idemredis.Options{}).Check(t.Context()); err != nil {
		t.Errorf("Check with the client behind it: %v", err)
	}
}
