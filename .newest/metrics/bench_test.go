// Package metrics holds what is shown to a real Prometheus, and measures what spans
// cost.
package metrics

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// BenchmarkCreate is a keyed create through an API whose stores are asked for the
// claim, the outcome and the limit, without a Tracer and with one.
func BenchmarkCreate(b *testing.B) {
	for _, bb := range []struct {
		name            string
		sampled, traced bool
	}{
		{"sampled", true, false},
		{"sampled and traced", true, true},
		{"left out", false, false},
		{"left out and traced", false, true},
	} {
		b.Run(bb.name, func(b *testing.B) {
			sampler := sdktrace.NeverSample()
			if bb.sampled {
				sampler = sdktrace.AlwaysSample()
			}
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler),
				sdktrace.WithSpanProcessor(ended{})).Tracer("app")
			keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
			// What is no Memory has leases, and its calls are told.
			replies := idem.NewRunner(struct{ idem.Store }{&idem.Memory{}}, idem.Options{})
			counters := ratelimit.NewFailover(&ratelimit.Memory{}, ratelimit.FailoverOptions{})
			o := middlewareotel.Options{Keys: keys, Replies: replies, Counters: counters}
			if bb.traced {
				o.Tracer = tracer
			}
			if _, err := middlewareotel.New(noop.NewMeterProvider().Meter("app"), o); err != nil {
				b.Fatal(err)
			}
			secret, _, err := issuing.New(keys, issuing.Options{}).Issue(b.Context(), keystore.Key{
				Organization: "org_1", Environment: keystore.Production, Scopes: []scope.Name{scope.TasksWrite},
			})
			if err != nil {
				b.Fatal(err)
			}
			limits := middleware.PerOrganization("1000000-S")
			limits.Store = counters
			api := middleware.NewAPI(keys, middleware.Options{
				RateLimit: limits, Idempotency: middleware.IdempotencyOptions{Runner: replies}})
			api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
				func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
			w, n := &discard{header: make(http.Header)}, 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				ctx, span := tracer.Start(b.Context(), "request")
				r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/tasks", http.NoBody)
				r.Header.Set("Authorization", "Bearer "+secret.Reveal())
				r.Header.Set("Idempotency-Key", strconv.Itoa(n))
				clear(w.header)
				api.ServeHTTP(w, r)
				span.End()
			}
		})
	}
}

// ended is where spans end.
type ended struct{}

func (ended) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (ended) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (ended) Shutdown(context.Context) error                  { return nil }
func (ended) ForceFlush(context.Context) error                { return nil }

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
