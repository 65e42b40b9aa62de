package middlewareotel_test

import (
	"log"
	"net/http"

	metric "go.opentelemetry.io/otel/metric/noop"
	trace "go.opentelemetry.io/otel/trace/noop"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/scope"
)

func Example() {
	// In a program otel.GetMeterProvider() and otel.GetTracerProvider(), with the SDK's set up before.
	meters, tracers := metric.NewMeterProvider(), trace.NewTracerProvider()
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	metrics, err := middlewareotel.New(meters.Meter("example.com/tasks"), middlewareotel.Options{
		Keys:   keys,
		Tracer: tracers.Tracer("example.com/tasks"),
	})
	if err != nil {
		log.Fatal(err)
	}
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: metrics.Observe}})
	metrics.AddAPI(api)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), func(http.ResponseWriter, *http.Request) {})
	// Output:
}
