package recipes

import (
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func OtelHTTP(keys keystore.Store, options middleware.Options, tasks *Tasks,
	tracers trace.TracerProvider) http.Handler {
	hooks := *options.Hooks // a copy: another API may share it
	observe := hooks.Observe
	hooks.Observe = func(ctx context.Context, e middleware.Event) {
		trace.SpanFromContext(ctx).SetAttributes(
			attribute.String("api.request_id", e.RequestID), attribute.String("api.organization", e.Caller.Organization()),
			attribute.String("api.stage", e.Stage), attribute.String("api.outcome", e.Outcome))
		if observe != nil {
			observe(ctx, e)
		}
	}
	options.Hooks = &hooks
	api := middleware.NewAPI(keys, options)
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), tasks.Create)
	api.HandleFunc("GET /api/v1/tasks/{id}", middleware.Require(scope.TasksRead), tasks.Get)
	return otelhttp.NewHandler(api, "api", otelhttp.WithTracerProvider(tracers))
}
