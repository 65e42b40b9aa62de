package ratelimitredis_test

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/ratelimit/ratelimitredis"
)

// outages are ways in which Redis, or the network to it, fails and comes back.
var outages = []struct {
	name string
	fail func(s *server, p *proxy)
	mend func(s *server, p *proxy)
}{
	{"killed", func(s *server, _ *proxy) { s.Kill() }, func(s *server, _ *proxy) { s.Start() }},
	{"hung", func(s *server, _ *proxy) { s.Hang() }, func(s *server, _ *proxy) { s.Resume() }},
	{"out of memory", func(s *server, _ *proxy) { s.Fill() }, func(s *server, _ *proxy) { s.Empty() }},
	// Redis does at once what it is asked, and says so too late.
	{"slow answers", func(_ *server, p *proxy) { p.Answers.Close() }, func(_ *server, p *proxy) { p.Answers.Open() }},
	{"slow requests", func(_ *server, p *proxy) { p.Requests.Close() }, func(_ *server, p *proxy) { p.Requests.Open() }},
}

// modes are three stacks on one store. Their policies have different failure
// modes.
type modes struct {
	store               *ratelimitredis.Store
	local, open, closed get
}

func newModes(t *testing.T, o *redis.Options) modes {
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = time.Hour, time.Hour, time.Hour
	m := modes{store: ratelimitredis.New(redistest.Connect(t, o), ratelimitredis.Options{
		Failover: ratelimit.FailoverOptions{Logger: slog.New(slog.DiscardHandler)},
	})}
	stack := func(name string, count int64, mode ratelimit.Fallback) get {
		p := &ratelimit.Policy{Name: name, Limit: ratelimit.Limit{Count: count, Period: time.Hour}, Fallback: mode}
		return newStack(t, middleware.RateLimitOptions{Store: m.store, Organization: p}, middleware.RouteOptions{})
	}
	m.local, m.open, m.closed = stack("local", 5, ratelimit.Local), stack("open", 5, ratelimit.Open),
		stack("closed", 1_000_000, ratelimit.Closed)
	return m
}

// mustServe sends ten requests to each stack while Redis is away. The client of
// newModes waits for an hour, so that a request that waits for it does not end.
func (m modes) mustServe(t *testing.T) {
	t.Helper()
	ask := func(mode string, g get) *httptest.ResponseRecorder {
		w := g()
		if w.Header().Get("Svc-Request-Id") == "" {
			t.Errorf("%s: a %d without request id", mode, w.Code)
		}
		return w
	}
	for i := range 10 {
		want := 200
		if i >= 5 {
			want = 429
		}
		if w := ask("Local", m.local); w.Code != want {
			t.Errorf("Local, 5 an hour: request %d got %d, want %d", i+1, w.Code, want)
		}
		if w := ask("Open", m.open); w.Code != 200 {
			t.Errorf("Open, 5 an hour: request %d got %d, want 200", i+1, w.Code)
		}
		w := ask("Closed", m.closed)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" ||
			!strings.Contains(w.Body.String(), "rate_store_unavailable") {
			t.Errorf("Closed: request %d got %d with Retry-After %q, want 503 with one\n%s", i+1, w.Code,
				w.Header().Get("Retry-After"), w.Body)
		}
	}
	if !isDown(m.store) {
		t.Error("after thirty failures Redis is still asked")
	}
}

// mustResume waits until Redis decides again.
func (m modes) mustResume(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "Redis is asked again", func() bool {
		w := m.closed()
		if w.Code != 200 && w.Code != 503 {
			t.Errorf("while Redis comes back: got %d, want 503 or 200", w.Code)
		}
		return w.Code == 200 && !isDown(m.store)
	})
}

func TestOutages(t *testing.T) {
	for _, outage := range outages {
		for _, heeds := range []bool{false, true} {
			name := outage.name + ", by a client that ignores deadlines"
			if heeds {
				name = outage.name + ", by a client that heeds deadlines"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				proxy := redistest.StartProxy(t, server)
				o := proxy.Options()
				o.ContextTimeoutEnabled = heeds
				m := newModes(t, o)
				redistest.Eventually(t, "Redis counts", func() bool { return m.closed().Code == 200 })
				outage.fail(server, proxy)
				m.mustServe(t)
				outage.mend(server, proxy)
				m.mustResume(t)
			})
		}
	}
}

// New works before Redis runs.
func TestRefusedAtConstruction(t *testing.T) {
	server := redistest.New(t)
	m := newModes(t, server.Options())
	m.mustServe(t)
	server.Start()
	m.mustResume(t)
}

// When Redis is out of memory, a decision writes none of its counters, although
// one of them needs no more memory.
func TestOutOfMemoryChargesNothing(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	store := ratelimitredis.New(client, ratelimitredis.Options{Prefix: "p"})
	a, b := named("a", 5), named("b", 5)
	charges := []ratelimit.Charge{{Policy: a, Bucket: "x", Cost: 1}, {Policy: b, Bucket: "x", Cost: 1}}
	take(t, store.Counters(), charges[:1]...)
	server.Fill()
	if _, err := store.Counters().Take(t.Context(), charges); err == nil {
		t.Fatal("a full Redis made two charges")
	}
	server.Empty()
	d := take(t, store.Counters(), ratelimit.Charge{Policy: a, Bucket: "x"}, ratelimit.Charge{Policy: b, Bucket: "x"})
	if d.States[0].Remaining != 4 || d.States[1].Remaining != 5 {
		t.Errorf("got %d and %d of 5 left, want 4 and 5", d.States[0].Remaining, d.States[1].Remaining)
	}
}

// When Redis fails, units in hand are spent, except by the one decision that
// asks for more. Then each policy follows its Fallback.
func TestAheadOutage(t *testing.T) {
	for _, mode := range []ratelimit.Fallback{ratelimit.Local, ratelimit.Closed} {
		ahead(t, func(t *testing.T, server *fake, store *ratelimitredis.Store, one ratelimit.Charge) {
			one.Policy.Fallback = mode
			stock(t, server, store, one)
			server.set(true)
			for i := range 2 * inHand {
				var err error
				fell := !byRedis(store, func() { _, err = store.Take(t.Context(), []ratelimit.Charge{one}) })
				if want := i == untilLow || i > inHand; fell != want {
					t.Errorf("mode %d, decision %d: without the server and without units: %v, want %v", mode, i+1, fell, want)
				}
				if (err != nil) != (fell && mode == ratelimit.Closed) {
					t.Errorf("mode %d, decision %d: got the error %v", mode, i+1, err)
				}
			}
			server.set(false)
			time.Sleep(2 * time.Second)
			if !byRedis(store, func() { take(t, store, one) }) || isDown(store) {
				t.Errorf("mode %d: the server is not asked again", mode)
			}
		})
	}
}
