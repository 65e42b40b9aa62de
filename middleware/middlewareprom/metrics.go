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
//	sallyport_requests_total{method,route,status,outcome,sallyport_environment}
//	sallyport_failures_total{kind,outcome}               responses that failed on our side: error, upstream (502 and
//	                                                     504 of a handler), aborted
//	sallyport_request_duration_seconds{method,route,outcome}   if [Options] ask for it
//	sallyport_store_duration_seconds{call,result}        lookup, begin, settle, take; answered, failed; as above
//	sallyport_rate_limit_requests_total{policy,result}   admitted, refused, reported, failed
//	sallyport_idempotency_requests_total{outcome}        executed, replayed, waited, conflict, mismatch,
//	                                                     not_retained, unknown
//	sallyport_idempotency_wait_duration_seconds          of repeats that waited for the first request
//
// and a gauge or counter for each figure of [Options]. An outcome is that of
// [middleware.Event], or "aborted" if the connection was, whatever status was sent
// before, or "reported" in place of "handled" if ReportedCode is set. A response
// within another one is not counted again; its rate limits and its idempotency
// key are. So a request has the outcome "handled" where an http.TimeoutHandler
// stands between RequestID and what decided on it.
//
// The environment of a key is not "environment", which many targets have:
// Prometheus would rename it, and the alerts would find nothing.
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
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/internal/figures"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Options name the parts of the server whose figures are shown, and what else
// is. Each may be nil.
type Options struct {
	Keys *keystore.Cached
	// Replies and its store, if that is an idem.Memory or an idemsql.Store.
	Replies *idem.Runner
	// Counters is a ratelimit.Failover or a ratelimitredis.Store.
	Counters interface {
		Stats() ratelimit.FailoverStats
	}

	// RequestDuration measures requests, and StoreDuration the calls of the
	// stores behind Keys, Replies and Counters; those in memory are none. Of two
	// Metrics on one part the one that was made last measures its calls.
	RequestDuration, StoreDuration bool
	// TraceID, unless nil, returns the id of the trace that a measurement is an
	// example of, "" for none. One of more than 120 bytes, or that is not UTF-8,
	// is none. Prometheus gets it where the handler of promhttp has
	// EnableOpenMetrics.
	TraceID func(ctx context.Context) string
}

// Metrics counts responses. It is safe for concurrent use.
type Metrics struct {
	requests, failures, limits, idempotency *prometheus.CounterVec
	wait                                    prometheus.Observer
	durations, calls                        *prometheus.HistogramVec
	traceID                                 func(context.Context) string

	response *figures.Cache[figures.Response, response]
	limit    *figures.Cache[figures.Limit, prometheus.Counter]
}

// response is the series of one kind of response.
type response struct {
	count    prometheus.Counter
	duration prometheus.Observer // nil: not measured
}

// New registers the metrics with r. It returns an error, and registers nothing,
// if r has one of the names already. With two APIs in a process, give each a
// Registerer with a label of its own by [prometheus.WrapRegistererWith].
func New(r prometheus.Registerer, o Options) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("middlewareprom: the Registerer is nil; give prometheus.DefaultRegisterer or one of your own")
	}
	own := prometheus.NewRegistry() // in r as one: all of it or nothing
	with := promauto.With(own)
	m := &Metrics{
		requests: counters(with, "sallyport_requests_total", "Responses.",
			"method", "route", "status", "outcome", "sallyport_environment"),
		failures: counters(with, "sallyport_failures_total", "Responses that failed on our side.", "kind", "outcome"),
		limits: counters(with, "sallyport_rate_limit_requests_total", "Requests that a rate limit decided on.",
			"policy", "result"),
		idempotency: counters(with, "sallyport_idempotency_requests_total", "Requests with an idempotency key.", "outcome"),
		wait: histograms(with, "sallyport_idempotency_wait_duration_seconds",
			"How long repeats waited for the first request.", figures.WaitBounds).WithLabelValues(),
		traceID: o.TraceID,
	}
	parts := figures.Parts{Keys: o.Keys, Replies: o.Replies, Counters: o.Counters}
	own.MustRegister(shown(parts))
	if o.RequestDuration {
		m.durations = histograms(with, "sallyport_request_duration_seconds", "How long requests took.",
			figures.DurationBounds, "method", "route", "outcome")
	}
	if o.StoreDuration {
		m.calls = histograms(with, "sallyport_store_duration_seconds", "How long calls of the stores took.",
			figures.CallBounds, "call", "result")
	}
	m.response = figures.NewCache(4000, func(l figures.Response) (r response) {
		r.count = m.requests.WithLabelValues(l.Method, l.Route(), strconv.Itoa(l.Status), l.Outcome, l.Environment)
		if m.durations != nil {
			r.duration = m.durations.WithLabelValues(l.Method, l.Route(), l.Outcome)
		}
		return r
	})
	m.limit = figures.NewCache(400, func(l figures.Limit) prometheus.Counter {
		return m.limits.WithLabelValues(l.Policy, l.Result)
	})
	if err := r.Register(own); err != nil {
		return nil, fmt.Errorf("middlewareprom: %w; "+
			"with two APIs, give each a Registerer with a label of its own by prometheus.WrapRegistererWith", err)
	}
	for _, outcome := range figures.IdempotencyOutcomes {
		m.idempotency.WithLabelValues(outcome)
	}
	for _, f := range figures.Failures() {
		m.failures.WithLabelValues(f.Kind, f.Outcome)
	}
	if m.calls != nil {
		for _, call := range figures.Calls {
			m.calls.WithLabelValues(call, figures.Result(true))
			m.calls.WithLabelValues(call, figures.Result(false))
		}
		for _, part := range parts.Observed() {
			part.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
				m.measure(ctx, m.calls.WithLabelValues(call, figures.Result(answered)), took)
			})
		}
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
	for _, l := range figures.ExpectedLimits(api.Guard().Options().RateLimit) {
		m.limit.Get(l)
	}
}

// Observe counts a response. It is a function for [middleware.Hooks].
func (m *Metrics) Observe(ctx context.Context, e middleware.Event) {
	if !e.Nested {
		labels := figures.ResponseOf(&e)
		r := m.response.Get(labels)
		r.count.Inc()
		if r.duration != nil {
			m.measure(ctx, r.duration, e.Duration)
		}
		if f, ok := labels.Failure(); ok {
			m.failures.WithLabelValues(f.Kind, f.Outcome).Inc()
		}
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

const traceLabel = "trace_id" // of an example

// measure observes a duration, as an example of the trace of ctx.
func (m *Metrics) measure(ctx context.Context, o prometheus.Observer, d time.Duration) {
	if m.traceID != nil {
		// Prometheus panics for others, in the middle of a request or of a call.
		const longest = prometheus.ExemplarMaxRunes - len(traceLabel)
		if id := m.traceID(ctx); id != "" && len(id) <= longest && utf8.ValidString(id) {
			o.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{traceLabel: id})
			return
		}
	}
	o.Observe(d.Seconds())
}

func histograms(with promauto.Factory, name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return with.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, labels)
}

func counters(with promauto.Factory, name, help string, labels ...string) *prometheus.CounterVec {
	return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// shown are the parts as a Collector, with names of Prometheus.
type shown figures.Parts

func (s shown) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, to) }

func (s shown) Collect(to chan<- prometheus.Metric) {
	for _, f := range figures.Parts(s).Figures() {
		name, kind := strings.ReplaceAll(f.Name, ".", "_"), prometheus.GaugeValue
		switch {
		case f.Counter:
			name, kind = name+"_total", prometheus.CounterValue
		case f.Unit == "By":
			name += "_bytes"
		case f.Unit == "s":
			name += "_timestamp_seconds"
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, f.Help, nil, nil), kind, f.Value)
	}
}
