package ratelimitredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// A decision from units in hand beside one of ratelimit.Memory, of one charge
// and of three.
func BenchmarkAheadOne(b *testing.B)    { benchmarkAhead(b, 1, ahead) }
func BenchmarkMemoryOne(b *testing.B)   { benchmarkAhead(b, 1, memory) }
func BenchmarkAheadThree(b *testing.B)  { benchmarkAhead(b, 3, ahead) }
func BenchmarkMemoryThree(b *testing.B) { benchmarkAhead(b, 3, memory) }

// ahead has a long horizon, so that no units lapse on a busy machine.
func ahead(c *redis.Client) ratelimit.Store {
	return ratelimitredis.New(c, ratelimitredis.Options{Ahead: time.Second, Failover: patient})
}

func memory(*redis.Client) ratelimit.Store { return ratelimit.NewMemory() }

func benchmarkAhead(b *testing.B, limits int, store func(*redis.Client) ratelimit.Store) {
	s := store(redistest.Start(b).Client())
	p := &ratelimit.Policy{Name: "roomy", Limit: ratelimit.Limit{Count: 1e6, Period: time.Second, Burst: 1 << 40}}
	charges := []ratelimit.Charge{{Policy: p, Bucket: "org_1", Cost: 1}, {Policy: p, Bucket: "key_1", Cost: 1}, {Policy: p, Bucket: "route", Cost: 1}}[:limits]
	// Until the rate is known each decision is a trip.
	for start := time.Now(); time.Since(start) < 2*time.Second; {
		s.Take(b.Context(), charges)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Take(b.Context(), charges)
	}
}
