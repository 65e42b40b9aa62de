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
	charges := make([][]ratelimit.Charge, keys)
	for i, bucket := range bucketNames(keys) {
		charges[i] = []ratelimit.Charge{{Policy: roomy, Bucket: bucket, Cost: 1}}
		store.Take(context.Background(), charges[i])
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(keys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		store.Take(context.Background(), charges[order[i%keys]])
	}
}

func BenchmarkMemoryHotKey(b *testing.B)   { benchmarkKeys(b, 1) }
func BenchmarkMemory1kKeys(b *testing.B)   { benchmarkKeys(b, 1_000) }
func BenchmarkMemory100kKeys(b *testing.B) { benchmarkKeys(b, 100_000) }

func BenchmarkMemoryDenial(b *testing.B) {
	store := ratelimit.NewMemory()
	once := &ratelimit.Policy{Name: "once", Limit: ratelimit.Limit{Count: 1, Period: 24 * time.Hour}}
	charges := []ratelimit.Charge{{Policy: once, Bucket: "org", Cost: 1}}
	store.Take(context.Background(), charges)
	b.ReportAllocs()
	for b.Loop() {
		store.Take(context.Background(), charges)
	}
}

func BenchmarkMemoryThreeTakes(b *testing.B) {
	store := ratelimit.NewMemory()
	charges := []ratelimit.Charge{
		{Policy: roomy, Bucket: "org", Cost: 1},
		{Policy: roomy, Bucket: "key", Cost: 1},
		{Policy: roomy, Bucket: "route", Cost: 1},
	}
	b.ReportAllocs()
	for b.Loop() {
		store.Take(context.Background(), charges)
	}
}

// Run with -cpu 1,2 to see how decisions scale.
func BenchmarkMemoryParallel1kKeys(b *testing.B) {
	const keys = 1_000
	store := ratelimit.NewMemory()
	names := bucketNames(keys)
	b.RunParallel(func(pb *testing.PB) {
		charges := []ratelimit.Charge{{Policy: roomy, Cost: 1}}
		for i := rand.IntN(keys); pb.Next(); i++ {
			charges[0].Bucket = names[i%keys]
			store.Take(context.Background(), charges)
		}
	})
}

func BenchmarkMemoryParallelDenial(b *testing.B) {
	store := ratelimit.NewMemory()
	once := &ratelimit.Policy{Name: "once", Limit: ratelimit.Limit{Count: 1, Period: 24 * time.Hour}}
	b.RunParallel(func(pb *testing.PB) {
		charges := []ratelimit.Charge{{Policy: once, Bucket: "org", Cost: 1}}
		for pb.Next() {
			store.Take(context.Background(), charges)
		}
	})
}
