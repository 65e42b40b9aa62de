package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func policy(name, limit string) *ratelimit.Policy {
	return &ratelimit.Policy{Name: name, Limit: ratelimit.MustParse(limit)}
}

// take fails the test on an error.
func take(t *testing.T, s ratelimit.Store, charges ...ratelimit.Charge) ratelimit.Decision {
	t.Helper()
	d, err := s.Take(context.Background(), charges)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	return d
}

func takeOne(t *testing.T, s ratelimit.Store, p *ratelimit.Policy, bucket string) ratelimit.Decision {
	t.Helper()
	return take(t, s, ratelimit.Charge{Policy: p, Bucket: bucket, Cost: 1})
}

// left reads a bucket.
func left(t *testing.T, s ratelimit.Store, p *ratelimit.Policy, bucket string) int64 {
	t.Helper()
	return take(t, s, ratelimit.Charge{Policy: p, Bucket: bucket}).States[0].Remaining
}

func exhaust(t *testing.T, s ratelimit.Store, p *ratelimit.Policy, bucket string) (admitted int) {
	t.Helper()
	for takeOne(t, s, p, bucket).Allowed {
		admitted++
	}
	return admitted
}

func TestMemoryAllocatesNothing(t *testing.T) {
	store := &ratelimit.Memory{}
	large, once := policy("large", "1000000-S"), policy("once", "1-D")
	takeOne(t, store, once, "org")
	n := 0
	for _, tt := range []struct {
		name string
		call func()
	}{
		{"one charge", func() {
			store.Take(context.Background(), []ratelimit.Charge{{Policy: large, Bucket: "org", Cost: 1}})
		}},
		{"three charges", func() {
			store.Take(context.Background(), []ratelimit.Charge{
				{Policy: large, Bucket: "a", Cost: 1}, {Policy: large, Bucket: "b", Cost: 1}, {Policy: large, Bucket: "c", Cost: 1},
			})
		}},
		{"a denial", func() {
			store.Take(context.Background(), []ratelimit.Charge{{Policy: once, Bucket: "org", Cost: 1}})
		}},
		{"a cost of 0", func() {
			store.Take(context.Background(), []ratelimit.Charge{{Policy: large, Bucket: "org"}})
		}},
		{"new buckets", func() {
			n++
			store.Take(context.Background(), []ratelimit.Charge{{Policy: once, Bucket: names[n%len(names)], Cost: 1}})
		}},
	} {
		if got := testing.AllocsPerRun(1000, tt.call); got != 0 {
			t.Errorf("%s allocates %v times", tt.name, got)
		}
	}
}

var names = bucketNames(200_000)

// The clock stands still, so no unit comes back. The exhausted buckets stay
// only because others with less debt are forgotten first.
func TestMemoryFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20_000
		before := heap()
		store, p := ratelimit.NewMemorySize(keys), policy("live", "10-M")
		for _, name := range names[:1000] {
			exhaust(t, store, p, "victim "+name)
		}
		for _, name := range names {
			takeOne(t, store, p, name)
		}
		for _, name := range names[:1000] {
			if takeOne(t, store, p, "victim "+name).Allowed {
				t.Errorf("the exhausted bucket %q was forgotten", name)
			}
		}
		if grown := heap() - before; grown > 40*keys {
			t.Errorf("%d buckets in a Memory for %d take %d bytes, want at most 40 for each", len(names), keys, grown)
		}
		runtime.KeepAlive(store)
	})
}

// As many buckets as the Memory is made for, all of them exhausted. By chance, one
// in many thousands finds its sixteen places taken, and another is dropped.
func TestMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keys := range []int{100_000, 100} {
			store, p := ratelimit.NewMemorySize(keys), policy("once", "1-D")
			for round := range 4 {
				if round == 2 {
					time.Sleep(day) // and the places are free again
				}
				admitted := 0
				for _, name := range names[round/2*keys:][:keys] {
					if takeOne(t, store, p, name).Allowed {
						admitted++
					}
				}
				if want := (1 - round%2) * keys; admitted < want || admitted > want+keys/10_000 {
					t.Errorf("round %d: %d of %d were admitted, want all, and the next time none", round, admitted, keys)
				}
			}
		}
	})
}

// A new bucket replaces the one with the least debt, also where the same
// decision charges that one: both keep what they were charged. Or the Memory
// grows, and all of them move.
func TestMemoryNinthBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy("live", "10-M")
		charge := func(bucket string, cost int64) ratelimit.Charge {
			return ratelimit.Charge{Policy: p, Bucket: bucket, Cost: cost}
		}
		debts, twos := []int64{5, 3, 9, 1, 7, 2, 8, 6}, slices.Repeat([]int64{2}, 8)
		grown := map[string]int64{"a": 6, "b": 6, "c": 8, "d": 8, "h": 8, "new": 8}
		for _, tt := range []struct {
			size    int
			spent   []int64 // of a to h
			charges []ratelimit.Charge
			left    map[string]int64
		}{
			{1, debts, []ratelimit.Charge{charge("new", 4)},
				map[string]int64{"a": 5, "b": 7, "c": 1, "d": 10, "e": 3, "f": 8, "g": 2, "h": 4, "new": 6}},
			{1, debts, []ratelimit.Charge{charge("new", 4), charge("d", 3)},
				map[string]int64{"new": 6, "d": 6, "f": 10, "b": 7}}, // d, which came back, and f for it
			{32, twos, []ratelimit.Charge{charge("new", 2), charge("a", 2), charge("b", 2)}, grown},
			{32, twos, []ratelimit.Charge{charge("a", 2), charge("new", 2), charge("b", 2)}, grown},
			{32, twos, []ratelimit.Charge{charge("a", 2), charge("b", 2), charge("new", 2)}, grown},
		} {
			store := ratelimit.NewMemorySize(tt.size)
			for i, cost := range tt.spent {
				take(t, store, charge(string(rune('a'+i)), cost))
			}
			take(t, store, tt.charges...)
			for bucket, want := range tt.left {
				if got := left(t, store, p, bucket); got != want {
					t.Errorf("%d places, %v: bucket %s: %d remain, want %d", tt.size, tt.charges, bucket, got, want)
				}
			}
		}
	})
}

// The room is that for the buckets in debt at one time, however many there were.
func TestMemoryGrowsWithDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := &ratelimit.Memory{}, policy("live", "1-S")
		for _, tt := range []struct{ atOnce, rounds, least, most int }{
			{1, 5000, 512, 512},
			{2000, 5, 2000, 8000},
			{1, 5000, 2000, 8000}, // it keeps its room
			{100_000, 2, 100_000, 200_200},
			{200_000, 1, 200_000, 200_200}, // 3.2 MB
		} {
			for round := range tt.rounds {
				for _, name := range names[round*tt.atOnce:][:tt.atOnce] {
					takeOne(t, store, p, name)
				}
				time.Sleep(time.Second)
			}
			if got := ratelimit.Places(store); got < tt.least || got > tt.most {
				t.Errorf("after %d buckets in debt at a time: room for %d, want %d to %d", tt.atOnce, got, tt.least, tt.most)
			}
		}
	})
}

// A call that has read the clock before others and got the lock after them does
// not go back behind what they have done.
func TestMemoryLateCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p := ratelimit.NewMemorySize(1), policy("live", "1-S")
		takeOne(t, store, p, "org")
		time.Sleep(time.Second)
		for _, name := range names[:8] {
			takeOne(t, store, p, name) // in all eight places
		}
		ratelimit.Late(store, 900*time.Millisecond, func() { takeOne(t, store, p, "org") })
		time.Sleep(500 * time.Millisecond)
		if takeOne(t, store, p, "org").Allowed {
			t.Error("two units were admitted within 500 ms, want one in a second")
		}
	})
}

// A Memory that began outside a bubble counts inside it, where the clock is
// another. What shares a shard with a bucket from outside would wait for it.
func TestMemoryOlderThanItsBubble(t *testing.T) {
	store, p := &ratelimit.Memory{}, policy("live", "10-S")
	_, _ = store.Take(t.Context(), nil) // which begins it
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			if got := exhaust(t, store, p, "org"); got != 10 {
				t.Errorf("%d were admitted, want 10", got)
			}
			time.Sleep(time.Second)
		}
	})
}

// In two full sets the bucket with the least debt is forgotten: always if the
// new bucket belongs to both, and in half of the cases if it belongs to one of
// them only. Chance makes that three quarters; the first set alone would make
// it half.
func TestMemoryForgetsTheLeastDebtOfTwoSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &ratelimit.Policy{Name: "live", Limit: ratelimit.Limit{Count: 1000, Period: time.Hour}}
		const rounds = 1000
		leasts := 0
		for range rounds {
			store := ratelimit.NewMemorySize(8)
			var kept []string
			for _, name := range names[:100] {
				take(t, store, ratelimit.Charge{Policy: p, Bucket: name, Cost: 100})
			}
			for _, name := range names[:100] {
				if left(t, store, p, name) == 900 {
					take(t, store, ratelimit.Charge{Policy: p, Bucket: name, Cost: int64(1 + len(kept))})
					kept = append(kept, name)
				}
			}
			if len(kept) != 16 {
				t.Fatalf("%d of 100 buckets are kept in 16 places", len(kept))
			}
			take(t, store, ratelimit.Charge{Policy: p, Bucket: "new", Cost: 500})
			forgotten := 0
			for i, name := range kept {
				if left(t, store, p, name) == 1000 {
					forgotten++
					if i == 0 {
						leasts++
					}
				}
			}
			if got := left(t, store, p, "new"); forgotten != 1 || got != 500 {
				t.Fatalf("a new bucket made %d others forgotten and has %d of 1000 left, want one and 500", forgotten, got)
			}
		}
		if leasts < rounds*65/100 {
			t.Errorf("in %d of %d rounds the least debt of all was forgotten, want about 750", leasts, rounds)
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what has a finalizer, or lay in a pool, goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func bucketNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("org_%016x", i)
	}
	return names
}

// All goroutines charge the same few buckets, one at a time and several, in any
// order. There are units for all, so none is denied and every unit is charged.
func TestMemoryRaceLosesNothing(t *testing.T) {
	store := &ratelimit.Memory{}
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
		if got, want := left(t, store, p, names[i]), p.Limit.Burst-spent[i].Load(); got != want {
			t.Errorf("bucket %d: %d remain, want %d", i, got, want)
		}
	}
}
