package ratelimitredis_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

const racers = 64

// Two Stores, as in two processes, admit together what one limit does.
func TestTwoProcesses(t *testing.T) {
	prefix := redistest.OwnPrefix(t, redistest.Connect(t, redistest.Options(t)))
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		client := redistest.Connect(t, redistest.Options(t))
		store := patientWith(t, client, ratelimitredis.Options{Prefix: prefix})
		for range racers {
			wg.Go(func() {
				for range 10 {
					d, err := store.Take(t.Context(), []ratelimit.Charge{{Policy: policy(100, time.Hour), Bucket: "b", Cost: 1}})
					if err != nil {
						t.Error(err)
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := admitted.Load(); n != 100 {
		t.Errorf("two processes of %d goroutines admitted %d of a limit of 100", racers, n)
	}
}

// Redis loses its scripts again and again, and no decision is lost with them.
func TestScriptFlush(t *testing.T) {
	client := redistest.Start(t).Client()
	store := patientStore(t, client)
	const units = 1_000_000
	p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1, Period: time.Hour, Burst: units}}
	var taken, denied atomic.Int64
	flushed := make(chan struct{}) // closed after ten times
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(flushed)
		for range 10 {
			// Some charges between two flushes.
			for before := taken.Load(); taken.Load() < before+racers; {
				<-time.After(time.Millisecond)
			}
			if err := client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		}
	})
	for range racers {
		wg.Go(func() {
			for {
				d, err := store.Take(t.Context(), []ratelimit.Charge{{Policy: p, Bucket: "b", Cost: 1}})
				if err != nil || !d.Allowed {
					denied.Add(1)
				}
				taken.Add(1)
				select {
				case <-flushed:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	left := take(t, store, ratelimit.Charge{Policy: p, Bucket: "b"}).States[0].Remaining
	if denied.Load() > 0 || left != units-taken.Load() {
		t.Errorf("%d of %d charges were denied or failed, %d of %d units left", denied.Load(), taken.Load(), left, units)
	}
}

type (
	server = redistest.Server
	proxy  = redistest.Proxy
)

// patient leaves Redis more time than a busy machine needs.
var patient = ratelimit.FailoverOptions{Timeout: redistest.Patience, Logger: slog.New(slog.DiscardHandler)}

// patientStore has its own prefix. The test fails if it decides without Redis.
func patientStore(t testing.TB, client redis.UniversalClient) *ratelimitredis.Store {
	return patientWith(t, client, ratelimitredis.Options{Prefix: redistest.OwnPrefix(t, client)})
}

func patientWith(t testing.TB, client redis.Scripter, o ratelimitredis.Options) *ratelimitredis.Store {
	o.Failover = patient
	s := ratelimitredis.New(client, o)
	t.Cleanup(func() {
		if n := fallbacks(s); n > 0 {
			t.Errorf("%d decisions were made without Redis", n)
		}
	})
	return s
}

// connected returns a client of the Redis that tests share, and a patientStore.
func connected(t testing.TB) (client *redis.Client, prefix string, store *ratelimitredis.Store) {
	client = redistest.Connect(t, redistest.Options(t))
	prefix = redistest.OwnPrefix(t, client)
	return client, prefix, patientWith(t, client, ratelimitredis.Options{Prefix: prefix})
}

// named returns a policy of so many an hour.
func named(name string, count int64) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.Limit{Count: count, Period: time.Hour}}
}

func policy(count int64, period time.Duration) *ratelimit.Policy {
	return &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: count, Period: period}}
}

func take(t testing.TB, s ratelimit.Store, charges ...ratelimit.Charge) ratelimit.Decision {
	t.Helper()
	d, err := s.Take(t.Context(), charges)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// scriptCalls returns how many scripts the server has run.
func scriptCalls(t testing.TB, client *redis.Client) int {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, name := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		var calls int // stays 0 where there is none
		_, _ = fmt.Sscanf(info["Commandstats"][name], "calls=%d,", &calls)
		sum += calls
	}
	return sum
}
