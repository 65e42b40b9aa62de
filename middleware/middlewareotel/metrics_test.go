package middlewareotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
)

// A meter notes what its counters and histograms are told, and refuses to make
// an instrument.
type meter struct {
	noop.Meter
	refuses string
	told    []string
}

func (m *meter) note(n any, name string, attributes attribute.Set) {
	m.told = append(m.told, strings.TrimSpace(
		fmt.Sprint(n, " ", name, " ", attributes.Encoded(attribute.DefaultEncoder()))))
}

func (m *meter) check(name string) error {
	if name == m.refuses {
		return errors.New("no such instrument")
	}
	return nil
}

func (m *meter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counter{name: name, meter: m}, m.check(name)
}

func (m *meter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return histogram{name: name, meter: m}, m.check(name)
}

func (m *meter) Float64ObservableCounter(
	name string, _ ...metric.Float64ObservableCounterOption,
) (metric.Float64ObservableCounter, error) {
	return noop.Float64ObservableCounter{}, m.check(name)
}

func (m *meter) Float64ObservableGauge(
	name string, _ ...metric.Float64ObservableGaugeOption,
) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, m.check(name)
}

type counter struct {
	noop.Int64Counter
	name  string
	meter *meter
}

func (c counter) Add(_ context.Context, n int64, options ...metric.AddOption) {
	if n > 0 {
		c.meter.note(n, c.name, metric.NewAddConfig(options).Attributes())
	}
}

type histogram struct {
	noop.Float64Histogram
	name  string
	meter *meter
}

func (h histogram) Record(_ context.Context, v float64, options ...metric.RecordOption) {
	if v > 0 {
		h.meter.note(v, h.name, metric.NewRecordConfig(options).Attributes())
	}
}

// The real SDK is behind the tests of the side module.
func TestObserve(t *testing.T) {
	m := &meter{}
	metrics, err := middlewareotel.New(m, middlewareotel.Options{RequestDuration: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		event middleware.Event
		want  string
	}{
		{middleware.Event{Method: "GET", Pattern: "GET /tasks/{id}", Status: 200, Outcome: "handled", Policy: "gold"},
			"1 sallyport.requests http.request.method=GET,http.response.status_code=200," +
				"http.route=/tasks/{id},sallyport.outcome=handled; " +
				"1 sallyport.rate_limit.requests sallyport.policy=gold,sallyport.result=admitted"},
		{middleware.Event{Method: "HACK", Status: 499, Outcome: "handled"},
			"1 sallyport.requests http.request.method=_OTHER,http.response.status_code=499,sallyport.outcome=handled"},
		{middleware.Event{Method: "GET", Status: 500, Outcome: "internal"},
			"1 sallyport.requests error.type=internal,http.request.method=GET," +
				"http.response.status_code=500,sallyport.outcome=internal; " +
				"1 sallyport.failures sallyport.kind=error,sallyport.outcome=internal"},
		{middleware.Event{Method: "GET", Status: 502, Outcome: "handled"},
			"1 sallyport.requests error.type=502,http.request.method=GET,http.response.status_code=502," +
				"sallyport.outcome=handled; 1 sallyport.failures sallyport.kind=upstream,sallyport.outcome=handled"},
		{middleware.Event{Method: "POST", Pattern: "/tasks", Status: 201, Outcome: "replayed", Waited: time.Second,
			Duration: 2 * time.Second, Caller: (&keystore.Key{Environment: keystore.Sandbox}).Bind(nil)},
			"1 sallyport.requests http.request.method=POST,http.response.status_code=201," +
				"http.route=/tasks,sallyport.environment=sandbox,sallyport.outcome=replayed; " +
				"2 http.server.request.duration http.request.method=POST,http.response.status_code=201," +
				"http.route=/tasks,sallyport.outcome=replayed; " +
				"1 sallyport.idempotency.requests sallyport.outcome=waited; 1 sallyport.idempotency.wait.duration"},
		{middleware.Event{Method: "GET", Pattern: "/tasks", Status: 200, Outcome: "handled", Policy: "gold", Nested: true},
			"1 sallyport.rate_limit.requests sallyport.policy=gold,sallyport.result=admitted"},
	} {
		m.told = nil
		metrics.Observe(t.Context(), tt.event)
		if got := strings.Join(m.told, "; "); got != tt.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", tt.event, got, tt.want)
		}
	}
}

func TestNewErrors(t *testing.T) {
	if _, err := middlewareotel.New(nil, middlewareotel.Options{}); err == nil {
		t.Error("got no error for no Meter")
	}
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	for _, name := range []string{
		"sallyport.requests", "sallyport.failures", "sallyport.rate_limit.requests", "sallyport.idempotency.requests",
		"sallyport.idempotency.wait.duration", "sallyport.key_cache.hits", "sallyport.key_cache.keys",
		"http.server.request.duration", "sallyport.store.duration",
	} {
		for _, measured := range []bool{false, true} {
			_, err := middlewareotel.New(&meter{refuses: name},
				middlewareotel.Options{Keys: keys, RequestDuration: measured, StoreDuration: measured})
			asked := measured || name != "http.server.request.duration" && name != "sallyport.store.duration"
			if (err != nil) != asked || asked && !strings.HasPrefix(err.Error(), "middlewareotel: ") {
				t.Errorf("a Meter without %s, durations measured %t: got %v", name, measured, err)
			}
		}
	}
}
