package figures

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// keyStore is a store of keys that others change too, and that can be away.
type keyStore struct {
	issuing.Store
	away atomic.Bool
}

func (s *keyStore) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	if time.Sleep(10 * time.Millisecond); s.away.Load() {
		return nil, errors.New("connection refused")
	}
	return s.Store.Lookup(ctx, d)
}

// replyStore is a reply store that removes expired ones.
type replyStore struct{ *idemtest.Faulty }

func (s replyStore) Begin(ctx context.Context, c idem.Claim) (idem.Record, error) {
	time.Sleep(20 * time.Millisecond)
	return s.Faulty.Begin(ctx, c)
}

func (s replyStore) Settle(ctx context.Context, k idem.Key, t idem.ClaimToken, s2 idem.Settlement) error {
	time.Sleep(30 * time.Millisecond)
	return s.Faulty.Settle(ctx, k, t, s2)
}

func (replyStore) Swept() time.Time { return time.Unix(4321, 0) }

// counterStore counts in memory and can be away.
type counterStore struct {
	ratelimit.Store
	away atomic.Bool
}

func (s *counterStore) Take(ctx context.Context, c []ratelimit.Charge) (ratelimit.Decision, error) {
	if time.Sleep(40 * time.Millisecond); s.away.Load() {
		return ratelimit.Decision{}, errors.New("connection refused")
	}
	return s.Store.Take(ctx, c)
}

// Each figure has a value that no other one near it has, and both packages show
// it. One of the stores is away, each in turn.
func TestFigures(t *testing.T) {
	for _, away := range []string{"keys", "replies", "counters"} {
		for _, name := range packages {
			t.Run(away+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testFigures(t, away, name) })
			})
		}
	}
}

func testFigures(t *testing.T, away, name string) {
	keyStore := &keyStore{Store: issuing.NewMemory()}
	keys := keystore.NewCached(keyStore, keystore.CacheOptions{})
	faulty := idemtest.NewFaulty(&idem.Memory{})
	replies := idem.NewRunner(replyStore{faulty}, idem.Options{Lease: 30 * time.Second})
	counterStore := &counterStore{Store: &ratelimit.Memory{}}
	counters := ratelimit.NewFailover(counterStore, ratelimit.FailoverOptions{})
	m := newMeasured(t, name, keys, replies, counters)

	// Keys: of three that may be used, two expire within 14 days.
	issuer := issuing.New(keys, issuing.Options{})
	digests := []keystore.Digest{keystore.DigestOf("no key")}
	for i := range 3 {
		g := keystore.Key{Organization: "acme", Environment: keystore.Sandbox}
		g.ExpiresAt = time.Now().Add(14*24*time.Hour + time.Minute)
		if i > 0 {
			g.ExpiresAt = g.ExpiresAt.Add(-time.Minute)
		}
		secret, _, err := issuer.Issue(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, keystore.DigestOf(secret.Reveal()))
	}
	for range 6 {
		for _, d := range digests {
			keys.Lookup(t.Context(), d)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go keys.Run(ctx)
	synctest.Wait()
	for _, d := range digests {
		keys.Lookup(t.Context(), d)
	}

	// Replies: one is saved and two are lost. Six run, of which three are not
	// saved; another has four waiters.
	for i, fault := range []idemtest.Fault{idemtest.None, idemtest.Lose, idemtest.Lose} {
		_, e, err := replies.Begin(t.Context(), idem.Claim{Key: idem.NewKey("first", fmt.Sprint(i)), Tenant: "acme"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		faulty.Next(idemtest.Settle, fault)
		err = e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeFree})
		if errors.Is(err, idem.ErrLost) != (fault == idemtest.Lose) {
			t.Fatal(err)
		}
	}
	var running []*idem.Execution
	for i := range 6 {
		_, e, err := replies.Begin(t.Context(), idem.Claim{Key: idem.NewKey(fmt.Sprint(i)), Tenant: "acme"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		running = append(running, e)
	}
	faulty.Always(idemtest.Settle, idemtest.Fail)
	for _, e := range running[:3] {
		go e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeFree})
	}
	faulty.Next(idemtest.Extend, idemtest.Fail)
	time.Sleep(14 * time.Second)
	for range 4 {
		go replies.Begin(ctx, idem.Claim{Key: idem.NewKey("5"), Tenant: "acme"}, nil)
	}

	// Counters: seven decisions, and one without the store.
	take := func() {
		policy := &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("100-S")}
		counters.Take(t.Context(), []ratelimit.Charge{{Policy: policy, Cost: 1}})
	}
	for range 7 {
		take()
	}
	counterStore.away.Store(true)
	take()
	counterStore.away.Store(away == "counters")

	keyStore.away.Store(away == "keys")
	if away == "replies" {
		faulty.Always(idemtest.Begin, idemtest.Fail)
	}
	for i := range 5 {
		keys.Lookup(t.Context(), keystore.DigestOf(fmt.Sprint(i)))
		replies.Begin(ctx, idem.Claim{Key: idem.NewKey(fmt.Sprint("later", i)), Tenant: "acme"}, nil)
		take()
	}

	k, r, l := keys.Stats(), replies.Stats(), counters.Stats()
	want := map[string]float64{
		"key_cache.hits": float64(k.Hits), "key_cache.misses": float64(k.Asked),
		"key_cache.failures": float64(k.Failed), "key_cache.keys": float64(k.Usable),
		"key_cache.expiring": 2, "key_cache.last_poll": float64(k.Polled.UnixMilli()) / 1000,
		"idempotency.executions": float64(r.Executions), "idempotency.waiters": float64(r.Waiters),
		"idempotency.unsaved": float64(r.Unsaved), "idempotency.renewal_errors": float64(r.RenewalErrors),
		"idempotency.save_errors": float64(r.SaveErrors), "idempotency.lost": 2,
		"idempotency.last_sweep": 4321, "rate_limit.fallbacks": float64(l.Fallbacks),
	}
	seen := make(map[string]bool)
	for name, v := range want {
		part, _, _ := strings.Cut(name, ".")
		if seen[fmt.Sprint(part, v)] {
			t.Errorf("%s is %v, as another figure is: give each a value of its own", name, v)
		}
		seen[fmt.Sprint(part, v)] = true
	}
	for name, is := range map[string]bool{"keys": k.Down, "replies": r.Down, "counters": l.Down} {
		if is != (name == away) {
			t.Errorf("%s are down: %t", name, is)
		}
	}
	want["key_cache.down"], want["idempotency.down"], want["rate_limit.down"] =
		bit(away == "keys"), bit(away == "replies"), bit(away == "counters")
	failed := map[string]float64{"lookup": float64(k.Failed), "begin": 5 * bit(away == "replies"),
		"settle": float64(r.SaveErrors), "take": float64(min(l.Fallbacks, 5))}
	answered := map[string]float64{"lookup": float64(k.Asked - k.Failed), "begin": 14 - failed["begin"],
		"settle": 3, "take": 7 + 5*bit(away != "counters")}
	if away == "replies" {
		delete(failed, "settle") // what failed to begin is undone too
	}
	all := m.read(t)
	for figure, v := range want {
		if got, ok := all[normal("sallyport."+figure)+"{}"]; !ok || got != v {
			t.Errorf("%s is %v, %t, want %v", figure, got, ok, v)
		}
	}
	if _, ok := all["sallyport.store.duration.bounds{[0.001 0.005 0.01 0.05 0.1 0.5 1 5 10]"]; !ok {
		t.Error("the bounds of sallyport.store.duration are others")
	}
	for call, least := range map[string]float64{"lookup": .01, "begin": .02, "settle": .03, "take": .04} {
		for result, want := range map[string]map[string]float64{"answered": answered, "failed": failed} {
			labels := fmt.Sprintf("{call=%s,result=%s}", call, result)
			n, sum := all["sallyport.store.duration.count"+labels], all["sallyport.store.duration.sum"+labels]
			if w, ok := want[call]; ok && n != w || math.Abs(sum-n*least) > 1e-9 {
				t.Errorf("%s: %v calls took %v s, want %v of %v s each", labels, n, sum, w, least)
			}
		}
	}
	for _, e := range running[3:] {
		go e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeFree})
	}
	faulty.Always(idemtest.Settle, idemtest.None)
	faulty.Always(idemtest.Begin, idemtest.None)
	keyStore.away.Store(false)
	counterStore.away.Store(false)
	stop()
	time.Sleep(time.Minute)
}

// What replies in memory take, and how many had to go.
func TestFiguresOfMemory(t *testing.T) {
	memory := &idem.Memory{Budget: 4000, MinRetention: 1}
	replies := idem.NewRunner(memory, idem.Options{})
	for i := range 20 {
		_, e, err := replies.Begin(t.Context(), idem.Claim{Key: idem.NewKey(fmt.Sprint(i)), Tenant: "acme"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Settle(t.Context(), idem.Settlement{Outcome: idem.OutcomeDone, Payload: make([]byte, 500)})
	}
	s := memory.Stats()
	if s.Forgotten == 0 || s.Bytes == int64(s.Forgotten) {
		t.Fatalf("%+v", s)
	}
	for _, name := range packages {
		all := newMeasured(t, name, nil, replies, nil).read(t)
		for figure, want := range map[string]float64{"memory": float64(s.Bytes), "forgotten": float64(s.Forgotten)} {
			if got := all["sallyport.idempotency."+figure+"{}"]; got != want {
				t.Errorf("%s: %s is %v, want %v", name, figure, got, want)
			}
		}
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// packages are those that show figures.
var packages = []string{"Prometheus", "OpenTelemetry"}

// measured is one of the packages on the parts of a server.
type measured struct {
	registry *prometheus.Registry // of Prometheus
	reader   sdkmetric.Reader     // of OpenTelemetry
	observe  func(context.Context, middleware.Event)
}

func newMeasured(
	t *testing.T, name string, keys *keystore.Cached, replies *idem.Runner, counters *ratelimit.Failover,
) (m measured) {
	t.Helper()
	o := middlewareprom.Options{Keys: keys, Replies: replies, RequestDuration: true, StoreDuration: true}
	if counters != nil {
		o.Counters = counters
	}
	if name == "Prometheus" {
		m.registry = prometheus.NewRegistry()
		metrics, err := middlewareprom.New(m.registry, o)
		if err != nil {
			t.Fatal(err)
		}
		m.observe = metrics.Observe
		return m
	}
	m.reader = sdkmetric.NewManualReader()
	metrics, err := middlewareotel.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader)).Meter("app"),
		middlewareotel.Options{Keys: keys, Replies: replies, Counters: o.Counters,
			RequestDuration: true, StoreDuration: true, Tracer: tracenoop.NewTracerProvider().Tracer("app")})
	if err != nil {
		t.Fatal(err)
	}
	m.observe = metrics.Observe
	return m
}

// read returns what the package shows, under the names that both share.
func (m measured) read(t *testing.T) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	if m.registry == nil {
		read, _ := read(t, m.reader)
		for name, v := range read {
			name, labels, _ := strings.Cut(name, "{")
			all[normal(name)+"{"+strings.ReplaceAll(labels, "sallyport.", "")] = v
		}
		return all
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := f.GetName()
		for _, unit := range []string{"_total", "_bytes", "_seconds", "_timestamp"} {
			name = strings.TrimSuffix(name, unit)
		}
		for _, series := range f.Metric {
			var labels []string
			for _, l := range series.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			under := "{" + strings.Join(labels, ",") + "}"
			if h := series.Histogram; h != nil {
				var bounds []float64
				for _, b := range h.Bucket {
					bounds = append(bounds, b.GetUpperBound())
				}
				all[normal(name)+".bounds{"+fmt.Sprint(bounds)] = 0
				all[normal(name)+".count"+under] = float64(h.GetSampleCount())
				all[normal(name)+".sum"+under] = h.GetSampleSum()
				continue
			}
			all[normal(name)+under] = series.Counter.GetValue() + series.Gauge.GetValue()
		}
	}
	return all
}

func normal(name string) string { return strings.ReplaceAll(name, "_", ".") }

// Each event counts where it belongs: what is counted once, twice and so on
// differs from what stands beside it.
func TestEvents(t *testing.T) {
	for _, name := range packages {
		t.Run(name, func(t *testing.T) { testEvents(t, newMeasured(t, name, nil, nil, nil)) })
	}
}

func testEvents(t *testing.T, m measured) {
	before := m.read(t)
	want := make(map[string]float64)
	n := 0
	send := func(e middleware.Event, counted ...string) {
		n++
		for range n {
			m.observe(t.Context(), e)
		}
		for _, name := range counted {
			want["sallyport."+name] += float64(n)
		}
	}
	const limits, keyed, failed = "rate.limit.requests{policy=gold,result=", "idempotency.requests{outcome=",
		"failures{kind="
	send(middleware.Event{Policy: "gold", Outcome: "handled", Duration: time.Second}, limits+"admitted}")
	send(middleware.Event{Policy: "gold", Outcome: "rate_limited"}, limits+"refused}")
	send(middleware.Event{Policy: "gold", Stage: middleware.StageHandler, ReportedCode: "rate_limited"},
		limits+"reported}")
	send(middleware.Event{Policy: "gold", Status: 503, Outcome: "rate_store_unavailable"}, limits+"failed}",
		failed+"error,outcome=rate_store_unavailable}")
	send(middleware.Event{Executed: true, Outcome: "executed"}, keyed+"executed}")
	send(middleware.Event{Outcome: "replayed"}, keyed+"replayed}")
	send(middleware.Event{Outcome: "replayed", Waited: time.Nanosecond}, keyed+"waited}")
	send(middleware.Event{Outcome: "idempotency_in_progress"}, keyed+"conflict}")
	send(middleware.Event{Outcome: "idempotency_key_reused"}, keyed+"mismatch}")
	send(middleware.Event{Outcome: "idempotency_response_not_retained"}, keyed+"not_retained}")
	send(middleware.Event{Outcome: "idempotency_outcome_unknown"}, keyed+"unknown}")
	send(middleware.Event{Status: 500, Outcome: "handled"}, failed+"error,outcome=handled}")
	send(middleware.Event{Status: 502, Outcome: "handled"}, failed+"upstream,outcome=handled}")
	send(middleware.Event{Aborted: true, Outcome: "handled"}, failed+"aborted,outcome=aborted}")
	want["sallyport.idempotency.wait.duration.count{}"] = 7
	for range 7 {
		want["sallyport.idempotency.wait.duration.sum{}"] += 1e-9
	}
	all := m.read(t)
	for _, series := range slices.Sorted(maps.Keys(want)) {
		if got, ok := all[series]; !ok || got != want[series] {
			t.Errorf("%s is %v, %t, want %v", series, got, ok, want[series])
		}
		_, ok := before[series]
		if starts := !strings.Contains(series, "gold") && !strings.Contains(series, "wait"); starts && !ok {
			t.Errorf("%s does not start at 0", series)
		}
	}
	var requests, took float64
	for series, v := range all {
		switch name, _, _ := strings.Cut(series, "{"); {
		case strings.HasSuffix(name, "request.duration.count"):
			requests += v
		case strings.HasSuffix(name, "request.duration.sum"):
			took += v
		case strings.HasSuffix(name, ".requests"):
		case v != 0 && want[series] == 0:
			t.Errorf("%s is %v, want 0", series, v)
		}
	}
	if requests != float64(n*(n+1)/2) || took != 1 {
		t.Errorf("%v requests took %v s, want %d that took 1 s", requests, took, n*(n+1)/2)
	}
	for _, bounds := range []string{
		"request.duration.bounds{[0.005 0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10]",
		"idempotency.wait.duration.bounds{[0.025 0.1 0.5 1 2.5 5 10 30]",
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(s string) bool { return strings.HasSuffix(s, bounds) }) {
			t.Errorf("there is no histogram %s", bounds)
		}
	}
}

// So many series of routes and 100 policies are counted apart, and the rest
// together.
func TestRoom(t *testing.T) {
	for name, routes := range map[string]int{"Prometheus": 4000, "OpenTelemetry": 1900} {
		t.Run(name, func(t *testing.T) { testRoom(t, newMeasured(t, name, nil, nil, nil), routes) })
	}
}

func testRoom(t *testing.T, m measured, routes int) {
	for i := range routes + 2 {
		e := middleware.Event{Method: "GET", Pattern: fmt.Sprint("/", i), Status: 200 + 99*(i%2), Outcome: "handled"}
		m.observe(t.Context(), e)
	}
	for i := range 102 {
		for _, e := range []middleware.Event{
			{Outcome: "handled"}, {Outcome: "rate_limited"}, {Outcome: "rate_store_unavailable"}, {ReportedCode: "rate_limited"},
		} {
			e.Policy, e.Nested = fmt.Sprint(i), true
			m.observe(t.Context(), e)
		}
	}
	var apart, others int
	for series, v := range m.read(t) {
		name, labels, _ := strings.Cut(series, "{")
		switch {
		case name != "sallyport.requests" && name != "sallyport.rate.limit.requests":
		case v == 1:
			apart++
		case v == 2 && (strings.HasPrefix(labels, "policy=_OTHER") || strings.Contains(labels, "method=GET") &&
			strings.Contains(labels, "=200") && strings.Contains(labels, "outcome=_OTHER") &&
			strings.Contains(labels, "route=_OTHER")):
			others++
		default:
			t.Errorf("%s is %v", series, v)
		}
	}
	if apart != routes+4*100 || others != 1+4 {
		t.Errorf("%d series were counted apart and %d together, want %d and 5", apart, others, routes+4*100)
	}
}
