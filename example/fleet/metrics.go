package main

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareprom"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// serveMetrics counts the responses of api and serves the figures at /metrics
// until the server that it returns is closed. They have an address of their
// own: they are not for clients.
func serveMetrics(ln net.Listener, api *middleware.API, keys *keystore.Cached, s stores,
	logger *slog.Logger) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	options := middlewareprom.Options{Keys: keys, Replies: api.Guard().Options().Idempotency.Runner,
		RequestDuration: true, StoreDuration: true}
	options.Counters, _ = s.limits.(interface {
		Stats() ratelimit.FailoverStats
	})
	metrics, err := middlewareprom.New(registry, options)
	if err != nil {
		return nil, err
	}
	api.Guard().Options().Hooks.Observe = metrics.Observe // before the first request
	metrics.AddAPI(api)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	logger.Info("serving metrics at http://" + ln.Addr().String() + "/metrics")
	go srv.Serve(ln)
	return srv, nil
}
