package middlewareotel_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
)

// A meter notes what its counters are told, and refuses to make an instrument.
type meter struct {
	noop.Meter
	refuses string
	told    []string
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
	return noop.Float64Histogram{}, m.check(name)
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
	if attributes := metric.NewAddConfig(options).Attributes(); n > 0 {
		c.meter.told = append(c.meter.told, c.name+" "+attributes.Encoded(attribute.DefaultEncoder()))
	}
}

// What a failure is called beside its outcome. All else is seen under the SDK, in
// the side module.
func TestErrorType(t *testing.T) {
	m := &meter{}
	metrics, err := middlewareotel.New(m, middlewareotel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	metrics.Observe(t.Context(), middleware.Event{Method: "GET", Status: 499, Outcome: "handled"})
	metrics.Observe(t.Context(), middleware.Event{Method: "GET", Status: 500, Outcome: "internal"})
	metrics.Observe(t.Context(), middleware.Event{Method: "GET", Status: 502, Outcome: "handled"})
	want := []string{
		"sallyport.requests http.request.method=GET,http.response.status_code=499,sallyport.outcome=handled",
		"sallyport.requests error.type=internal,http.request.method=GET,http.response.status_code=500," +
			"sallyport.outcome=internal",
		"sallyport.failures sallyport.kind=error,sallyport.outcome=internal",
		"sallyport.requests error.type=502,http.request.method=GET,http.response.status_code=502,sallyport.outcome=handled",
		"sallyport.failures sallyport.kind=upstream,sallyport.outcome=handled",
	}
	if !slices.Equal(m.told, want) {
		t.Errorf("got  %q\nwant %q", m.told, want)
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
