package bench_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	bench "github.com/sallyport-go/sallyport/newest/bench"
)

// BenchmarkProcessors serves requests of one organization, and of a thousand, from as many goroutines as there are
// processors:
//
//	go test -run '^$' -bench Processors -cpu 1,2,4,8 -count 5
//
// What a path gains from n processors is its ns/op with one, divided by that with n.
func BenchmarkProcessors(b *testing.B) {
	for _, peer := range bench.Peers() {
		if peer.Name != "sallyport" && peer.Name != "hand-lru" && peer.Name != "bare" {
			continue
		}
		for _, path := range []struct {
			name   string
			send   bench.Request
			fresh  bool
			status int
		}{
			{"get", list, false, http.StatusOK},
			{"post-fresh", create, true, http.StatusCreated},
			{"post-replay", create, false, http.StatusCreated},
		} {
			for _, organizations := range []int{1, 1000} {
				b.Run(fmt.Sprintf("peer=%s/path=%s/organizations=%d", peer.Name, path.name, organizations), func(b *testing.B) {
					server, headers := peer.New(world().Limited(1e9, world().Period)), make([]string, organizations)
					key, number := "", atomic.Uint64{}
					if path.send.Method == http.MethodPost {
						key = (&keyNames{}).next()
					}
					serve := server.Loop(path.send)
					for i := range headers {
						headers[i] = authorization(world().Tokens[i])
						serve(headers[i], key)
					}
					runtime.GC()
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						serve, keys, key := server.Loop(path.send), keyNames{n: number.Add(1) << 40}, key
						for i := rand.IntN(organizations); pb.Next(); i++ {
							if path.fresh {
								key = keys.next()
							}
							if got := serve(headers[i%organizations], key); got != path.status {
								b.Errorf("got %d, want %d", got, path.status)
								return
							}
						}
					})
				})
			}
		}
	}
}
