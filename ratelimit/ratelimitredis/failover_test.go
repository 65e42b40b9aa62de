package ratelimitredis_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/optiontest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// A replica is promoted while the old primary still admits. What it admitted
// since then is lost with it: the bucket is as full as it was before.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	old := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, old)
	var at atomic.Pointer[server]
	at.Store(old)
	client := redistest.Connect(t, &redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, at.Load().Options().Addr)
		},
	})
	store := ratelimitredis.New(client, ratelimitredis.Options{Failover: patient})
	charge := ratelimit.Charge{Policy: policy(10, time.Hour), Bucket: "b", Cost: 1}
	left := func(want int64) {
		t.Helper()
		if d := take(t, store, charge); d.States[0].Remaining != want {
			t.Errorf("got %d of 10 left, want %d", d.States[0].Remaining, want)
		}
	}
	for i := range int64(5) {
		left(9 - i)
	}
	redistest.Replicates(t, old, replica)
	if err := replica.Client().SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		left(4 - i)
	}
	old.Kill()
	if byRedis(store, func() { left(9) }) {
		t.Error("without a primary this process does not count by itself")
	}
	at.Store(replica)
	free := charge
	free.Cost = 0
	redistest.Eventually(t, "the new primary answers", func() bool {
		return byRedis(store, func() { take(t, store, free) })
	})
	left(4)
}

// A primary dies, and a Sentinel promotes its replica, while requests go on.
// None fails, and then the limits are those of the fleet again.
func TestSentinel(t *testing.T) {
	t.Parallel()
	old := redistest.StartTCP(t)
	replica := redistest.StartReplica(t, old)
	client := redis.NewFailoverClient(redistest.StartSentinel(t, old))
	t.Cleanup(func() { client.Close() })
	store := ratelimitredis.New(client, ratelimitredis.Options{
		Failover: ratelimit.FailoverOptions{Logger: slog.New(slog.DiscardHandler)},
	})
	get := newStack(t, middleware.RateLimitOptions{Store: store, Organization: policy(1e9, time.Hour)},
		middleware.RouteOptions{})
	decides := func() bool {
		return byRedis(store, func() {
			if w := get(); w.Code != 200 {
				t.Errorf("got %d, want 200", w.Code)
			}
		})
	}
	redistest.Eventually(t, "Redis decides", decides)
	old.Kill()
	redistest.Eventually(t, "the replica is promoted", func() bool {
		decides()
		return replica.Replication("role") == "master"
	})
	redistest.Eventually(t, "the new primary decides", decides)
}

// keysSent notes the keys and arguments of scripts.
type keysSent struct {
	*fake
	sent sync.Mutex
	text []string
}

func (k *keysSent) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	k.sent.Lock()
	k.text = append(k.text, fmt.Sprint(keys, args))
	k.sent.Unlock()
	return k.fake.EvalSha(ctx, "", keys, args...)
}

// TestOptions: each option has an effect, and without one the keys begin as the
// documents say.
func TestOptions(t *testing.T) {
	sent := func(set func(*ratelimitredis.Options)) (text string) {
		synctest.Test(t, func(t *testing.T) {
			o := ratelimitredis.Options{Failover: ratelimit.FailoverOptions{Logger: slog.New(slog.DiscardHandler)}}
			set(&o)
			k := &keysSent{fake: newFake(time.Millisecond)}
			s := ratelimitredis.New(k, o)
			for i := range 100 {
				time.Sleep(time.Millisecond)
				k.fake.set(i > 97)
				_, _ = s.Take(t.Context(), []ratelimit.Charge{{Policy: policy(5000, time.Second), Bucket: "a", Cost: 1}})
			}
			time.Sleep(time.Second) // until all calls have ended
			text = fmt.Sprint(k.text, fallbacks(s), isDown(s))
		})
		return text
	}
	optiontest.Every(t, sent, map[string]func(*ratelimitredis.Options){
		"Prefix":   func(o *ratelimitredis.Options) { o.Prefix = "acme:" },
		"Ahead":    func(o *ratelimitredis.Options) { o.Ahead = horizon },
		"Failover": func(o *ratelimitredis.Options) { o.Failover.Timeout = time.Microsecond },
	})
	if got := sent(func(*ratelimitredis.Options) {}); !strings.HasPrefix(got, "[[{sallyport:rate}") {
		t.Errorf("got the keys %q, want them to begin with {sallyport:rate}", got)
	}
}
