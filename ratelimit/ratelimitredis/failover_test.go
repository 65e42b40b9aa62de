package ratelimitredis_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// startReplica starts a server that follows another one.
func startReplica(t testing.TB, primary *server) *server {
	t.Helper()
	client := primary.client()
	if err := client.ConfigSet(t.Context(), "repl-diskless-sync-delay", "0").Err(); err != nil {
		t.Fatal(err)
	}
	replica := startTCP(t, "--replicaof", "127.0.0.1", fmt.Sprint(primary.port))
	replicates(t, primary, replica)
	return replica
}

// replicates waits until the replica has all that the primary has done.
func replicates(t testing.TB, primary, replica *server) {
	t.Helper()
	of, at := primary.client(), replica.client()
	eventually(t, "the replica has everything", func() bool {
		done := field(t, of, "master_repl_offset")
		return field(t, at, "master_link_status") == "up" && field(t, at, "slave_repl_offset") == done
	})
}

// field is what a server says of its replication.
func field(t testing.TB, c *redis.Client, name string) string {
	t.Helper()
	info, err := c.Info(t.Context(), "replication").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A replica is promoted while the old primary still admits. What it admitted
// since then is lost with it: the bucket is as full as it was before.
func TestPromotedReplica(t *testing.T) {
	t.Parallel()
	old := startTCP(t)
	replica := startReplica(t, old)
	var at atomic.Pointer[server]
	at.Store(old)
	client := connect(t, &redis.Options{
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, at.Load().options().Addr)
		},
	})
	o := ratelimitredis.Options{Failover: patient}
	o.Failover.Cooldown = 10 * time.Millisecond
	store := ratelimitredis.New(client, o)
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
	replicates(t, old, replica)
	if err := replica.client().SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		left(4 - i)
	}
	old.kill()
	if before := store.Fallbacks(); take(t, store, charge).States[0].Remaining != 9 || store.Fallbacks() != before+1 {
		t.Error("without a primary this process does not count by itself")
	}
	at.Store(replica)
	eventually(t, "the new primary answers", func() bool {
		free := charge
		free.Cost = 0
		before := store.Fallbacks()
		take(t, store, free)
		return store.Fallbacks() == before
	})
	left(4)
}

// A primary dies, and a Sentinel promotes its replica, while requests go on.
// None fails, and then the limits are those of the fleet again.
func TestSentinel(t *testing.T) {
	t.Parallel()
	old := startTCP(t)
	replica := startReplica(t, old)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor limits 127.0.0.1 %d 1\nsentinel down-after-milliseconds limits 3000\nsentinel failover-timeout limits 5000\n", old.port)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	watcher := startProgram(t, func(program []string) []string { return []string{program[0], file, "--sentinel"} })
	sentinel := redis.NewSentinelClient(watcher.options())
	t.Cleanup(func() { sentinel.Close() })
	eventually(t, "the Sentinel knows the replica", func() bool {
		replicas, err := sentinel.Replicas(t.Context(), "limits").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok"
	})

	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "limits", SentinelAddrs: []string{watcher.options().Addr}, ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	store := ratelimitredis.New(client, ratelimitredis.Options{
		Failover: ratelimit.FailoverOptions{Cooldown: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)},
	})
	get := newStack(t, middleware.RateLimitOptions{Store: store, Organization: policy(1e9, time.Hour)}, middleware.RouteOptions{})
	decides := func() bool {
		before := store.Fallbacks()
		if w := get(); w.Code != 200 {
			t.Errorf("got %d, want 200", w.Code)
		}
		return store.Fallbacks() == before
	}
	eventually(t, "Redis decides", decides)
	old.kill()
	eventually(t, "the replica is promoted", func() bool {
		decides()
		return field(t, replica.client(), "role") == "master"
	})
	eventually(t, "the new primary decides", decides)
}

// keysSent notes the keys and arguments of scripts.
type keysSent struct {
	*fake
	text []string
}

func (k *keysSent) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	k.text = append(k.text, fmt.Sprint(keys, args))
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
				k.fake.down = i > 97
				_, _ = s.Take(t.Context(), []ratelimit.Charge{{Policy: policy(5000, time.Second), Bucket: "a", Cost: 1}})
			}
			text = fmt.Sprint(k.text, s.Fallbacks(), s.Down())
		})
		return text
	}
	everyOption(t, sent, map[string]func(*ratelimitredis.Options){
		"Prefix":   func(o *ratelimitredis.Options) { o.Prefix = "acme:" },
		"Spread":   func(o *ratelimitredis.Options) { o.Spread = true },
		"Ahead":    func(o *ratelimitredis.Options) { o.Ahead = horizon },
		"Failover": func(o *ratelimitredis.Options) { o.Failover.Failures = 1 },
	})
	if got := sent(func(*ratelimitredis.Options) {}); !strings.HasPrefix(got, "[[{sallyport:rate}") {
		t.Errorf("got the keys %q, want them to begin with {sallyport:rate}", got)
	}
}

// everyOption fails for a row that changes nothing of what is seen, and for a
// field without a row.
func everyOption[O any](t *testing.T, seen func(set func(*O)) string, rows map[string]func(*O)) {
	t.Helper()
	usual := seen(func(*O) {})
	if again := seen(func(*O) {}); again != usual {
		t.Fatalf("without a change: got %s and %s", usual, again)
	}
	fields := reflect.TypeFor[O]()
	for _, field := range reflect.VisibleFields(fields) {
		set := rows[field.Name]
		if set == nil {
			t.Errorf("no row says what %s.%s does", fields, field.Name)
		} else if seen(set) == usual {
			t.Errorf("%s.%s has no effect", fields, field.Name)
		}
	}
	if len(rows) > fields.NumField() {
		t.Errorf("%d rows for %d fields", len(rows), fields.NumField())
	}
}
