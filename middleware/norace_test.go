//go:build !race

package middleware_test

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
)

const streamSize = 1 << 30

// allocs counts the allocations of one request, writer and header map included.
func allocs(h http.Handler, r *http.Request) float64 {
	return testing.AllocsPerRun(200, func() {
		r.Pattern = "" // as of a request that a server has just read
		h.ServeHTTP(&discard{header: make(http.Header)}, r)
	})
}

// TestAllocations: what the stages add to the mux and the handler that they
// guard, for a request that passes and for each refusal that comes in floods.
func TestAllocations(t *testing.T) {
	api, token, bare := benchAPI(t)
	ring := newKeyring()
	spent, wrong := ring.issue(t), wellFormed()
	limited := testAPI(ring.keys, middleware.Options{Limits: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("1-M"))})
	serve(limited, request("GET", "/api/v1/any", spent, ""))
	throttled, _ := throttled(ring, "1-M", middleware.Options{})
	serve(throttled, request("GET", "/api/v1/any", wrong, ""))

	tests := []struct {
		name        string
		h           http.Handler
		path, token string
		more        float64
	}{
		{"GET", api, "/api/v1/tasks", token, 3},
		{"401 without a key", api, "/api/v1/tasks", "", 3},
		{"401 for a malformed key", api, "/api/v1/tasks", swapLast(token), 3},
		{"401 for an unknown key", api, "/api/v1/tasks", wrong, 3},
		{"403", api, "/api/v1/account", token, 3},
		{"404", api, "/api/v1/none", token, 3},
		{"429 of the rate limit", limited, "/api/v1/any", spent, 3},
		{"429 of the throttle", throttled, "/api/v1/any", wrong, 4}, // the address is a string
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

// TestCreateAllocations: what claim, recording and settlement of a create add to
// the handler, and what a replay does. The maps of the store grow now and then.
func TestCreateAllocations(t *testing.T) {
	api, token, bare := benchAPI(t)
	body := bytes.Repeat([]byte("a"), 100)
	count := func(h http.Handler, key func() string) float64 {
		r := benchRequest("POST", "/api/v1/tasks", token)
		r.ContentLength = int64(len(body))
		sent, value := new(benchBody), make([]string, 1)
		r.Header["Idempotency-Key"] = value
		return testing.AllocsPerRun(1000, func() {
			sent.Reset(body)
			r.Body, r.Pattern, value[0] = sent, "", key()
			w := discard{header: make(http.Header)}
			if h.ServeHTTP(&w, r); w.status != http.StatusCreated {
				t.Fatalf("status %d", w.status)
			}
		})
	}
	keys := make([]string, 1100)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	one := func() string { return "one" }
	base := count(bare, one)
	if got := count(api, func() (key string) { key, keys = keys[0], keys[1:]; return key }); got > base+16 {
		t.Errorf("a create: got %v allocations, want at most 16 more than the %v of mux and handler", got, base)
	}
	if got := count(api, one); got > base+10 {
		t.Errorf("a replay: got %v allocations, want at most 10 more than the %v of mux and handler", got, base)
	}
}

// TestDressAllocations: no combination of optional interfaces costs more than
// another.
func TestDressAllocations(t *testing.T) {
	h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	r := benchRequest("GET", "/", "")
	var want float64
	for i, tt := range wardrobe {
		w := tt.make(&bare{header: http.Header{}, calls: make([]string, 0, 1000)})
		got := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, r) })
		if i == 0 {
			want = got
		}
		if got != want || got > 2 {
			t.Errorf("%q: got %v allocations, want the %v of a bare writer, which are state and request", tt.has, got, want)
		}
	}
}
