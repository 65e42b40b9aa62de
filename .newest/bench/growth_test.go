package bench_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

var sizes = []int{1e3, 1e4, 1e5, 1e6}

// a grown store is asked for one of the n things it holds.
type grown struct {
	name string
	make func(n int) (ask func(i int), keep any)
	own  func(n int) int // bytes that the benchmark itself keeps for them
}

func digest(i int) (d [32]byte) {
	// Spread over all bytes, as a hash is.
	r := rand.New(rand.NewPCG(uint64(i), 1))
	for at := 0; at < len(d); at += 8 {
		binary.LittleEndian.PutUint64(d[at:], r.Uint64())
	}
	return d
}

// answered is what idem keeps for a create: the length of what the path
// benchmarks store.
const answered = 300

func remember(m *idem.Memory, i int) {
	c := claim(i)
	if _, err := m.Begin(context.Background(), c); err != nil {
		panic(err)
	}
	s := idem.Settlement{Outcome: idem.OutcomeDone, Payload: make([]byte, answered), Summary: make([]byte, 64),
		Retention: 24 * time.Hour}
	if err := m.Settle(context.Background(), c.Key, c.Token, s); err != nil {
		panic(err)
	}
}

func claim(i int) idem.Claim {
	c := idem.Claim{Token: idem.ClaimToken{1}, Lease: 15 * time.Second, Retention: 24 * time.Hour}
	c.Key = digest(i)
	owner := digest(-1 - i%1000)
	c.Tenant = string(owner[:4])
	return c
}

func filled(n int) (*idem.Memory, []idem.Claim) {
	m := &idem.Memory{Budget: 8 << 30}
	claims := make([]idem.Claim, min(n, 100_000))
	for i := range n {
		remember(m, i)
		if i < len(claims) {
			claims[i] = claim(i)
		}
	}
	return m, claims
}

func ownClaims(n int) int { return min(n, 100_000) * int(unsafe.Sizeof(idem.Claim{})) }

// made is a store that makes the key of any token, as a database does.
type made struct{}

func (made) Lookup(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
	id := hex.EncodeToString(d[:12])
	return &keystore.Key{
		ID: "key_" + id[:20], Digest: d, Organization: "org_" + id[:7], Environment: keystore.Production,
		Name: "bench", Hint: "abcd", CreatedAt: time.Unix(1, 0), CreatedBy: "bench",
		Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
	}, nil
}

var growing = []grown{
	{"keystore.Cached", func(n int) (func(int), any) {
		ctx := context.Background()
		c := keystore.NewCached(made{}, keystore.CacheOptions{Size: 2 * n, TTL: time.Hour})
		tokens := make([]keystore.Token, n)
		for i := range n {
			t, err := keystore.Service{}.Parse(keystore.Service{}.Generate(keystore.Production).Reveal())
			if err != nil {
				panic(err)
			}
			tokens[i] = t
		}
		caller := func(i int) {
			if _, err := tokens[i].Caller(ctx, c, nil); err != nil {
				panic(err)
			}
		}
		for i := range n {
			caller(i)
		}
		return caller, c
	}, func(n int) int { return n * int(unsafe.Sizeof(keystore.Token{})) }},
	{"ratelimit.Memory", func(n int) (func(int), any) {
		m := &ratelimit.Memory{}
		// A unit comes back in a second: all buckets are in debt.
		p := &ratelimit.Policy{Name: "organization", Limit: ratelimit.Limit{Count: 1e5, Period: 1e5 * time.Second}}
		takes, names := []ratelimit.Charge{{Policy: p, Cost: 1}}, bucketNames(n)
		take := func(i int) {
			takes[0].Bucket = names[i]
			m.Take(context.Background(), takes)
		}
		for i := range n {
			take(i)
		}
		return take, m
	}, func(n int) int { return n * 40 }}, // a string's two words, and 20 bytes in a class of 24
	{"idem.Memory-replay", func(n int) (func(int), any) {
		m, claims := filled(n)
		return func(i int) { m.Begin(context.Background(), claims[i%len(claims)]) }, m
	}, ownClaims},
	{"idem.Memory-fresh", func(n int) (func(int), any) {
		m, _ := filled(n)
		next := n
		return func(int) {
			remember(m, next)
			next++
		}, m
	}, func(int) int { return 0 }},
}

// BenchmarkGrowth is one call of our stores that hold as many keys,
// organizations or replies as the name says, in random order. bytes/entry is
// what lives for each.
func BenchmarkGrowth(b *testing.B) {
	for _, g := range growing {
		for _, n := range sizes {
			var ask func(int)
			var keep any
			var bytes int64
			order := rand.Perm(n)
			b.Run(fmt.Sprintf("store=%s/entries=%d", g.name, n), func(b *testing.B) {
				if ask == nil {
					before := heap()
					ask, keep = g.make(n)
					bytes = heap() - before - int64(g.own(n))
				}
				b.ReportAllocs()
				spent := cpuTime()
				for i := 0; b.Loop(); i++ {
					ask(order[i%n])
				}
				b.ReportMetric(float64(cpuTime()-spent)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(bytes)/float64(n), "bytes/entry")
			})
			runtime.KeepAlive(keep)
		}
	}
}

func bucketNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("org_%016x", i)
	}
	rand.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// heap is how many bytes live.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
