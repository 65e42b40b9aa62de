// Package middlewareprom counts the responses of a server for Prometheus, and
// shows the figures of its parts.
//
//	metrics, err := middlewareprom.New(registry, middlewareprom.Options{Keys: keys, Replies: replies})
//	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: metrics.Observe}})
//	… api.Handle …
//	metrics.AddAPI(api)
//
// The metrics are
//
//	sallyport_requests_total{method,route,status,outcome,environment}
//	sallyport_rate_limit_requests_total{policy,result}   admitted, refused, reported, failed
//	sallyport_idempotency_requests_total{outcome}        executed, replayed, waited, conflict, mismatch,
//	                                                     not_retained, unknown
//	sallyport_idempotency_wait_duration_seconds          of repeats that waited for the first request
//
// and a gauge or counter for each figure of [Options]. An outcome is that of
// [middleware.Event]: "handled", "executed", "replayed", "redirected" or the code
// of a refusal; "aborted" if the connection was, whatever status was sent
// before; or "reported" where a handler answered and Reported is set. A
// response within another one is not counted again; its rate limits and its
// idempotency key are. So a request has the outcome "handled" where an
// http.TimeoutHandler stands between RequestID and what decided on it. How long
// requests take is what promhttp or otelhttp measures.
//
// No label names a key, an organization or a request: these are without number,
// and a series stays in memory for good, here and in Prometheus. The log has
// them by the request id. Of what a program names, 4,000 series of routes and
// 100 policies are counted apart, and the rest together as "_OTHER".
package middlewareprom

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/figures"
)

// Options name the parts of the server whose figures are shown. Each may be
// nil.
type Options struct {
	Keys *keystore.Cached
	// Replies and its store, if that is an idem.Memory or an idemsql.Store.
	Replies *idem.Runner
	// Counters is a ratelimit.Failover or a ratelimitredis.Store.
	Counters interface {
		Stats() (down bool, fallbacks int64)
	}
}

// Metrics counts responses. It is safe for concurrent use.
type Metrics struct {
	requests    *prometheus.CounterVec
	limits      *prometheus.CounterVec
	idempotency *prometheus.CounterVec
	wait        prometheus.Histogram
	parts       []prometheus.Collector

	response *figures.Cache[figures.Response, prometheus.Counter]
	limit    *figures.Cache[figures.Limit, prometheus.Counter]
}

// New registers the metrics with r. It returns an error, and registers nothing,
// if r has one of the names already. With two APIs in a process, give each a
// Registerer with a label of its own by [prometheus.WrapRegistererWith].
func New(r prometheus.Registerer, o Options) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("middlewareprom: the Registerer is nil; give prometheus.DefaultRegisterer or one of your own")
	}
	m := &Metrics{
		requests: counters("sallyport_requests_total", "Responses.",
			"method", "route", "status", "outcome", "environment"),
		limits: counters("sallyport_rate_limit_requests_total", "Requests that a rate limit decided on.",
			"policy", "result"),
		idempotency: counters("sallyport_idempotency_requests_total", "Requests with an idempotency key.", "outcome"),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sallyport_idempotency_wait_duration_seconds",
			Help:    "How long repeats waited for the first request.",
			Buckets: []float64{.025, .1, .5, 1, 2.5, 5, 10, 30},
		}),
	}
	for _, f := range figures.Parts(o).Figures() {
		m.parts = append(m.parts, collector(f))
	}
	m.response = figures.NewCache(4000, func(l figures.Response) prometheus.Counter {
		return m.requests.WithLabelValues(l.Method, l.Route(), strconv.Itoa(l.Status), l.Outcome, l.Environment)
	})
	m.limit = figures.NewCache(400, func(l figures.Limit) prometheus.Counter {
		return m.limits.WithLabelValues(l.Policy, l.Result)
	})
	if err := r.Register(whole{m}); err != nil {
		return nil, fmt.Errorf("middlewareprom: %w; "+
			"with two APIs, give each a Registerer with a label of its own by prometheus.WrapRegistererWith", err)
	}
	for _, outcome := range figures.IdempotencyOutcomes {
		m.idempotency.WithLabelValues(outcome)
	}
	return m, nil
}

// AddAPI makes the series of an API's routes and policies, so that they start at
// 0. Without it a series starts with its first response, and an alert misses
// that. Call it when all routes are registered.
func (m *Metrics) AddAPI(api *middleware.API) {
	for _, l := range figures.Expected(api.Routes()) {
		m.response.Get(l)
	}
	for _, l := range figures.ExpectedLimits(api.Options().RateLimit) {
		m.limit.Get(l)
	}
}

// Observe counts a response. It is a function for [middleware.Hooks].
func (m *Metrics) Observe(_ context.Context, e middleware.Event) {
	if !e.Nested {
		m.response.Get(figures.ResponseOf(&e)).Inc()
	}
	if l, ok := figures.LimitOf(&e); ok {
		m.limit.Get(l).Inc()
	}
	if outcome := figures.IdempotencyOf(&e); outcome != "" {
		m.idempotency.WithLabelValues(outcome).Inc()
		if e.Waited > 0 {
			m.wait.Observe(e.Waited.Seconds())
		}
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// collector returns f under a name of Prometheus.
func collector(f figures.Figure) prometheus.Collector {
	name := strings.ReplaceAll(f.Name, ".", "_")
	switch f.Unit {
	case "By":
		name += "_bytes"
	case "s":
		name += "_timestamp_seconds"
	}
	if f.Counter {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name + "_total", Help: f.Help}, f.Read)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: f.Help}, f.Read)
}

// whole is all metrics as one collector: registered all or none.
type whole struct{ *Metrics }

func (w whole) each(visit func(prometheus.Collector)) {
	for _, c := range append([]prometheus.Collector{w.requests, w.limits, w.idempotency, w.wait}, w.parts...) {
		visit(c)
	}
}

func (w whole) Describe(ch chan<- *prometheus.Desc) {
	w.each(func(c prometheus.Collector) { c.Describe(ch) })
}

func (w whole) Collect(ch chan<- prometheus.Metric) {
	w.each(func(c prometheus.Collector) { c.Collect(ch) })
}
