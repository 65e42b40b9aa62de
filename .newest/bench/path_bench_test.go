package bench_test

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	bench "github.com/sallyport-go/sallyport/newest/bench"
)

var (
	world = sync.OnceValue(func() *bench.Setup { return bench.NewSetup(bench.ManyKeys) })
	large = sync.OnceValue(func() *bench.Setup { return bench.NewSetup(10 * bench.ManyKeys) })
)

// keyNames makes idempotency keys that look like UUIDs, since fiber takes no
// others.
type keyNames struct {
	n    uint64
	text [36]byte
}

func (k *keyNames) next() string {
	const digits = "0123456789abcdef"
	copy(k.text[:], "00000000-0000-4000-8000-000000000000")
	k.n++
	for i, n := len(k.text)-1, k.n; n > 0; i, n = i-1, n>>4 {
		k.text[i] = digits[n&15]
	}
	return string(k.text[:])
}

var (
	list    = bench.Request{Method: "GET", Path: "/api/v1/tasks"}
	account = bench.Request{Method: "GET", Path: "/api/v1/account"}
	create  = bench.Request{Method: "POST", Path: "/api/v1/tasks", Body: `{"title":"Call the bank"}`}
)

// a path is one row: how to prepare a server for it, and what to do again and
// again.
type path struct {
	name   string
	status int
	serves func(bench.Peer) bool
	limit  int // of the organization, 0 meaning one that nobody reaches
	begin  func(s *bench.Setup, server bench.Server) func() int
}

func everybody(bench.Peer) bool       { return true }
func gated(p bench.Peer) bool         { return p.Scopes }
func keyed(p bench.Peer) bool         { return p.Keyed || !p.Scopes }
func replaying(p bench.Peer) bool     { return p.Keyed }
func authorization(tok string) string { return "Bearer " + tok }

func always(q bench.Request, token func(*bench.Setup) string) func(*bench.Setup, bench.Server) func() int {
	return func(s *bench.Setup, server bench.Server) func() int {
		serve, header := server.Loop(q), ""
		if t := token(s); t != "" {
			header = authorization(t)
		}
		return func() int { return serve(header, "") }
	}
}

func first(s *bench.Setup) string { return s.Tokens[0] }
func stray(s *bench.Setup) string { return s.Stray }
func none(*bench.Setup) string    { return "" }

// inTurn sends a GET with each key in turn.
func inTurn(s *bench.Setup, server bench.Server) func() int {
	serve, n := server.Loop(list), 0
	headers := make([]string, len(s.Tokens))
	for i, t := range s.Tokens {
		headers[i] = authorization(t)
		serve(headers[i], "")
	}
	return func() int {
		n++
		return serve(headers[n%len(headers)], "")
	}
}

// fresh sends a POST with another key each time.
func fresh(s *bench.Setup, server bench.Server) func() int {
	serve, header, keys := server.Loop(create), authorization(s.Tokens[0]), keyNames{}
	return func() int { return serve(header, keys.next()) }
}

// bursts begins anew, with an empty store, after each 5,000 requests. To begin
// is not counted: it adds to spent what it took.
func bursts(b *testing.B, spent *time.Duration, begin func() func() int) func() int {
	serve, n := begin(), 0
	return func() int {
		if n++; n%5000 == 0 {
			b.StopTimer()
			before := cpuTime()
			serve = begin()
			*spent += cpuTime() - before
			b.StartTimer()
		}
		return serve()
	}
}

var paths = []path{
	{"get-hot", http.StatusOK, everybody, 0, always(list, first)},
	{"get-10k-keys", http.StatusOK, everybody, 0, inTurn},
	{"401-missing", http.StatusUnauthorized, gated, 0, always(list, none)},
	{"401-unknown", http.StatusUnauthorized, gated, 0, always(list, stray)},
	{"403", http.StatusForbidden, gated, 0, always(account, first)},
	{"429", http.StatusTooManyRequests, gated, 1, always(list, first)},
	{"post-fresh", http.StatusCreated, keyed, 0, fresh},
	{"post-replay", http.StatusCreated, replaying, 0, func(s *bench.Setup, server bench.Server) func() int {
		serve, header, keys := server.Loop(create), authorization(s.Tokens[0]), keyNames{}
		key := keys.next()
		return func() int { return serve(header, key) }
	}},
	// The stores are as full as at the start of a process, and what an earlier
	// one kept is garbage.
	{"post-bursts", http.StatusCreated, keyed, 0, fresh},
	// The last row: the heap of 100,000 keys lives from here on.
	{"get-100k-keys", http.StatusOK, everybody, 0, inTurn},
}

// BenchmarkPath serves one request again and again, without a connection. The
// peers of a row follow one another, so that a change of the machine's speed
// meets all.
func BenchmarkPath(b *testing.B) {
	for _, p := range paths {
		for _, peer := range bench.Peers() {
			if !p.serves(peer) {
				continue
			}
			b.Run("peer="+peer.Name+"/path="+p.name, func(b *testing.B) {
				of := world
				if p.name == "get-100k-keys" {
					of = large
				}
				s := of().Limited(1e9, of().Period)
				if p.limit > 0 {
					s.Limit = p.limit
				}
				serve := p.begin(s, peer.New(s))
				var before time.Duration
				if p.name == "post-bursts" {
					serve = bursts(b, &before, func() func() int { return p.begin(s, peer.New(s)) })
				}
				serve()
				if got := serve(); got != p.status {
					b.Fatalf("got %d, want %d", got, p.status)
				}
				// After a peer that allocates nothing the runtime has given its
				// memory back to the system: the next one does not pay for that,
				// nor sweeps what another has left.
				for range 20_000 {
					serve()
				}
				runtime.GC()
				b.ReportAllocs()
				before = cpuTime()
				for b.Loop() {
					serve()
				}
				b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
				if got := serve(); got != p.status {
					b.Fatalf("at the end: got %d, want %d", got, p.status)
				}
			})
		}
	}
}
