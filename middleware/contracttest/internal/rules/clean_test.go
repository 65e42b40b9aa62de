package rules_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// TestClean wants every rule to hold on the server without a defect.
func TestClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, r := range run(t, newServer().Configure, target(), every) {
			if r.Status != rules.Held && r.Rule.Level != rules.Wire && r.Rule.Level != rules.Profile {
				t.Errorf("%s: %s", r.Rule.Name, r.Explain())
			}
			if r.Rule.Name == "idempotency/replay" && r.Took < 40*time.Millisecond {
				t.Errorf("%s took %v, and creates twice in 20 ms each", r.Rule.Name, r.Took)
			}
		}
	})
}

// TestCleanUnderLoad runs on real connections beside other tests.
// SALLYPORT_KIT_RUNS says how often; with more than one run all processors
// are kept busy meanwhile. A nightly run takes 100.
func TestCleanUnderLoad(t *testing.T) {
	t.Parallel()
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("SALLYPORT_KIT_RUNS"), "1"))
	if err != nil {
		t.Fatalf("SALLYPORT_KIT_RUNS: %v", err)
	}
	if runs > 1 {
		var over atomic.Bool
		t.Cleanup(func() { over.Store(true) })
		for range runtime.GOMAXPROCS(0) {
			go func() {
				for !over.Load() {
				}
			}()
		}
	}
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := reference.New()
			s.Create = time.Millisecond
			s.Limit, s.Window = 300, time.Second
			srv := httptest.NewUnstartedServer(nil)
			srv.Config.Protocols = new(http.Protocols)
			srv.Config.Protocols.SetHTTP1(true)
			srv.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Configure(srv.Config)
			srv.Start()
			defer srv.Config.Close()
			target := target()
			target.URL = srv.URL
			session, err := rules.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			session.Run(t.Context(), every, func(r rules.Result) {
				if r.Rule.Level == rules.Contract && (r.Status == rules.Broken || r.Status == rules.Unclear) {
					t.Errorf("%s: %s", r.Rule.Name, r.Explain())
				}
			})
		})
	}
}

// A target that answers too slowly to reach its limit in half a minute is
// accused of nothing, and the rules about limits say why they are left out. One
// that needs longer than a fast target is given the time.
func TestSlowToTheLimit(t *testing.T) {
	for name, test := range map[string]struct {
		limit  int
		window time.Duration
		want   rules.Status
	}{
		"too many a second": {100, time.Second, rules.LeftOut}, // of some 80 a second
		"many a minute":     {1000, 15 * time.Second, rules.Held},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.Limit, s.Window, s.Delay = test.limit, test.window, 100*time.Millisecond
				to := target()
				to.Burst = 0
				for _, r := range run(t, s.Configure, to, func(r rules.Rule) bool { return r.Group() == "ratelimit" }) {
					if r.Rule.Group() != "ratelimit" {
						continue
					}
					said := r.Status != rules.LeftOut || strings.Contains(r.Detail, "; it answers no more than ")
					if r.Status != test.want || !said {
						t.Errorf("%s is %s, want it %s", r.Rule.Name, r.Explain(), test.want)
					}
				}
			})
		})
	}
}

// A target that has become slower than when its limit was found is accused of
// nothing either.
func TestSlowerThanBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, slower := newServer(), atomic.Bool{}
		s.Window = time.Second
		results := run(t, func(srv *http.Server) {
			s.Configure(srv)
			srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if slower.Load() {
					time.Sleep(time.Second)
				}
				s.ServeHTTP(w, r)
			})
		}, target(), func(r rules.Rule) bool {
			slower.Store(true) // the first look is over
			return r.Group() == "ratelimit"
		})
		for name, r := range results {
			if r.Failed(true, true) {
				t.Errorf("%s: %s", name, r.Explain())
			}
		}
	})
}
