// Package figures reads what the packages for metrics show: middlewareotel under
// the SDK of OpenTelemetry, and middlewareprom from its registry.
package figures

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("example.com/app")
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))

	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	replies := idem.NewRunner(&idem.Memory{}, idem.Options{})
	counters := ratelimit.NewFailover(&ratelimit.Memory{}, ratelimit.FailoverOptions{})
	metrics, err := middlewareotel.New(meter,
		middlewareotel.Options{Keys: keys, Replies: replies, Counters: counters, RequestDuration: true})
	if err != nil {
		t.Fatal(err)
	}
	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit: middleware.RateLimitOptions{Store: counters,
			Organization: &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("100-S")}},
		Idempotency: middleware.IdempotencyOptions{Runner: replies},
		Hooks:       &middleware.Hooks{Observe: metrics.Observe},
	})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	metrics.AddAPI(api)
	secret, key, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "org_1", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := otelhttp.NewHandler(api, "api", otelhttp.WithTracerProvider(tracer))
	var ids []string
	for range 2 {
		r := httptest.NewRequest("POST", "/api/v1/tasks", strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+secret.Reveal())
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		ids = append(ids, w.Header().Get("Svc-Request-Id"))
	}

	got, zeros := read(t, reader)
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
		for _, secret := range []string{"org_1", key.ID} {
			if strings.Contains(name, secret) {
				t.Errorf("%s names %s", name, secret)
			}
		}
	}

	if n := len(spans.Ended()); n != 2 {
		t.Fatalf("there are %d spans", n)
	}
	for i, outcome := range []string{"executed", "replayed"} {
		attributes := attribute.NewSet(spans.Ended()[i].Attributes()...)
		for name, want := range map[attribute.Key]string{
			"sallyport.organization": "org_1",
			"sallyport.key_id":       key.ID,
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
		ctx, span := tracer.Tracer("").Start(t.Context(), "of a request")
		metrics.Observe(ctx, e)
		span.End()
		attributes := attribute.NewSet(spans.Ended()[len(spans.Ended())-1].Attributes()...)
		outcome, _ := attributes.Value("sallyport.outcome")
		got, _ := read(t, reader)
		counted := "sallyport.requests{http.request.method=_OTHER,http.response.status_code=0,sallyport.outcome=" +
			outcome.AsString() + "}"
		if outcome.AsString() == "handled" || got[counted] != 1 {
			t.Errorf("%+v: the span has the outcome %q, and %s is %v", e, outcome.AsString(), counted, got[counted])
		}
	}

	ctx, span := tracer.Tracer("").Start(t.Context(), "of the outer response")
	metrics.Observe(ctx, middleware.Event{Nested: true, Outcome: "handled"})
	span.End()
	if got := spans.Ended()[len(spans.Ended())-1].Attributes(); len(got) > 0 {
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
