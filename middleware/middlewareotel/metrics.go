// Package middlewareotel counts the responses of a server with OpenTelemetry,
// shows the figures of its parts, and tells the span of a request who called.
//
//	meter := otel.Meter("example.com/app")
//	metrics, err := middlewareotel.New(meter, middlewareotel.Options{Keys: keys, Replies: replies})
//	api := middleware.NewAPI(keys, middleware.Options{Hooks: &middleware.Hooks{Observe: metrics.Observe}})
//
// The metrics are
//
//	sallyport.requests              by http.request.method, http.route, http.response.status_code,
//	                                error.type (of a 5xx), sallyport.outcome, sallyport.environment
//	sallyport.failures              by sallyport.kind: error, upstream (502 and 504 of a handler), aborted;
//	                                and sallyport.outcome
//	http.server.request.duration    in seconds, by the attributes of sallyport.requests but the environment, if
//	                                [Options] ask for it
//	sallyport.store.duration        in seconds, by sallyport.call: lookup, begin, settle, take; and by
//	                                sallyport.result: answered, failed; if [Options] ask for it
//	sallyport.rate_limit.requests   by sallyport.policy and sallyport.result: admitted, refused, reported, failed
//	sallyport.idempotency.requests  by sallyport.outcome: executed, replayed, waited, conflict, mismatch,
//	                                not_retained, unknown
//	sallyport.idempotency.wait.duration  in seconds, of repeats that waited for the first request
//
// and a gauge or counter for each figure of [Options]. An outcome is that of
// [middleware.Event], or "aborted" if the connection was, whatever status was sent
// before, or "reported" in place of "handled" if ReportedCode is set. A response
// within another one is not counted again; its rate limits and its idempotency
// key are. So a request has the outcome "handled" where an http.TimeoutHandler
// stands between RequestID and what decided on it.
//
// No attribute of a metric names a key, an organization or a request: these are
// without number, and a set of attributes stays in memory for good. The span
// that was started outside, such as otelhttp's, has them: sallyport.request_id,
// sallyport.organization, sallyport.key_id, sallyport.policy and
// sallyport.outcome. Of what a program names, 1,900 series of routes and 100
// policies are counted apart, and the rest together as "_OTHER".
//
// A Tracer in [Options] shows where a slow request is slow. Its spans are
//
//	sallyport.lookup  a question to the key store
//	sallyport.begin   a claim of an idempotency key; joined, with the wait for a connection
//	sallyport.settle  the outcome on its way to the store; joined, COMMIT or ROLLBACK
//	sallyport.take    a decision of the store of rate limits
//	sallyport.wait    for another request with the same key of either kind
//
// They are children of the request's span and, in a store whose driver has spans,
// the parents of these. What is answered from memory has none, nor has a request
// whose span is not recorded or has ended: so no trace begins with background
// work. Of a call without an answer the span has the status Error, the error and
// error.type, "timeout" or "_OTHER"; a refusal is an answer. No attribute names a
// key, a token or an idempotency key.
package middlewareotel

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

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

	// RequestDuration measures requests; leave it out where otelhttp does.
	// StoreDuration measures the calls of the stores behind Keys, Replies and
	// Counters; those in memory are none. Of two Metrics on one part the one
	// that was made last measures its calls.
	RequestDuration, StoreDuration bool
	// Tracer makes spans of these calls and of waits; see the package. Of two
	// Tracers on one part the last one does.
	Tracer trace.Tracer
}

// Metrics counts responses. It is safe for concurrent use.
type Metrics struct {
	requests, failures, limits, idempotency metric.Int64Counter
	wait, duration                          metric.Float64Histogram

	response *figures.Cache[figures.Response, response]
	limit    *figures.Cache[figures.Limit, []metric.AddOption]
	outcomes map[string][]metric.AddOption
}

// response is the attributes of one kind of response.
type response struct {
	count    []metric.AddOption
	duration []metric.RecordOption
}

// New makes the instruments with m. It returns what the Meter returns. A second
// Metrics needs a Meter of another name, or its figures are added up.
func New(m metric.Meter, o Options) (*Metrics, error) {
	if m == nil {
		return nil, errors.New("middlewareotel: the Meter is nil; give otel.Meter with the name of your program")
	}
	var errs []error
	count := func(name, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(help), metric.WithUnit("{request}"))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, help string, bounds ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	metrics := &Metrics{
		requests:    count("sallyport.requests", "Responses."),
		failures:    count("sallyport.failures", "Responses that failed on our side."),
		limits:      count("sallyport.rate_limit.requests", "Requests that a rate limit decided on."),
		idempotency: count("sallyport.idempotency.requests", "Requests with an idempotency key."),
		wait: seconds("sallyport.idempotency.wait.duration", "How long repeats waited for the first request.",
			figures.WaitBounds...),
		outcomes: make(map[string][]metric.AddOption),
	}
	if o.RequestDuration {
		metrics.duration = seconds("http.server.request.duration", "How long requests took.", figures.DurationBounds...)
	}
	var calls metric.Float64Histogram
	if o.StoreDuration {
		calls = seconds("sallyport.store.duration", "How long calls of the stores took.", figures.CallBounds...)
	}
	parts := figures.Parts{Keys: o.Keys, Replies: o.Replies, Counters: o.Counters}
	var shown []metric.Observable
	for _, f := range parts.Figures() {
		instrument, err := show(m, f)
		errs, shown = append(errs, err), append(shown, instrument)
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, f := range parts.Figures() {
			o.ObserveFloat64(shown[i].(metric.Float64Observable), f.Value)
		}
		return nil
	}, shown...)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("middlewareotel: %w", err)
	}
	// The SDK counts 2,000 sets of attributes apart, and the rest with no attribute
	// at all. Beyond this room, method and class of the status are left.
	metrics.response = figures.NewCache(1900, func(l figures.Response) (r response) {
		r.count = []metric.AddOption{responseAttributes(l)}
		l.Environment = ""
		r.duration = []metric.RecordOption{responseAttributes(l)}
		return r
	})
	metrics.limit = figures.NewCache(400, func(l figures.Limit) []metric.AddOption {
		return set(attribute.String("sallyport.policy", l.Policy), attribute.String("sallyport.result", l.Result))
	})
	for _, outcome := range figures.IdempotencyOutcomes {
		metrics.outcomes[outcome] = set(attribute.String("sallyport.outcome", outcome))
		metrics.idempotency.Add(context.Background(), 0, metrics.outcomes[outcome]...)
	}
	for _, f := range figures.Failures() {
		metrics.countFailure(context.Background(), 0, f)
	}
	for _, part := range parts.Observed() {
		if calls != nil {
			part.ObserveCalls(func(ctx context.Context, call string, took time.Duration, answered bool) {
				calls.Record(ctx, took.Seconds(), metric.WithAttributes(
					attribute.String("sallyport.call", call), attribute.String("sallyport.result", figures.Result(answered))))
			})
		}
		if o.Tracer != nil {
			part.TraceCalls(spans{o.Tracer}.start)
		}
	}
	return metrics, nil
}

func (m *Metrics) countFailure(ctx context.Context, n int64, f figures.Failure) {
	m.failures.Add(ctx, n, metric.WithAttributes(
		attribute.String("sallyport.kind", f.Kind), attribute.String("sallyport.outcome", f.Outcome)))
}

// AddAPI makes the series of an API's routes and policies, so that they start at
// 0. Without it a series starts with its first response, and an alert misses
// that. Call it when all routes are registered.
func (m *Metrics) AddAPI(api *middleware.API) {
	ctx := context.Background()
	for _, l := range figures.Expected(api.Routes()) {
		m.requests.Add(ctx, 0, m.response.Get(l).count...)
	}
	for _, l := range figures.ExpectedLimits(api.Guard().Options().RateLimit) {
		m.limits.Add(ctx, 0, m.limit.Get(l)...)
	}
}

// Observe counts a response and tells the span of ctx. It is a function for
// [middleware.Hooks].
func (m *Metrics) Observe(ctx context.Context, e middleware.Event) {
	labels := figures.ResponseOf(&e)
	if !e.Nested {
		r := m.response.Get(labels)
		m.requests.Add(ctx, 1, r.count...)
		if m.duration != nil {
			m.duration.Record(ctx, e.Duration.Seconds(), r.duration...)
		}
		if f, ok := labels.Failure(); ok {
			m.countFailure(ctx, 1, f)
		}
	}
	if l, ok := figures.LimitOf(&e); ok {
		m.limits.Add(ctx, 1, m.limit.Get(l)...)
	}
	if outcome := figures.IdempotencyOf(&e); outcome != "" {
		m.idempotency.Add(ctx, 1, m.outcomes[outcome]...)
		if e.Waited > 0 {
			m.wait.Record(ctx, e.Waited.Seconds())
		}
	}
	span := trace.SpanFromContext(ctx)
	if e.Nested || !span.IsRecording() {
		return
	}
	span.SetAttributes(
		attribute.String("sallyport.request_id", e.RequestID),
		attribute.String("sallyport.organization", e.Caller.Organization()),
		attribute.String("sallyport.key_id", e.Caller.KeyID()),
		attribute.String("sallyport.policy", e.Policy),
		attribute.String("sallyport.outcome", labels.Outcome),
	)
}

func responseAttributes(l figures.Response) metric.MeasurementOption {
	all := []attribute.KeyValue{
		attribute.String("http.request.method", l.Method),
		attribute.Int("http.response.status_code", l.Status),
		attribute.String("sallyport.outcome", l.Outcome),
	}
	if l.Pattern != "" {
		all = append(all, attribute.String("http.route", l.Route()))
	}
	if l.Environment != "" {
		all = append(all, attribute.String("sallyport.environment", l.Environment))
	}
	switch {
	case l.Status < 500:
	case l.Refused():
		all = append(all, attribute.String("error.type", l.Outcome))
	default:
		all = append(all, attribute.String("error.type", strconv.Itoa(l.Status)))
	}
	return metric.WithAttributeSet(attribute.NewSet(all...))
}

func set(all ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(all...))}
}

// show makes an instrument for f.
func show(m metric.Meter, f figures.Figure) (metric.Float64Observable, error) {
	if f.Counter {
		return m.Float64ObservableCounter(f.Name, metric.WithDescription(f.Help), metric.WithUnit(f.Unit))
	}
	return m.Float64ObservableGauge(f.Name, metric.WithDescription(f.Help), metric.WithUnit(f.Unit))
}
