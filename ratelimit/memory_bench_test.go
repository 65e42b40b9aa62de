package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// roomy never denies while a benchmark runs, and never refills either.
var roomy = &ratelimit.Policy{Name: "roomy", Limit: ratelimit.Limit{Count: 1e6, Period: time.Second, Burst: 1 << 40}}

func bucketNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("org_%016x", i)
	}
	return names
}

func benchmarkKeys(b *testing.B, keys int) {
	store := ratelimit.NewMemory()
	takes := make([][]ratelimit.Take, keys)
	for i, bucket := range bucketNames(keys) {
		takes[i] = []ratelimit.Take{{Policy: roomy, Bucket: bucket, Cost: 1}}
		store.Take(context.Background(), takes[i])
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		store.Take(context.Background(), takes[order[i%keys]])
	}
}

func BenchmarkMemoryHotKey(b *testing.B)   { benchmarkKeys(b, 1) }
func BenchmarkMemory1kKeys(b *testing.B)   { benchmarkKeys(b, 1_000) }
func BenchmarkMemory100kKeys(b *testing.B) { benchmarkKeys(b, 100_000) }

func BenchmarkMemoryDenial(b *testing.B) {
	store := ratelimit.NewMemory()
	once := &ratelimit.Policy{Name: "once", Limit: ratelimit.Limit{Count: 1, Period: 24 * time.Hour}}
	takes := []ratelimit.Take{{Policy: once, Bucket: "org", Cost: 1}}
	store.Take(context.Background(), takes)
	b.ReportAllocs()
	for b.Loop() {
		store.Take(context.Background(), takes)
	}
}

func BenchmarkMemoryThreeTakes(b *testing.B) {
	store := ratelimit.NewMemory()
	takes := []ratelimit.Take{
		{Policy: roomy, Bucket: "org", Cost: 1},
		{Policy: roomy, Bucket: "key", Cost: 1},
		{Policy: roomy, Bucket: "route", Cost: 1},
	}
	b.ReportAllocs()
	for b.Loop() {
		store.Take(context.Background(), takes)
	}
}

// Run with -cpu 1,2 to see how decisions scale.
func BenchmarkMemoryParallel1kKeys(b *testing.B) {
	const keys = 1_000
	store := ratelimit.NewMemory()
	names := bucketNames(keys)
	b.RunParallel(func(pb *testing.PB) {
		takes := []ratelimit.Take{{Policy: roomy, Cost: 1}}
		for i := rand.IntN(keys); pb.Next(); i++ {
			takes[0].Bucket = names[i%keys]
			store.Take(context.Background(), takes)
		}
	})
}

func BenchmarkMemoryParallelDenial(b *testing.B) {
	store := ratelimit.NewMemory()
	once := &ratelimit.Policy{Name: "once", Limit: ratelimit.Limit{Count: 1, Period: 24 * time.Hour}}
	b.RunParallel(func(pb *testing.PB) {
		takes := []ratelimit.Take{{Policy: once, Bucket: "org", Cost: 1}}
		for pb.Next() {
			store.Take(context.Background(), takes)
		}
	})
}
