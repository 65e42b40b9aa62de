// Package figures reads what the packages for metrics show: middlewareotel under
// the SDK of OpenTelemetry, and middlewareprom from its registry.
package figures

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sallyport-go/sallyport/middleware"
)

func TestMetrics(t *testing.T) { synctest.Test(t, testMetrics) }

func testMetrics(t *testing.T) {
	s := newTraced(t, false, sdktrace.AlwaysSample())
	var ids []string
	for range 2 {
		ids = append(ids, s.send(s.token, "k").Header().Get("Svc-Request-Id"))
	}

	got, zeros := read(t, s.reader)
	for _, want := range []string{
		"sallyport.requests{http.request.method=POST,http.response.status_code=201,http.route=/api/v1/tasks," +
			"sallyport.environment=sandbox,sallyport.outcome=executed}",
		"sallyport.requests{http.request.method=POST,http.response.status_code=201,http.route=/api/v1/tasks," +
			"sallyport.environment=sandbox,sallyport.outcome=replayed}",
		"http.server.request.duration.count{http.request.method=POST,http.response.status_code=201," +
			"http.route=/api/v1/tasks,sallyport.outcome=executed}",
		"sallyport.idempotency.requests{sallyport.outcome=executed}",
		"sallyport.idempotency.requests{sallyport.outcome=replayed}",
		"sallyport.key_cache.hits{}", "sallyport.key_cache.misses{}", "sallyport.key_cache.keys{}",
	} {
		if got[want] != 1 {
			t.Errorf("%s is %v, want 1", want, got[want])
		}
	}
	if got["counter sallyport.key_cache.hits"] != 1 || got["counter sallyport.key_cache.keys"] != 0 {
		t.Errorf("hits that only rise, and keys that also fall: got %v", got)
	}
	if zeros == 0 {
		t.Error("no series of a route starts at 0")
	}
	refused := "sallyport.rate_limit.requests{sallyport.policy=organization,sallyport.result=refused}"
	if n, there := got[refused]; !there || n != 0 {
		t.Errorf("%s is %v, %t, want it at 0", refused, n, there)
	}
	for name := range got {
		for _, secret := range []string{"org_1", s.keyID} {
			if strings.Contains(name, secret) {
				t.Errorf("%s names %s", name, secret)
			}
		}
	}

	requests := s.spans.Ended()[1:] // the first is of the driver
	if n := len(requests); n != 2 {
		t.Fatalf("there are %d spans", n)
	}
	for i, outcome := range []string{"executed", "replayed"} {
		attributes := attribute.NewSet(requests[i].Attributes()...)
		for name, want := range map[attribute.Key]string{
			"sallyport.organization": "org_1",
			"sallyport.key_id":       s.keyID,
			"sallyport.policy":       "organization",
			"sallyport.outcome":      outcome,
			"sallyport.request_id":   ids[i],
		} {
			if v, _ := attributes.Value(name); v.AsString() != want {
				t.Errorf("span %d has %s %q, want %q", i, name, v.AsString(), want)
			}
		}
	}

	// A span has the outcome that the metrics have.
	for _, e := range []middleware.Event{
		{Outcome: "handled", Aborted: true},
		{Stage: middleware.StageHandler, Outcome: "handled", ReportedCode: "rate_limited"},
	} {
		ctx, span := s.tracers.Tracer("").Start(t.Context(), "of a request")
		s.metrics.Observe(ctx, e)
		span.End()
		attributes := attribute.NewSet(s.spans.Ended()[len(s.spans.Ended())-1].Attributes()...)
		outcome, _ := attributes.Value("sallyport.outcome")
		got, _ := read(t, s.reader)
		counted := "sallyport.requests{http.request.method=_OTHER,http.response.status_code=0,sallyport.outcome=" +
			outcome.AsString() + "}"
		if outcome.AsString() == "handled" || got[counted] != 1 {
			t.Errorf("%+v: the span has the outcome %q, and %s is %v", e, outcome.AsString(), counted, got[counted])
		}
	}

	ctx, span := s.tracers.Tracer("").Start(t.Context(), "of the outer response")
	s.metrics.Observe(ctx, middleware.Event{Nested: true, Outcome: "handled"})
	span.End()
	if got := s.spans.Ended()[len(s.spans.Ended())-1].Attributes(); len(got) > 0 {
		t.Errorf("a response within another one tells its span %v", got)
	}
}

// read returns the figures by name and attributes, and how many series of
// sallyport.requests are 0.
func read(t *testing.T, reader sdkmetric.Reader) (all map[string]float64, zeros int) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	all = make(map[string]float64)
	note := func(name string, attributes attribute.Set, v float64) {
		all[name+"{"+attributes.Encoded(attribute.DefaultEncoder())+"}"] = v
		if name == "sallyport.requests" && v == 0 {
			zeros++
		}
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if unit := unitOf(m.Name); m.Unit != unit || m.Description == "" {
				t.Errorf("%s is in %q, want %q; it is described as %q", m.Name, m.Unit, unit, m.Description)
			}
			switch points := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range points.DataPoints {
					note(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				all["counter "+m.Name] = bit(points.IsMonotonic)
				for _, p := range points.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range points.DataPoints {
					note(m.Name+".count", p.Attributes, float64(p.Count))
					note(m.Name+".sum", p.Attributes, p.Sum)
					all[m.Name+".bounds{"+fmt.Sprint(p.Bounds)] = 0
				}
			case metricdata.Gauge[float64]:
				for _, p := range points.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	return all, zeros
}

func unitOf(name string) string {
	_, what, _ := strings.Cut(name, ".")
	switch what[strings.LastIndex(what, ".")+1:] {
	case "requests", "failures":
		if what != "key_cache.failures" {
			return "{request}"
		}
	case "duration", "last_poll", "last_sweep":
		return "s"
	case "memory":
		return "By"
	}
	return ""
}
