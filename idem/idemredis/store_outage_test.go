package idemredis_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/.ci/redistest"
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

// ask makes a request. In these tests it would take an hour if it waited for
// Redis.
func ask(t *testing.T, what string, do func() *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	t.Helper()
	w := do()
	switch w.Code {
	case 200, 201:
	case 409, 503:
		unknown := strings.Contains(w.Body.String(), "idempotency_outcome_unknown")
		if (w.Header().Get("Retry-After") == "") != unknown {
			t.Errorf("%s: got %d with Retry-After: %q\n%s", what, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	default:
		t.Errorf("%s: got %d\n%s", what, w.Code, w.Body)
	}
	return w
}

// succeeds asks until the answer is 201: on a slow machine a Redis that answers
// may need longer than the timeout.
func succeeds(t *testing.T, what string, do func() *httptest.ResponseRecorder) {
	t.Helper()
	redistest.Eventually(t, what+" succeeds", func() bool { return ask(t, what, do).Code == 201 })
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
				s := mustStack(t, redistest.Connect(t, o), outageOptions(outage.timeout), rows.create)
				elsewhere := mustStack(t, server.Client(), outageOptions(outage.timeout), rows.create)
				for _, key := range []string{"old", "older"} {
					succeeds(t, "a create before the outage", func() *httptest.ResponseRecorder { return s.post(key) })
				}
				if err := s.runner.WaitSettled(t.Context()); err != nil { // an answer may be sent before it is saved
					t.Fatal(err)
				}

				// Redis fails while the handler of this one runs, or shortly
				// before.
				rows.after["during"] = func() { outage.fail(server, proxy) }
				succeeds(t, "a create during which Redis fails", func() *httptest.ResponseRecorder { return s.post("during") })
				rows.after["during"] = nil
				if w := ask(t, "a repeat of it", func() *httptest.ResponseRecorder { return s.post("during") }); w.Code != 201 {
					t.Errorf("a repeat while the answer waits to be saved: got %d, want 201\n%s", w.Code, w.Body)
				}
				for i := range 3 {
					w := ask(t, "a new create", func() *httptest.ResponseRecorder { return s.post(fmt.Sprint("new", i)) })
					if w.Code != 503 || !strings.Contains(w.Body.String(), outage.code) {
						t.Errorf("a new create: got %d, want 503 %s\n%s", w.Code, outage.code, w.Body)
					}
				}
				redistest.Eventually(t, fmt.Sprintf("a repeat of an old one gets %d", outage.replay), func() bool {
					repeat := func() *httptest.ResponseRecorder { return s.post("old") }
					return ask(t, "a repeat of an old one", repeat).Code == outage.replay
				})
				read := func() *httptest.ResponseRecorder { return s.request("GET", "/api/v1/account", "") }
				if w := ask(t, "a read", read); w.Code != 200 {
					t.Errorf("a read: got %d, want 200\n%s", w.Code, w.Body)
				}

				outage.mend(server, proxy)
				bounded, cancel := context.WithTimeout(t.Context(), redistest.Patience)
				defer cancel()
				if err := s.runner.WaitSettled(bounded); err != nil {
					t.Fatalf("what waited to be saved: %v", err)
				}
				keys := []string{"old", "older", "during", "new0", "new1", "new2", "later"}
				for _, key := range keys {
					for _, process := range []*stack{s, elsewhere} {
						succeeds(t, key, func() *httptest.ResponseRecorder { return process.post(key) })
					}
				}
				rows.mustBeOneEach(t, keys...)
			})
		}
	}
}

// A stack can be made before there is a Redis.
func TestRefusedAtConstruction(t *testing.T) {
	server := redistest.New(t)
	rows := newRows()
	s := mustStack(t, server.Client(), outageOptions(redistest.Patience), rows.create)
	if w := ask(t, "a create without Redis", func() *httptest.ResponseRecorder { return s.post("k") }); w.Code != 503 {
		t.Errorf("a create without Redis: got %d, want 503", w.Code)
	}
	server.Start()
	succeeds(t, "a create", func() *httptest.ResponseRecorder { return s.post("k") })
	rows.mustBeOneEach(t, "k")
}
