package middlewareprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

func ExampleNew() {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	metrics, err := middlewareprom.New(registry, middlewareprom.Options{Keys: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: metrics.Observe}})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), account)
	metrics.AddAPI(api)

	r := httptest.NewRequest("GET", "/api/v1/account", nil) // without a key
	api.ServeHTTP(httptest.NewRecorder(), r)

	families, err := registry.Gather()
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Counter.GetValue() > 0 {
				fmt.Println(family.GetName())
				for _, l := range m.Label {
					fmt.Printf("\t%s=%q\n", l.GetName(), l.GetValue())
				}
			}
		}
	}
	fmt.Println(err)
	// Output:
	// sallyport_requests_total
	// 	method="GET"
	// 	outcome="api_key_missing"
	// 	route=""
	// 	sallyport_environment=""
	// 	status="401"
	// <nil>
}

func account(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "org_1") }

// A server has an API and its metrics.
type server struct {
	api      *middleware.API
	registry *prometheus.Registry
	key      string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{registry: prometheus.NewRegistry()}
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	replies := idem.NewRunner(&idem.Memory{}, idem.Options{})
	counters := ratelimit.NewFailover(&ratelimit.Memory{}, ratelimit.FailoverOptions{})
	metrics := must(middlewareprom.New(s.registry,
		middlewareprom.Options{Keys: keys, Replies: replies, Counters: counters, StoreDuration: true}))(t)
	s.api = middleware.NewAPI(keys, middleware.Options{
		RateLimit: middleware.RateLimitOptions{Store: counters,
			Organization: &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("4-H")}},
		Idempotency: middleware.IdempotencyOptions{Runner: replies},
		Hooks:       &middleware.Hooks{Observe: metrics.Observe},
	})
	s.api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), account)
	s.api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	metrics.AddAPI(s.api)
	secret, _, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "org_1", Environment: keystore.Sandbox,
		Scopes: []scope.Name{scope.AccountRead, scope.TasksWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.key = secret.Reveal()
	return s
}

func (s *server) send(method, path, idempotencyKey, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+s.key)
	if idempotencyKey != "" {
		r.Header.Set("Idempotency-Key", idempotencyKey)
	}
	s.api.ServeHTTP(httptest.NewRecorder(), r)
}

// must returns what a call has returned, if there was no error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newMetrics returns metrics that are not an API's.
func newMetrics(t *testing.T, o middlewareprom.Options) (*middlewareprom.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return must(middlewareprom.New(registry, o))(t), registry
}

// counted returns the counters and gauges that are not 0.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, family := range must(registry.Gather())(t) {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if v := m.Counter.GetValue() + m.Gauge.GetValue(); v != 0 {
				all[name] = v
			}
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	s := newServer(t)
	s.send("GET", "/api/v1/account", "", "")
	s.send("POST", "/api/v1/tasks", "k", "a")
	s.send("POST", "/api/v1/tasks", "k", "a")
	s.send("POST", "/api/v1/tasks", "k", "another")
	s.send("GET", "/api/v1/account", "", "") // over the limit
	got := counted(t, s.registry)
	delete(got, "sallyport_idempotency_memory_bytes")
	want := map[string]float64{
		// method, outcome, route, sallyport_environment, status
		"sallyport_requests_total GET handled /api/v1/account sandbox 200":               1,
		"sallyport_requests_total GET rate_limited /api/v1/account sandbox 429":          1,
		"sallyport_requests_total POST executed /api/v1/tasks sandbox 201":               1,
		"sallyport_requests_total POST replayed /api/v1/tasks sandbox 201":               1,
		"sallyport_requests_total POST idempotency_key_reused /api/v1/tasks sandbox 422": 1,
		"sallyport_rate_limit_requests_total organization admitted":                      4,
		"sallyport_rate_limit_requests_total organization refused":                       1,
		"sallyport_idempotency_requests_total executed":                                  1,
		"sallyport_idempotency_requests_total replayed":                                  1,
		"sallyport_idempotency_requests_total mismatch":                                  1,
		"sallyport_key_cache_hits_total":                                                 4,
		"sallyport_key_cache_misses_total":                                               1,
		"sallyport_key_cache_keys":                                                       1,
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("there are also %v", got)
	}
	if problems, err := testutil.GatherAndLint(s.registry); err != nil || len(problems) > 0 {
		t.Errorf("Prometheus' rules of names: %v %v", problems, err)
	}
}

// Each route and environment, and each policy, has series before its first
// response.
func TestAddAPI(t *testing.T) {
	s := newServer(t)
	for name, want := range map[string]int{
		"sallyport_requests_total":            2*2 + 2*2,
		"sallyport_failures_total":            1 + 2*4 + 8,
		"sallyport_rate_limit_requests_total": 2,
		"sallyport_store_duration_seconds":    4 * 2,
	} {
		if n, err := testutil.GatherAndCount(s.registry, name); n != want || err != nil {
			t.Errorf("there are %d series of %s, %v, want %d", n, name, err, want)
		}
	}
}

// A response within another one counts for its limits and its key alone.
func TestNested(t *testing.T) {
	metrics, registry := newMetrics(t, middlewareprom.Options{})
	metrics.Observe(t.Context(), middleware.Event{Executed: true, Policy: "organization", Status: 500, Nested: true})
	want := map[string]float64{
		"sallyport_idempotency_requests_total executed": 1, "sallyport_rate_limit_requests_total organization admitted": 1}
	if got := counted(t, registry); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

type trace struct{} // the key of its id

func traceID(ctx context.Context) string {
	id, _ := ctx.Value(trace{}).(string)
	return id
}

// Requests are measured where it is asked for alone, and one within another not
// again.
func TestDurations(t *testing.T) {
	for want, o := range map[string]middlewareprom.Options{
		"": {}, "method=GET outcome=handled route=/tasks 1 2": {RequestDuration: true},
	} {
		metrics, registry := newMetrics(t, o)
		for _, nested := range []bool{false, true} {
			metrics.Observe(t.Context(), middleware.Event{Method: "GET", Pattern: "GET /tasks", Status: 200,
				Outcome: "handled", Duration: 2 * time.Second, Nested: nested})
		}
		got := ""
		for _, f := range must(registry.Gather())(t) {
			if f.GetName() == "sallyport_request_duration_seconds" {
				for _, l := range f.Metric[0].Label {
					got += l.GetName() + "=" + l.GetValue() + " "
				}
				h := f.Metric[0].Histogram
				got += fmt.Sprint(h.GetSampleCount(), h.GetSampleSum())
			}
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An id that Prometheus takes for no example costs the request nothing.
func TestTraceIDs(t *testing.T) {
	for id, examples := range map[string]int{
		strings.Repeat("a", 120): 1, strings.Repeat("a", 121): 0, strings.Repeat("é", 60): 1, "\xff": 0, "": 0,
	} {
		keys := keystore.NewCached(shared{issuing.NewMemory()}, keystore.CacheOptions{})
		metrics, registry := newMetrics(t, middlewareprom.Options{
			RequestDuration: true, StoreDuration: true, Keys: keys, TraceID: traceID,
		})
		ctx := context.WithValue(t.Context(), trace{}, id)
		metrics.Observe(ctx, middleware.Event{Method: "GET", Status: 200, Outcome: "handled", Duration: time.Second})
		_, _ = keys.Lookup(ctx, keystore.DigestOf("none"))
		got := make(map[string][2]int) // measurements and examples
		for _, f := range must(registry.Gather())(t) {
			for _, m := range f.Metric {
				n := got[f.GetName()]
				n[0] += int(m.Histogram.GetSampleCount())
				for _, b := range m.Histogram.GetBucket() {
					if b.Exemplar != nil && b.Exemplar.Label[0].GetName() == "trace_id" {
						n[1]++
					}
				}
				got[f.GetName()] = n
			}
		}
		for _, name := range []string{"sallyport_request_duration_seconds", "sallyport_store_duration_seconds"} {
			if want := [2]int{1, examples}; got[name] != want {
				t.Errorf("%q: %s has %v measurements and examples, want %v", id, name, got[name], want)
			}
		}
	}
}

func TestNewErrors(t *testing.T) {
	if _, err := middlewareprom.New(nil, middlewareprom.Options{}); err == nil {
		t.Error("got no error for no Registerer")
	}
	registry := prometheus.NewRegistry()
	taken := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sallyport_key_cache_keys", Help: "Another."})
	registry.MustRegister(taken)
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	_, err := middlewareprom.New(registry, middlewareprom.Options{Keys: keys})
	if err == nil || !strings.Contains(err.Error(), "sallyport_key_cache_keys") ||
		!strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("for a name that is taken: got %v", err)
	}
	if n, err := testutil.GatherAndCount(registry); n != 1 || err != nil {
		t.Errorf("an attempt that failed left %d series, %v", n-1, err)
	}
	registry = prometheus.NewRegistry()
	if _, err := middlewareprom.New(registry, middlewareprom.Options{Keys: keys}); err != nil {
		t.Error(err)
	}
	_, err = middlewareprom.New(registry, middlewareprom.Options{Keys: keys})
	if already := (prometheus.AlreadyRegisteredError{}); !errors.As(err, &already) {
		t.Errorf("the second time: got %v", err)
	}
	registry = prometheus.NewRegistry()
	for _, api := range []string{"public", "internal"} {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"api": api}, registry)
		if _, err := middlewareprom.New(labelled, middlewareprom.Options{Keys: keys}); err != nil {
			t.Errorf("with a label for each of two APIs: %v", err)
		}
	}
}

// What a client chooses makes no series: nothing but a method beside a bounded
// set of labels.
func TestHostileRequests(t *testing.T) {
	s := newServer(t)
	before, _ := testutil.GatherAndCount(s.registry)
	for i := range 300 {
		s.send(fmt.Sprint("BREW", i), fmt.Sprint("/api/v1/", i), "", "")
	}
	after, err := testutil.GatherAndCount(s.registry)
	if more := after - before; more > 4 || err != nil {
		t.Errorf("300 requests of unknown methods and paths made %d series, %v", more, err)
	}
}

func TestObserveAllocations(t *testing.T) {
	metrics, _ := newMetrics(t, middlewareprom.Options{})
	e := middleware.Event{
		Method: "GET", Pattern: "GET /api/v1/account", Status: 200, Policy: "organization", Outcome: "handled",
	}
	if n := testing.AllocsPerRun(100, func() { metrics.Observe(context.Background(), e) }); n != 0 {
		t.Errorf("an event makes %v allocations", n)
	}
}
