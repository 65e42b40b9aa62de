package idemredis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/idem"
)

// outages are the ways in which a Redis, or the network to it, fails and comes
// back.
var outages = []struct {
	name    string
	fail    func(s *server, p *proxy)
	mend    func(s *server, p *proxy)
	timeout time.Duration // of each call; a Redis that hangs is given up by it
	code    string        // what a new create gets
	replay  int           // what a repeat of an old one gets
}{
	{"killed", func(s *server, _ *proxy) { s.Kill() }, func(s *server, _ *proxy) { s.Start() }, redistest.Patience,
		"idempotency_store_unavailable", 503},
	{"hung", func(s *server, _ *proxy) { s.Hang() }, func(s *server, _ *proxy) { s.Resume() }, 500 * time.Millisecond,
		"idempotency_store_unavailable", 503},
	{"out of memory", func(s *server, _ *proxy) { s.Fill() }, func(s *server, _ *proxy) { s.Empty() },
		redistest.Patience, "idempotency_store_full", 201},
	// Redis does at once what it is asked, and says so too late.
	{"slow answers", func(_ *server, p *proxy) { p.Answers.Close() }, func(_ *server, p *proxy) { p.Answers.Open() },
		500 * time.Millisecond, "idempotency_store_unavailable", 503},
	// Redis is asked when nobody waits for the answer any more.
	{"slow requests", func(_ *server, p *proxy) { p.Requests.Close() }, func(_ *server, p *proxy) { p.Requests.Open() },
		500 * time.Millisecond, "idempotency_store_unavailable", 503},
}

func outageOptions(timeout time.Duration) idem.Options {
	return idem.Options{Timeout: timeout, Lease: 2 * time.Second, Wait: time.Second}
}

// While Redis is away nothing hangs, nothing is created twice, and what a
// handler did in the meantime is saved when Redis is back.
func TestOutages(t *testing.T) {
	for _, outage := range outages {
		for _, heeds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deadlines heeded %v", outage.name, heeds), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				proxy := redistest.StartProxy(t, server)
				o := proxy.Options()
				o.ContextTimeoutEnabled = heeds
				o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour
				rows := newRows()
				s := newStack(t, redistest.Connect(t, o), outageOptions(outage.timeout), rows.create)
				elsewhere := newStack(t, server.Client(), outageOptions(outage.timeout), rows.create)
				s.succeeds(t, "old", "older")
				mustSaveAll(t, s.runner) // an answer may be sent before it is saved

				// Redis fails while the handler of this one runs, or shortly
				// before.
				rows.after["during"] = func() { outage.fail(server, proxy) }
				s.succeeds(t, "during")
				rows.after["during"] = nil
				s.mustGet(t, "during", 201) // its answer may wait to be saved
				for i := range 3 {
					w := s.ask(t, fmt.Sprint("new", i))
					if w.Code != 503 || !strings.Contains(w.Body.String(), outage.code) {
						t.Errorf("a new create: got %d, want 503 %s\n%s", w.Code, outage.code, w.Body)
					}
				}
				redistest.Eventually(t, fmt.Sprintf("a repeat of an old one gets %d", outage.replay), func() bool {
					return s.ask(t, "old").Code == outage.replay
				})
				if w := s.request("GET", "/api/v1/account", ""); w.Code != 200 {
					t.Errorf("a read: got %d, want 200\n%s", w.Code, w.Body)
				}

				outage.mend(server, proxy)
				mustSaveAll(t, s.runner)
				keys := []string{"old", "older", "during", "new0", "new1", "new2", "later"}
				s.succeeds(t, keys...)
				elsewhere.succeeds(t, keys...)
				rows.mustBeOneEach(t, keys...)
			})
		}
	}
}
