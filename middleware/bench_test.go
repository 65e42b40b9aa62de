//go:build !race

package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// benchOptions keep replies for a moment only, so that the store is as full at the
// end as at the beginning.
func benchOptions() middleware.Options {
	return middleware.Options{
		RateLimit: perOrganization(&ratelimit.Memory{}, ratelimit.Limit{Count: 1e6, Period: 1e9, Burst: 1e9}),
		Idempotency: keyedOptions{Runner: replies(idem.Options{Lease: 100 * time.Millisecond,
			Retention: 100 * time.Millisecond})},
	}
}

func benchAPI(tb testing.TB) (api *middleware.API, token string, bare *http.ServeMux) {
	ring, token := oneKey(tb, scope.TasksRead, scope.TasksWrite)
	api = middleware.NewAPI(ring.keys, benchOptions())
	ok, created := http.HandlerFunc(benchOK), http.HandlerFunc(benchCreated)
	api.Handle("GET /api/v1/tasks", middleware.Require(scope.TasksRead), ok)
	api.Handle("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), created)
	api.Handle("GET /api/v1/account", middleware.Require(scope.AccountRead), ok)
	bare = http.NewServeMux()
	bare.Handle("GET /api/v1/tasks", ok)
	bare.Handle("POST /api/v1/tasks", created)
	return api, token, bare
}

// benchPieces is the API of benchAPI as pieces of a Guard around a mux, with
// what stands between two pieces, or nothing.
func benchPieces(tb testing.TB, between func(http.Handler) http.Handler) (pieces http.Handler, token string) {
	ring, token := oneKey(tb, scope.TasksRead, scope.TasksWrite)
	g := middleware.New(ring.keys, benchOptions())
	mux := http.NewServeMux()
	mux.Handle("GET /api/v1/tasks", g.Enforce(middleware.Require(scope.TasksRead))(http.HandlerFunc(benchOK)))
	mux.Handle("GET /api/v1/account", g.Enforce(middleware.Require(scope.AccountRead))(http.HandlerFunc(benchOK)))
	mux.Handle("POST /api/v1/tasks",
		middleware.Chain(g.Enforce(middleware.Require(scope.TasksWrite)), between, g.Idempotent)(
			http.HandlerFunc(benchCreated)))
	return middleware.Chain(g.RequestID, between, g.Recover, between, g.Authenticate, g.RateLimit)(mux), token
}

var (
	okBody   = []byte(`{"ok":true}`)
	taskBody = []byte(`{"id":"task_1","title":"Call the bank","state":"open","created_at":"2026-11-21T00:00:00Z"}`)
	jsonType = []string{"application/json"}
)

// passOn stands for middleware of somebody else.
func passOn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

func benchOK(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(okBody) }

func benchCreated(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(taskBody)
}

func benchRequest(method, path, token string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func BenchmarkChain(b *testing.B) {
	api, token, bare := benchAPI(b)
	pieces, own := benchPieces(b, middleware.Chain())
	apart, others := benchPieces(b, passOn)
	rows := []struct {
		name string
		h    http.Handler
		r    *http.Request
	}{
		{"bare", bare, benchRequest("GET", "/api/v1/tasks", token)},
		{"pieces", pieces, benchRequest("GET", "/api/v1/tasks", own)},
		{"pieces-401", pieces, benchRequest("GET", "/api/v1/tasks", "")},
		{"pieces-403", pieces, benchRequest("GET", "/api/v1/account", own)},
		{"apart", apart, benchRequest("GET", "/api/v1/tasks", others)},
		{"get", api, benchRequest("GET", "/api/v1/tasks", token)},
		{"401-missing", api, benchRequest("GET", "/api/v1/tasks", "")},
		{"401-malformed", api, benchRequest("GET", "/api/v1/tasks", token[:len(token)-1]+"!")},
		{"403", api, benchRequest("GET", "/api/v1/account", token)},
	}
	for _, row := range rows {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row.r.Pattern = "" // as of a request that a server has just read
				row.h.ServeHTTP(&discard{header: make(http.Header)}, row.r)
			}
		})
	}
}

// BenchmarkCreate is a POST with a small body: on the bare mux, along the chain
// without a key, as the first of its key, and as a repeat.
func BenchmarkCreate(b *testing.B) {
	api, token, bare := benchAPI(b)
	pieces, own := benchPieces(b, middleware.Chain())
	none, same := func(int) string { return "" }, func(int) string { return "same" }
	for _, size := range []int{100, 16 << 10} {
		body := bytes.Repeat([]byte("a"), size)
		for _, row := range []struct {
			name  string
			h     http.Handler
			token string
			key   func(n int) string
		}{
			{"bare", bare, "", none}, {"unkeyed", api, token, none}, {"fresh", api, token, strconv.Itoa},
			{"replay", api, token, same}, {"pieces-fresh", pieces, own, strconv.Itoa},
			{"pieces-replay", pieces, own, same},
		} {
			b.Run(fmt.Sprintf("%s/%d", row.name, size), func(b *testing.B) {
				create := creates(row.h, row.token, body)
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					if status := create(row.key(n)); status != http.StatusCreated {
						b.Fatalf("status %d", status)
					}
				}
			})
		}
	}
}

// creates returns a function that sends a create under a key, or under none if it
// is "", and returns the status.
func creates(h http.Handler, token string, body []byte) func(key string) int {
	r := benchRequest("POST", "/api/v1/tasks", token)
	r.ContentLength = int64(len(body))
	sent, value := new(benchBody), make([]string, 1)
	return func(key string) int {
		if key != "" && value[0] == "" {
			r.Header["Idempotency-Key"] = value
		}
		sent.Reset(body)
		r.Body, r.Pattern, value[0] = sent, "", key
		w := discard{header: make(http.Header)}
		h.ServeHTTP(&w, r)
		return w.status
	}
}

type benchBody struct{ bytes.Reader }

func (*benchBody) Close() error { return nil }

// allocs counts the allocations of one request, writer and header map included.
func allocs(h http.Handler, r *http.Request) float64 {
	return allocsOf(func() {
		r.Pattern = "" // as of a request that a server has just read
		h.ServeHTTP(&discard{header: make(http.Header)}, r)
	})
}

// allocsOf returns how many allocations a call makes, to the nearest whole
// number. testing.AllocsPerRun rounds down, and the runtime sometimes counts
// one or two of 600 too few.
func allocsOf(f func()) float64 {
	const runs = 500
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	f()
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return math.Round(float64(after.Mallocs-before.Mallocs) / runs)
}

// TestAllocations: what the stages add to the mux and the handler that they
// guard, for a request that passes and for each refusal that comes in floods.
func TestAllocations(t *testing.T) {
	api, token, bare := benchAPI(t)
	pieces, own := benchPieces(t, middleware.Chain())
	apart, others := benchPieces(t, passOn)
	ring := newKeyring()
	spent, wrong := ring.issue(t), keystore.Service{}.Generate(keystore.Production).Reveal()
	limited := testAPI(ring.keys, middleware.Options{RateLimit: middleware.PerOrganization("1-M"),
		Uses: keystore.NewUses(ring.memory, keystore.UsesOptions{})})
	serve(limited, request("GET", "/api/v1/any", spent, ""))
	throttled := testAPI(ring.keys, middleware.Options{Failures: ratelimit.MustParse("1-M")})
	serve(throttled, request("GET", "/api/v1/any", wrong, ""))

	tests := []struct {
		name        string
		h           http.Handler
		path, token string
		more        float64
	}{
		{"GET", api, "/api/v1/tasks", token, 3},
		{"GET as pieces", pieces, "/api/v1/tasks", own, 5},
		{"GET as pieces that stand apart", apart, "/api/v1/tasks", others, 9},
		{"401 without a key", api, "/api/v1/tasks", "", 3},
		{"401 for a malformed key", api, "/api/v1/tasks", swapLast(token), 4},
		{"401 for an unknown key", api, "/api/v1/tasks", wrong, 3},
		{"403", api, "/api/v1/account", token, 3},
		{"404", api, "/api/v1/none", token, 5},
		{"429 of the rate limit", limited, "/api/v1/any", spent, 3},
		{"429 of the throttle", throttled, "/api/v1/any", wrong, 5}, // the address is a string
	}
	for _, tt := range tests {
		path := "/api/v1/tasks" // what bare has
		if tt.name == "404" {
			path = tt.path
		}
		base := allocs(bare, benchRequest("GET", path, token))
		if got := allocs(tt.h, benchRequest("GET", tt.path, tt.token)); got > base+tt.more {
			t.Errorf("%s: got %v allocations, want at most %v more than the %v of mux and handler", tt.name, got, tt.more, base)
		}
	}
}

// TestObserveAllocations: who does not observe does not pay for it.
func TestObserveAllocations(t *testing.T) {
	count := func(hooks *middleware.Hooks) float64 {
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {}, middleware.Options{Hooks: hooks})
		return allocs(api, benchRequest("GET", "/api/v1/x", token))
	}
	none, unobserved, observed := count(nil), count(quiet()),
		count(&middleware.Hooks{Observe: func(context.Context, middleware.Event) {}})
	if unobserved != none {
		t.Errorf("hooks without Observe: got %v allocations, want the %v without hooks", unobserved, none)
	}
	if observed <= none || observed > none+2 {
		t.Errorf("with Observe: got %v allocations, want one or two more than %v", observed, none)
	}
}

// TestUnusedAllocations: what nobody observes and what refuses nothing costs no
// allocation.
func TestUnusedAllocations(t *testing.T) {
	ring, token := oneKey(t, scope.TasksRead)
	bound := ring.plant(t, keystore.Key{Scopes: []scope.Name{scope.TasksRead}, Networks: trust("192.0.2.0/24")})
	limits := rateOptions{Store: &ratelimit.Memory{}, Organization: policy("organization", "1000000-S", 0)}
	nothing := func(http.ResponseWriter, *http.Request) {}
	for _, pieces := range []bool{false, true} {
		count := func(need middleware.Requirement, token, header string, set func(*middleware.Options)) float64 {
			o := middleware.Options{Hooks: quiet(), RateLimit: limits}
			set(&o)
			keys := keystore.NewCached(ring.memory, keystore.CacheOptions{Service: o.Service})
			h := http.Handler(apiOf(keys, o, need, nothing))
			if pieces {
				g := middleware.New(keys, o)
				h = middleware.Chain(g.RequestID, g.Authenticate, g.RateLimit, g.Enforce(need))(http.HandlerFunc(nothing))
			}
			r := benchRequest("GET", "/api/v1/x", "")
			r.Header.Set(header, map[bool]string{true: "Bearer "}[header == "Authorization"]+token)
			return allocs(h, r)
		}
		usual := func(*middleware.Options) {}
		need, lacking := middleware.Require(scope.TasksRead), middleware.Require(scope.TasksWrite).ReportOnly()
		keyHeader := func(o *middleware.Options) { o.KeyHeader = "X-API-Key" }
		got := map[string]float64{
			"a header for keys":         count(need, token, "X-API-Key", keyHeader),
			"networks":                  count(need, bound, "Authorization", usual),
			"a report-only requirement": count(lacking, token, "Authorization", usual),
		}
		for name, set := range map[string]func(*middleware.Options){
			"a Pattern hook": func(o *middleware.Options) {
				o.Hooks.Pattern = func(*http.Request) string { return "/x" }
			},
			"a header that is not used": keyHeader,
			"legacy shapes":             func(o *middleware.Options) { o.Service = acme() },
			"other credentials":         func(o *middleware.Options) { o.Authenticate = nobody },
			"a Uses": func(o *middleware.Options) {
				o.Uses = keystore.NewUses(ring.memory, keystore.UsesOptions{})
			},
			"a report-only organization": func(o *middleware.Options) {
				o.RateLimit.Organization = reportOnly("organization", "1-H")
			},
		} {
			got[name] = count(need, token, "Authorization", set)
		}
		base := count(need, token, "Authorization", usual)
		for name, n := range got {
			if n > base {
				t.Errorf("%s, pieces %t: got %v allocations, want the %v without it", name, pieces, n, base)
			}
		}
	}
}

// TestCreateAllocations: what claim, recording and settlement of a create add
// to the handler, and what a replay does. The maps of the store grow now and
// then.
func TestCreateAllocations(t *testing.T) {
	api, token, bare := benchAPI(t)
	body := bytes.Repeat([]byte("a"), 100)
	count := func(h http.Handler, key func() string) float64 {
		create := creates(h, token, body)
		return allocsOf(func() {
			if status := create(key()); status != http.StatusCreated {
				t.Fatalf("status %d", status)
			}
		})
	}
	keys := make([]string, 600)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	one := func() string { return "one" }
	base := count(bare, one)
	if got := count(api, func() (key string) { key, keys = keys[0], keys[1:]; return key }); got > base+13 {
		t.Errorf("a create: got %v allocations, want at most 13 more than the %v of mux and handler", got, base)
	}
	if got := count(api, one); got > base+9 {
		t.Errorf("a replay: got %v allocations, want at most 9 more than the %v of mux and handler", got, base)
	}
}

// TestPanicWork: a client cannot make a panic, or the line about a store that is
// down, cost more by what it sends. What is allocated stands for the work.
func TestPanicWork(t *testing.T) {
	const mebibyte = 1 << 20
	log := newLogged()
	down := lookupFunc(func(context.Context, keystore.Digest) (*keystore.Key, error) { return nil, errors.New("down") })
	g := middleware.New(nil, middleware.Options{Hooks: log.hooks()})
	panics := g.Recover(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { panic("boom") }))
	api := func() http.Handler { return testAPI(down, middleware.Options{Hooks: log.hooks()}) } // one line a second
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	for name, fill := range map[string]func(http.Header){
		"a Cookie": func(h http.Header) { h.Set("Cookie", strings.Repeat("name=value1234567890; ", mebibyte/22)) },
		"a token":  func(h http.Header) { h.Set("X-Token", strings.Repeat("abcdef0123456789", mebibyte/16)) },
		"tokens": func(h http.Header) {
			for i := range mebibyte / 16 {
				h["X-Token"] = append(h["X-Token"], fmt.Sprintf("abcd%d", i))
			}
		},
		"parts": func(h http.Header) { h.Set("X-Token", strings.Repeat("abcd;", mebibyte/5)) },
		"names": func(h http.Header) {
			for i := range mebibyte / 16 {
				h[fmt.Sprintf("X-Token-%d", i)] = []string{"abcd"}
			}
		},
	} {
		for kind, h := range map[string]func() http.Handler{"panic": func() http.Handler { return panics }, "store": api} {
			r := request("GET", "/api/v1/any", token, "")
			fill(r.Header)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			serve(h(), r)
			runtime.ReadMemStats(&after)
			if n, bytes := after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc; n > 100_000 || bytes > 10*mebibyte {
				t.Errorf("%s, %s: %d allocations of %d bytes, want at most 100,000 of 10 MiB", name, kind, n, bytes)
			}
		}
	}
	if got := log.String(); strings.Contains(got, "boom") || strings.Count(got, "[left out") != 15 {
		t.Errorf("got the log %s", got)
	}
}
