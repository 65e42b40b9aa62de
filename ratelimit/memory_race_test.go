package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// All goroutines charge the same few buckets, one at a time and several, in any
// order. There are units for all, so none is denied and every unit is charged.
func TestMemoryRaceLosesNothing(t *testing.T) {
	store := ratelimit.NewMemory()
	p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 160_000}}
	var spent [4]atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			charges := make([]ratelimit.Charge, 0, ratelimit.MaxCharges)
			for range 20_000 {
				charges = charges[:0]
				for _, bucket := range random.Perm(len(spent))[:1+random.IntN(3)] {
					cost := random.Int64N(3)
					charges = append(charges, ratelimit.Charge{Policy: p, Bucket: names[bucket], Cost: cost})
					spent[bucket].Add(cost)
				}
				if d, err := store.Take(context.Background(), charges); err != nil || !d.Allowed {
					t.Errorf("%v was denied: %+v, %v", charges, d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range spent {
		left := take(t, store, ratelimit.Charge{Policy: p, Bucket: names[i]}).States[0].Remaining
		if want := p.Limit.Burst - spent[i].Load(); left != want {
			t.Errorf("bucket %d: %d remain, want %d", i, left, want)
		}
	}
}

// Each new bucket is used by four goroutines and admits one of them.
func TestMemoryRaceForNewBuckets(t *testing.T) {
	store, p := ratelimit.NewMemory(), policy("once", "1-D")
	var admitted atomic.Int64
	var wg sync.WaitGroup
	const buckets = 50_000
	for range 4 {
		wg.Go(func() {
			charges := []ratelimit.Charge{{Policy: p, Cost: 1}}
			for _, name := range names[:buckets] {
				charges[0].Bucket = name
				if d, _ := store.Take(context.Background(), charges); d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != buckets {
		t.Errorf("%d admitted, want one from each of %d buckets", got, buckets)
	}
}

// Buckets replace each other beside one that is used all the time and has the
// most debt, so it is never forgotten.
func TestMemoryRaceWithReplacedBuckets(t *testing.T) {
	store := ratelimit.NewMemorySize(1)
	tight := &ratelimit.Policy{Name: "tight", Limit: ratelimit.Limit{Count: 1, Period: 1000 * time.Hour, Burst: 500}}
	// The others always have less debt than one unit of the tight one.
	light := &ratelimit.Policy{Name: "light", Limit: ratelimit.Limit{Count: 1_000_000, Period: time.Hour}}
	take(t, store, ratelimit.Charge{Policy: tight, Bucket: "org", Cost: 100})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			charges := []ratelimit.Charge{{Policy: light, Cost: 1}, {Policy: tight, Bucket: "org", Cost: 1}}
			if i%2 == 0 {
				charges[0], charges[1] = charges[1], charges[0]
			}
			for n := range 1_000 {
				charges[(i+1)%2].Bucket = names[i*1000+n]
				d, err := store.Take(context.Background(), charges[:1+n%2])
				if err != nil {
					t.Error(err)
				}
				if d.Allowed && (i%2 == 0 || n%2 == 1) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != 400 {
		t.Errorf("%d were admitted after 100 of 500, want 400", got)
	}
}
