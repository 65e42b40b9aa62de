package ratelimitredis_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// event is a decision that was admitted, at some time between these two.
type event struct{ began, ended time.Duration }

// mustHold checks that no window admits more than
// burst + floor((window+ahead)/interval).
func mustHold(t *testing.T, l ratelimit.Limit, ahead, slack time.Duration, events []event) {
	t.Helper()
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.ended, b.ended) })
	for _, first := range events {
		n := int64(0)
		for _, e := range events {
			// Both times are within the window, so the decision is.
			if e.began < first.began {
				continue
			}
			n++
			window := e.ended - first.began
			if most := l.Capacity() + int64((window+ahead+slack)/l.Interval()); n > most {
				t.Fatalf("%d units were spent within %v, want at most %d", n, window, most)
			}
		}
	}
}

// attack takes from three Stores as from three processes, in rushes and with
// pauses, and returns what was admitted.
func attack(stores []ratelimit.Store, seed uint64, l ratelimit.Limit, duration, gap, pause time.Duration) (events []event) {
	p := &ratelimit.Policy{Name: "p", Limit: l}
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range stores {
		for j := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(4*i+j)))
				for time.Since(start) < duration {
					for range random.IntN(150) {
						began := time.Since(start)
						d, err := stores[i].Take(context.Background(), []ratelimit.Charge{{Policy: p, Bucket: "b", Cost: 1}})
						if err == nil && d.Allowed {
							mu.Lock()
							events = append(events, event{began, time.Since(start)})
							mu.Unlock()
						}
						time.Sleep(time.Duration(random.Int64N(int64(gap))))
					}
					time.Sleep(time.Duration(random.Int64N(int64(pause))))
				}
			})
		}
	}
	wg.Wait()
	return events
}

func TestAheadKeepsTheBound(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			// Far more is asked for than comes back within the horizon, so a
			// unit that outlives it is one too many.
			l := ratelimit.Limit{Count: 100 + random.Int64N(400), Period: time.Second, Burst: 1 + random.Int64N(300)}
			ahead := time.Duration(2+random.IntN(20)) * time.Millisecond
			server := newFake(time.Duration(random.IntN(2000)) * time.Microsecond)
			var stores []ratelimit.Store
			for range 3 {
				stores = append(stores, ratelimitredis.New(server, ratelimitredis.Options{Ahead: ahead, Failover: patient}))
			}
			fills := l.Interval() * time.Duration(l.Burst)
			events := attack(stores, seed, l, 10*fills, 100*time.Microsecond, 3*fills)
			for i, s := range stores {
				if n := fallbacks(s.(*ratelimitredis.Store)); n > 0 {
					t.Errorf("seed %d: process %d made %d decisions without the server", seed, i, n)
				}
			}
			mustHold(t, l, ahead, time.Microsecond, events)
		})
	}
}

// The same on Redis itself, in real time. A slow machine makes this test
// weaker, and not wrong.
func TestAheadKeepsTheBoundOnRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Connect(t, redistest.Options(t))
	const ahead = 20 * time.Millisecond
	o := ratelimitredis.Options{Prefix: redistest.OwnPrefix(t, client), Ahead: ahead, Failover: patient}
	var stores []ratelimit.Store
	for range 3 {
		stores = append(stores, ratelimitredis.New(redistest.Connect(t, redistest.Options(t)), o))
	}
	l := ratelimit.Limit{Count: 500, Period: time.Second, Burst: 300}
	events := attack(stores, 1, l, 3*time.Second, 200*time.Microsecond, time.Second)
	// The clock of Redis and that of this process may differ in a second by as
	// much as NTP corrects.
	mustHold(t, l, ahead, 2*time.Millisecond, events)
	t.Logf("%d units were spent", len(events))
}
