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

// Everybody takes from the same few buckets, one at a time and several, in any
// order. There is enough for all, so nobody is denied and every unit is charged.
func TestRaceLosesNothing(t *testing.T) {
	store := ratelimit.NewMemory()
	p := &ratelimit.Policy{Name: "p", Limit: ratelimit.Limit{Count: 1, Period: time.Hour, Burst: 400_000}}
	var spent [4]atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			takes := make([]ratelimit.Take, 0, ratelimit.MaxTakes)
			for range 50_000 {
				takes = takes[:0]
				for _, bucket := range random.Perm(len(spent))[:1+random.IntN(3)] {
					cost := random.Int64N(3)
					takes = append(takes, ratelimit.Take{Policy: p, Bucket: names[bucket], Cost: cost})
					spent[bucket].Add(cost)
				}
				if d, err := store.Take(context.Background(), takes); err != nil || !d.Allowed {
					t.Errorf("%v was denied: %+v, %v", takes, d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range spent {
		left := take(t, store, ratelimit.Take{Policy: p, Bucket: names[i]}).States[0].Remaining
		if want := p.Limit.Burst - spent[i].Load(); left != want {
			t.Errorf("bucket %d: %d remain, want %d", i, left, want)
		}
	}
}

func TestRaceForOneBucket(t *testing.T) {
	store, p := ratelimit.NewMemory(), policy("live", "100-D")
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 100 {
				if d, _ := store.Take(context.Background(), []ratelimit.Take{{Policy: p, Bucket: "org", Cost: 1}}); d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := admitted.Load(); got != 100 {
		t.Errorf("%d of 6400 were admitted, want 100", got)
	}
}

// Several callers meet at each new bucket, which admits one of them.
func TestRaceForNewBuckets(t *testing.T) {
	store, p := ratelimit.NewMemory(), policy("once", "1-D")
	var admitted atomic.Int64
	var wg sync.WaitGroup
	const buckets = 50_000
	for range 4 {
		wg.Go(func() {
			takes := []ratelimit.Take{{Policy: p, Cost: 1}}
			for _, name := range names[:buckets] {
				takes[0].Bucket = name
				if d, _ := store.Take(context.Background(), takes); d.Allowed {
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

// Callers bring in the same few buckets in different orders, so that they compete
// for keys and for places at once.
func TestRaceForPlaces(t *testing.T) {
	p := policy("once", "1-D")
	for round := range 3_000 {
		store := ratelimit.NewMemorySize(1) // seven places
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 6 {
					takes := []ratelimit.Take{{Policy: p, Bucket: names[(n+i*(round%6))%6], Cost: 1}}
					if d, _ := store.Take(context.Background(), takes); d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := admitted.Load(); got != 6 {
			t.Fatalf("%d admitted, want one from each of 6 buckets", got)
		}
	}
}

// Buckets that are gone before they are used again are fresh each time, and never
// get the debt of those that came into their places.
func TestRaceNeverReadsAnother(t *testing.T) {
	store := ratelimit.NewMemorySize(1)
	heavy := policy("heavy", "1-D")
	light := &ratelimit.Policy{Name: "light", Limit: ratelimit.Limit{Count: 1_000_000, Period: time.Second, Burst: 10_000_000}}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			takes := []ratelimit.Take{{Cost: 1}}
			for n := range 50_000 {
				takes[0].Policy, takes[0].Bucket = light, names[n%4]
				if i%2 == 0 {
					takes[0].Policy, takes[0].Bucket = heavy, names[i*100_000+n]
				}
				if d, err := store.Take(context.Background(), takes); err != nil || !d.Allowed {
					t.Errorf("%s was denied: %+v, %v", takes[0].Policy.Name, d, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Takes of new buckets in a Memory with no room for them must not push each other
// out for ever.
func TestMemoryManyNewBuckets(t *testing.T) {
	store, p := ratelimit.NewMemorySize(1), policy("few", "4-D")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for range 2_000 {
				takes := make([]ratelimit.Take, ratelimit.MaxTakes)
				for j := range takes {
					takes[j] = ratelimit.Take{Policy: p, Bucket: names[random.IntN(1000)], Cost: 1}
				}
				if _, err := store.Take(context.Background(), takes); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// Buckets come and go under the feet of one that is hammered and owes most, and so
// is never forgotten.
func TestMemoryRaceWithComingAndGoing(t *testing.T) {
	store := ratelimit.NewMemorySize(1)
	tight := &ratelimit.Policy{Name: "tight", Limit: ratelimit.Limit{Count: 1, Period: 1000 * time.Hour, Burst: 500}}
	// The others always owe less than one unit of the tight one.
	light := &ratelimit.Policy{Name: "light", Limit: ratelimit.Limit{Count: 1_000_000, Period: time.Hour}}
	take(t, store, ratelimit.Take{Policy: tight, Bucket: "org", Cost: 100})
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			takes := []ratelimit.Take{{Policy: light, Cost: 1}, {Policy: tight, Bucket: "org", Cost: 1}}
			if i%2 == 0 {
				takes[0], takes[1] = takes[1], takes[0]
			}
			for n := range 1_000 {
				takes[(i+1)%2].Bucket = names[i*1000+n]
				d, err := store.Take(context.Background(), takes[:1+n%2])
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
