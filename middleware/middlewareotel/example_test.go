package middlewareotel_test

import (
	"log"
	"net/http"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/scope"
)

func Example() {
	provider := noop.NewMeterProvider() // in a program otel.GetMeterProvider(), with the SDK's set up before
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	metrics, err := middlewareotel.New(provider.Meter("example.com/tasks"), middlewareotel.Options{Keys: keys})
	if err != nil {
		log.Fatal(err)
	}
	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: metrics.Observe}})
	metrics.AddAPI(api)
	api.HandleFunc("GET /api/v1/tasks", middleware.Require(scope.TasksRead), func(http.ResponseWriter, *http.Request) {})
	// Output:
}
