package ratelimitredis_test

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/sallyport-go/sallyport/.ci/redistest"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// distant returns an address that leads to the server with a delay of half a
// millisecond each way, as between two data centers of one region.
func distant(b *testing.B, addr string) string {
	const oneWay = 500 * time.Microsecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	type parcel struct {
		due   time.Time
		bytes []byte
	}
	carry := func(from, to net.Conn) {
		parcels := make(chan parcel, 1024)
		go func() {
			defer close(parcels)
			for {
				bytes := make([]byte, 16<<10)
				n, err := from.Read(bytes)
				if err != nil {
					return
				}
				parcels <- parcel{time.Now().Add(oneWay), bytes[:n]}
			}
		}()
		for p := range parcels {
			<-time.After(time.Until(p.due))
			to.Write(p.bytes)
		}
		to.Close()
	}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", addr)
			if err != nil {
				near.Close()
				continue
			}
			go carry(near, far)
			go carry(far, near)
		}
	}()
	return listener.Addr().String()
}

// callers is also the number of connections, so that none waits for a
// connection.
const callers = 64

func benchmarkDistant(b *testing.B, limits int, store func(*redis.Client) ratelimit.Store) {
	o := redistest.Start(b).Options()
	o.Addr = distant(b, o.Addr)
	o.PoolSize = callers
	s := store(redistest.Connect(b, o))
	p := policy(1_000_000, time.Second)
	var failed atomic.Int64
	b.SetParallelism(callers / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		charges := []ratelimit.Charge{{Policy: p, Bucket: "a", Cost: 1}, {Policy: p, Bucket: "b", Cost: 1}, {Policy: p, Bucket: "c", Cost: 1}}
		for pb.Next() {
			if _, err := s.Take(b.Context(), charges[:limits]); err != nil {
				failed.Add(1)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	if n := failed.Load(); n > 0 {
		b.Errorf("%d failed", n)
	}
}

func ours(c *redis.Client) ratelimit.Store {
	return ratelimitredis.New(c, ratelimitredis.Options{Failover: patient})
}

func ofUlule(c *redis.Client) ratelimit.Store {
	store, err := ulule.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "ulule"})
	if err != nil {
		panic(err)
	}
	return ratelimit.FromLimiter(store)
}

// 64 goroutines take from a Redis that is 1 ms away, each from one bucket or
// from three at once. Compare with ulule's store, which adds to a counter for
// one and asks six times for three.
func BenchmarkDistantOne(b *testing.B)        { benchmarkDistant(b, 1, ours) }
func BenchmarkDistantOneUlule(b *testing.B)   { benchmarkDistant(b, 1, ofUlule) }
func BenchmarkDistantThree(b *testing.B)      { benchmarkDistant(b, 3, ours) }
func BenchmarkDistantThreeUlule(b *testing.B) { benchmarkDistant(b, 3, ofUlule) }

// A remembered denial costs no command.
func BenchmarkKnownDenial(b *testing.B) {
	store := patientStore(b, redistest.Connect(b, redistest.Options(b)))
	charges := []ratelimit.Charge{{Policy: policy(1, time.Hour), Bucket: "b", Cost: 1}}
	for range 2 {
		store.Take(b.Context(), charges)
	}
	b.ReportAllocs()
	for b.Loop() {
		store.Take(b.Context(), charges)
	}
}
