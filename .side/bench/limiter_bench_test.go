package bench_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	bench "github.com/sallyport-go/sallyport/side/bench"
)

func bucketNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("org_%016x", i)
	}
	rand.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// BenchmarkLimiter is one decision; -cpu 1,2 shows how they scale. bytes/key is
// what the limiter keeps for each key.
func BenchmarkLimiter(b *testing.B) {
	rows := []struct {
		name  string
		keys  int
		limit int
		want  bool
	}{
		{"hot", 1, 1e9, true},
		{"1k-keys", 1_000, 1e9, true},
		{"100k-keys", 100_000, 1e9, true},
		{"denial", 1, 1, false},
	}
	for _, row := range rows {
		names := bucketNames(row.keys)
		for _, l := range bench.Limiters() {
			// A benchmark's function is called again and again for larger b.N.
			var ask func() func(string) bool
			var bytes int64
			b.Run("peer="+l.Name+"/path=take-"+row.name, func(b *testing.B) {
				if ask == nil {
					before := heap()
					ask = l.New(row.limit, time.Hour, row.keys)
					take := ask()
					for _, name := range names {
						take(name)
					}
					bytes = heap() - before
				}
				if got := ask()(names[0]); got != row.want {
					b.Fatalf("admitted: %v, want %v", got, row.want)
				}
				b.ReportAllocs()
				b.ResetTimer()
				spent := cpuTime()
				b.RunParallel(func(pb *testing.PB) {
					take := ask()
					for i := rand.IntN(len(names)); pb.Next(); i++ {
						take(names[i%len(names)])
					}
				})
				b.ReportMetric(float64(cpuTime()-spent)/float64(b.N), "cpu-ns/op")
				if row.keys >= 100_000 {
					b.ReportMetric(float64(bytes)/float64(row.keys), "bytes/key")
				}
			})
		}
	}
}

// heap is how many bytes live.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestCorrectLimiter asks whether an exhausted key is still denied after a
// flood of others.
func TestCorrectLimiter(t *testing.T) {
	others := bucketNames(200_000)
	for _, l := range bench.Limiters() {
		take := l.New(1, time.Hour, len(others)+1)()
		if !take("debtor") || take("debtor") {
			t.Fatalf("%s does not keep the limit", l.Name)
		}
		for _, name := range others {
			take(name)
		}
		t.Logf("%-12s an exhausted key is denied after 200,000 others: %v", l.Name, !take("debtor"))
	}
}
