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
//	                                error.type (the code of a refusal), sallyport.outcome, sallyport.environment
//	sallyport.rate_limit.requests   by sallyport.policy and sallyport.result: admitted, refused, reported, failed
//	sallyport.idempotency.requests  by sallyport.outcome: executed, replayed, waited, conflict, mismatch,
//	                                not_retained, unknown
//	sallyport.idempotency.wait.duration  in seconds, of repeats that waited for the first request
//
// and a gauge or counter for each figure of [Options]. An outcome is that of
// [middleware.Event]: "handled", "executed", "replayed", "redirected" or the code
// of a refusal; "aborted" if the connection was, whatever status was sent
// before; or "reported" where a handler answered and Reported is set. A
// response within another one is not counted again; its rate limits and its
// idempotency key are. So a request has the outcome "handled" where an
// http.TimeoutHandler stands between RequestID and what decided on it. How long
// requests take is otelhttp's http.server.request.duration.
//
// No attribute of a metric names a key, an organization or a request: these are
// without number, and a set of attributes stays in memory for good. The span
// that was started outside, such as otelhttp's, has them: sallyport.request_id,
// sallyport.organization, sallyport.key_id, sallyport.policy and
// sallyport.outcome. Of what a program names, 4,000 series of routes and 100
// policies are counted apart, and the rest together as "_OTHER".
package middlewareotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

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
	requests, limits, idempotency metric.Int64Counter
	wait                          metric.Float64Histogram

	response *figures.Cache[figures.Response, []metric.AddOption]
	limit    *figures.Cache[figures.Limit, []metric.AddOption]
	outcomes map[string][]metric.AddOption
}

// New makes the instruments with m. It returns what the Meter returns. A second
// Metrics needs a Meter of another name, or its figures are added up.
func New(m metric.Meter, o Options) (*Metrics, error) {
	if m == nil {
		return nil, errors.New("middlewareotel: the Meter is nil; give otel.Meter with the name of your program")
	}
	var errs [4]error
	metrics := &Metrics{outcomes: make(map[string][]metric.AddOption)}
	metrics.requests, errs[0] = m.Int64Counter("sallyport.requests",
		metric.WithDescription("Responses."), metric.WithUnit("{request}"))
	metrics.limits, errs[1] = m.Int64Counter("sallyport.rate_limit.requests",
		metric.WithDescription("Requests that a rate limit decided on."), metric.WithUnit("{request}"))
	metrics.idempotency, errs[2] = m.Int64Counter("sallyport.idempotency.requests",
		metric.WithDescription("Requests with an idempotency key."), metric.WithUnit("{request}"))
	metrics.wait, errs[3] = m.Float64Histogram("sallyport.idempotency.wait.duration",
		metric.WithDescription("How long repeats waited for the first request."), metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(.025, .1, .5, 1, 2.5, 5, 10, 30))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("middlewareotel: %w", err)
	}
	for _, f := range figures.Parts(o).Figures() {
		if err := show(m, f); err != nil {
			return nil, fmt.Errorf("middlewareotel: %w", err)
		}
	}
	metrics.response = figures.NewCache(4000, responseAttributes)
	metrics.limit = figures.NewCache(400, func(l figures.Limit) []metric.AddOption {
		return set(attribute.String("sallyport.policy", l.Policy), attribute.String("sallyport.result", l.Result))
	})
	for _, outcome := range figures.IdempotencyOutcomes {
		metrics.outcomes[outcome] = set(attribute.String("sallyport.outcome", outcome))
		metrics.idempotency.Add(context.Background(), 0, metrics.outcomes[outcome]...)
	}
	return metrics, nil
}

// AddAPI makes the series of an API's routes and policies, so that they start at
// 0. Without it a series starts with its first response, and an alert misses
// that. Call it when all routes are registered.
func (m *Metrics) AddAPI(api *middleware.API) {
	ctx := context.Background()
	for _, l := range figures.Expected(api.Routes()) {
		m.requests.Add(ctx, 0, m.response.Get(l)...)
	}
	for _, l := range figures.ExpectedLimits(api.Options().RateLimit) {
		m.limits.Add(ctx, 0, m.limit.Get(l)...)
	}
}

// Observe counts a response and tells the span of ctx. It is a function for
// [middleware.Hooks].
func (m *Metrics) Observe(ctx context.Context, e middleware.Event) {
	if !e.Nested {
		m.requests.Add(ctx, 1, m.response.Get(figures.ResponseOf(&e))...)
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
		attribute.String("sallyport.outcome", e.Outcome),
	)
}

func responseAttributes(l figures.Response) []metric.AddOption {
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
	if l.Refused() {
		all = append(all, attribute.String("error.type", l.Outcome))
	}
	return set(all...)
}

func set(all ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(all...))}
}

// show makes an instrument that reads f.
func show(m metric.Meter, f figures.Figure) error {
	read := func(_ context.Context, o metric.Float64Observer) error {
		o.Observe(f.Read())
		return nil
	}
	var err error
	if f.Counter {
		_, err = m.Float64ObservableCounter(f.Name, metric.WithDescription(f.Help), metric.WithUnit(f.Unit),
			metric.WithFloat64Callback(read))
	} else {
		_, err = m.Float64ObservableGauge(f.Name, metric.WithDescription(f.Help), metric.WithUnit(f.Unit),
			metric.WithFloat64Callback(read))
	}
	return err
}
