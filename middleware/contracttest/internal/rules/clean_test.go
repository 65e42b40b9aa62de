package rules_test

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
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
		results, err := run(t, newServer().Configure, target(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Status != rules.Held && r.Rule.Level != rules.Wire {
				t.Errorf("%s: %s", r.Rule.Name, r.Explain())
			}
		}
	})
}

// A second route without a list is not passed over in silence.
func TestSecondList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := target()
		to.Creates[1].List = ""
		results, err := run(t, newServer("idem-replay-creates").Configure, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r := results["idempotency/second-list"]; r.Status != rules.Skipped {
			t.Errorf("it is %s", r.Explain())
		}
	})
}

// TestSlow wants a server of 2 s a response to be judged whole in ten minutes.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.Delay = 2 * time.Second
		s.Limit = 30 // in 5 s, which several connections reach
		slow := target()
		slow.Burst = 0
		start := time.Now()
		results, err := run(t, s.Configure, slow, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Status != rules.Held && r.Rule.Level == rules.Contract {
				t.Errorf("%s: %s", r.Rule.Name, r.Explain())
			}
		}
		d := time.Since(start)
		t.Logf("took %v", d)
		if d > 10*time.Minute {
			t.Errorf("took %v, want at most 10 minutes", d)
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
			srv := &http.Server{Protocols: new(http.Protocols)}
			srv.Protocols.SetHTTP1(true)
			srv.Protocols.SetUnencryptedHTTP2(true)
			s.Configure(srv)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = srv.Serve(ln) }()
			defer srv.Close()
			target := target()
			target.URL = "http://" + ln.Addr().String()
			session, err := rules.Open(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			session.Run(t.Context(), func(rules.Rule) bool { return true }, func(r rules.Result) {
				if r.Rule.Level == rules.Contract && (r.Status == rules.Broken || r.Status == rules.Unclear) {
					t.Errorf("%s: %s", r.Rule.Name, r.Explain())
				}
			})
		})
	}
}
