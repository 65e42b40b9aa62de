//go:build !race

// These run whole checks many times: the race detector would slow them to a
// minute. TestClean and TestCleanUnderLoad run the same code under it.

package rules_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// TestFreedoms wants no broken contract rule on servers that keep the contract,
// whatever they do where it is silent. All of them are strict about titles, and
// their keys name no environment.
func TestFreedoms(t *testing.T) {
	without := func(names ...string) func(*rules.Target) {
		return func(to *rules.Target) { to.Without = append(to.Without, names...) }
	}
	body := func(text string) func(*rules.Target) {
		return func(to *rules.Target) { to.Creates[0].Body = text }
	}
	nothing := func(to *rules.Target) {
		to.Creates[0].List = ""
		without("list")(to)
	}
	type test struct {
		freedoms string
		limit    int
		window   time.Duration
		change   func(*rules.Target)
	}
	tests := map[string]test{
		"no limit":               {"", 0, 0, without("rate-limit")},
		"windows":                {"", 50, 10 * time.Second, nil},
		"a window of a minute":   {"", 100, time.Minute, nil},
		"free-date":              {"free-date", 40, 3 * time.Second, nil},
		"free-drip":              {"free-drip", 20, 4 * time.Second, nil},
		"many a second":          {"free-drip", 100, time.Second, nil},
		"free-floor":             {"free-floor", 50, 2500 * time.Millisecond, nil},
		"conflicts":              {"idem-409-bare", 50, time.Second, nil},
		"the original's id":      {"idem-same-id", 50, time.Second, nil},
		"uuid in the title":      {"", 50, time.Second, body(`{"title":"https://a.example/{{uuid}}"}`)},
		"number in the title":    {"", 50, time.Second, body(`{"title":"https://a.example/{{number}}"}`)},
		"an echo without a list": {"free-echo", 50, time.Second, nothing},
		"free-no-body":           {"free-no-body", 50, time.Second, body("")},
		"nothing is listed":      {"", 50, time.Second, nothing},
		"nothing is created": {"", 50, time.Second, func(to *rules.Target) {
			to.Creates = nil
			without("list", "create")(to)
		}},
	}
	always := []string{"free-clock", "free-plain", "free-unique", "idem-other-body"}
	for _, d := range reference.Defects() {
		_, known := tests[d.Name]
		if d.Free && !known && !slices.Contains(always, d.Name) && d.Name != "free-post-only" { // which TestRule has
			tests[d.Name] = test{d.Name, 50, time.Second, nil}
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				to := target()
				to.Keys = reference.PlainKeys("full", "none", "other")
				to.Creates = to.Creates[:1]
				to.Without = []string{"worker", "reader", "writer", "second", "sandbox", "sandbox-none", "revoked", "second-create"}
				to.Burst = 300
				if test.change != nil {
					test.change(&to)
				}
				s := newServer(append(strings.Fields(test.freedoms), always...)...)
				s.Limit, s.Window = test.limit, test.window
				wantKept(t, run(t, s.Configure, to, every))
			})
		})
	}
}

// wantKept wants no result that fails a check.
func wantKept(t *testing.T, results map[string]rules.Result) {
	t.Helper()
	for _, r := range results {
		if r.Failed(true, false) {
			t.Errorf("%s: %s", r.Rule.Name, r.Explain())
		}
	}
}

// A server without a base path is checked, too.
func TestNoBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		to := target()
		to.Base, to.Read, to.Creates = "/", "/account", []rules.Create{{Path: "/tasks", List: "/tasks",
			Body: `{"title":"{{random}}"}`}}
		to.Without = []string{"second-create"}
		results := run(t, func(srv *http.Server) {
			s.Configure(srv)
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path, r.URL.RawPath = "/api/v1"+r.URL.Path, ""
				s.ServeHTTP(w, r)
			})
		}, to, every)
		wantKept(t, results)
		if r := results["path/version"]; r.Status != rules.LeftOut {
			t.Errorf("path/version is %s", r.Status)
		}
	})
}

// The time of a run is said beforehand. Here waiting is all that takes time.
func TestTime(t *testing.T) {
	for name, test := range map[string]struct {
		freedom               string
		limit                 int
		window, delay, create time.Duration
		most                  time.Duration // as contractcheck -h says
	}{
		"no limit":             {"free-clock", 0, 0, time.Millisecond, 0, 7 * time.Second},
		"slow":                 {"free-clock", 0, 0, 20 * time.Millisecond, 0, 0},
		"40 a second":          {"free-clock", 40, time.Second, time.Millisecond, 0, 40 * time.Second},
		"300 a second":         {"free-clock", 300, time.Second, time.Millisecond, 0, 40 * time.Second},
		"bit by bit":           {"free-drip", 100, time.Second, time.Millisecond, 0, 40 * time.Second},
		"8 a second":           {"free-clock", 40, 5 * time.Second, time.Millisecond, 0, 0},
		"100 a minute":         {"free-clock", 100, time.Minute, time.Millisecond, 0, 0},
		"5 a second":           {"free-drip", 20, 4 * time.Second, time.Millisecond, 0, 0},
		"slow and 40/s":        {"free-clock", 40, time.Second, 20 * time.Millisecond, 0, 0},
		"creates of 200 ms":    {"free-clock", 0, 0, time.Millisecond, 200 * time.Millisecond, 0},
		"creates of 2 s":       {"free-clock", 0, 0, time.Millisecond, 2 * time.Second, 0},
		"creates of 2 s, 40/s": {"free-clock", 40, time.Second, time.Millisecond, 2 * time.Second, 0},
		"creates of 20 s":      {"free-clock", 0, 0, time.Millisecond, 20 * time.Second, 0},
		"a counted list":       {"free-number", 0, 0, 150 * time.Millisecond, 0, 0},
		"counted, 40/s":        {"free-number", 40, time.Second, 20 * time.Millisecond, 0, 0},
		"counted, 2 s":         {"free-number", 0, 0, time.Millisecond, 2 * time.Second, 0},
		"2 s a response":       {"free-clock", 30, 5 * time.Second, 2 * time.Second, 0, 15 * time.Minute},
		"one route of 2 s":     {"free-clock", 0, 0, time.Millisecond, 2 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, to := reference.New(test.freedom), target()
				s.Limit, s.Window, s.Delay, s.Create, to.Burst = test.limit, test.window, test.delay, test.create, 0
				if test.limit == 0 {
					to.Without = []string{"rate-limit"}
				}
				if name == "one route of 2 s" {
					to.Creates, to.Without = to.Creates[:1], append(to.Without, "second-create")
				}
				network, stop := reference.Serve(s.Configure)
				defer stop()
				to.Dial = network.Dial
				session, err := rules.Open(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), session.Budget())
				defer cancel()
				session.Run(ctx, every, func(r rules.Result) {
					if r.Failed(true, false) {
						t.Errorf("%s: %s", r.Rule.Name, r.Explain())
					}
				})
				took, said := time.Since(start), session.Budget()-2*time.Minute
				t.Logf("%s: took %v, said %v", name, took, said)
				if took > said+said/10 || said > 2*took+5*time.Second {
					t.Errorf("took %v, and said %v", took, said)
				}
				if test.most > 0 && took > test.most {
					t.Errorf("took %v, want at most %v", took, test.most)
				}
			})
		})
	}
}
