package figures

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemtest"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/middlewareotel"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// tracedStore is a keyStore whose driver has spans.
type tracedStore struct{ *keyStore }

func (s tracedStore) Lookup(ctx context.Context, d keystore.Digest) (*keystore.Key, error) {
	_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("driver").Start(ctx, "SELECT")
	defer span.End()
	return s.keyStore.Lookup(ctx, d)
}

// A traced server is one whose stores can be away.
type traced struct {
	http.Handler
	spans    *tracetest.SpanRecorder
	tracers  trace.TracerProvider
	reader   sdkmetric.Reader
	metrics  *middlewareotel.Metrics
	token    string
	keyID    string
	keys     *keyStore
	replies  *idemtest.Faulty
	counters *counterStore
	failover *ratelimit.Failover
}

func newTraced(t *testing.T, tracer bool, sampler sdktrace.Sampler) *traced {
	t.Helper()
	s := &traced{
		spans:    tracetest.NewSpanRecorder(),
		reader:   sdkmetric.NewManualReader(),
		keys:     &keyStore{Store: issuing.NewMemory()},
		replies:  idemtest.NewFaulty(&idem.Memory{}),
		counters: &counterStore{Store: &ratelimit.Memory{}},
	}
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans), sdktrace.WithSampler(sampler))
	keys := keystore.NewCached(tracedStore{s.keys}, keystore.CacheOptions{})
	replies := idem.NewRunner(s.replies, idem.Options{})
	s.failover = ratelimit.NewFailover(s.counters, ratelimit.FailoverOptions{})
	o := middlewareotel.Options{Keys: keys, Replies: replies, Counters: s.failover, RequestDuration: true}
	if tracer {
		o.Tracer = s.tracers.Tracer("app")
	}
	metrics, err := middlewareotel.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)).Meter("app"), o)
	if err != nil {
		t.Fatal(err)
	}
	s.metrics = metrics
	policy := &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("100-S"), Fallback: ratelimit.Open}
	api := middleware.NewAPI(keys, middleware.Options{
		RateLimit:   middleware.RateLimitOptions{Store: s.failover, Organization: policy},
		Idempotency: middleware.IdempotencyOptions{Runner: replies},
		Hooks:       &middleware.Hooks{Observe: metrics.Observe},
	})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite),
		func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusCreated)
		})
	metrics.AddAPI(api)
	secret, key, err := issuing.New(keys, issuing.Options{}).Issue(t.Context(), keystore.Key{
		Organization: "org_1", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.token, s.keyID = secret.Reveal(), key.ID
	s.Handler = otelhttp.NewHandler(api, "api", otelhttp.WithTracerProvider(s.tracers))
	return s
}

// post sends a create, and returns its status.
func (s *traced) post(token, key string) int { return s.send(token, key).Code }

func (s *traced) send(token, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/api/v1/tasks", strings.NewReader("{}"))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// told returns the spans that have ended, each with its parent and what failed,
// and forgets them.
func (s *traced) told(t *testing.T) string {
	ended := s.spans.Ended()
	names := make(map[trace.SpanID]string)
	for _, span := range ended {
		names[span.SpanContext().SpanID()] = span.Name()
	}
	var all []string
	for _, span := range ended {
		parent := names[span.Parent().SpanID()]
		if parent == "" {
			continue // the request
		}
		text := strings.TrimPrefix(parent, "POST /api/v1") + " > " + span.Name()
		attributes := attribute.NewSet(span.Attributes()...)
		kind, failed := attributes.Value("error.type")
		if failed {
			text += " " + kind.AsString()
		}
		status := span.Status()
		if (status.Code == codes.Error) != failed || (status.Description != "") != failed ||
			(len(span.Events()) == 1) != failed {
			t.Errorf("%s has the status %v and the events %v", text, status, span.Events())
		}
		all = append(all, text)
	}
	if len(all) != len(ended)-1 {
		t.Errorf("of %d spans %d have no parent", len(ended), len(ended)-len(all))
	}
	s.spans.Reset()
	return strings.Join(all, "; ")
}

// Each question to a store is a span of its request, with what its driver does
// in it; what is answered from memory is none.
func TestSpans(t *testing.T) {
	const (
		lookup = "sallyport.lookup > SELECT; /tasks > sallyport.lookup"
		rest   = "; /tasks > sallyport.take; /tasks > sallyport.begin"
		settle = "; /tasks > sallyport.settle"
	)
	unknown := keystore.Service{}.Generate(keystore.Sandbox).Reveal()
	for name, tt := range map[string]struct {
		before bool // a create with the same key was sent before
		token  string
		fault  func(s *traced)
		status int
		want   string
		undone bool // the claim
	}{
		"a create": {status: 201, want: lookup + rest + settle},
		"a repeat": {before: true, status: 201, want: rest[2:]},
		"an unknown key": {token: unknown, status: 401,
			want: strings.ReplaceAll(lookup, "/tasks", "POST")},
		"keys are away": {fault: func(s *traced) { s.keys.away.Store(true) }, status: 503,
			want: strings.ReplaceAll(lookup, "/tasks", "POST") + " _OTHER"},
		"counters are away": {fault: func(s *traced) { s.counters.away.Store(true) }, status: 201,
			want: lookup + strings.Replace(rest, "take", "take _OTHER", 1) + settle},
		"replies are slow": {fault: func(s *traced) { s.replies.Next(idemtest.Begin, idemtest.Hang) }, status: 503,
			want: lookup + rest + " timeout", undone: true},
		"an outcome that is not saved": {fault: func(s *traced) { s.replies.Always(idemtest.Settle, idemtest.Fail) },
			status: 201, want: lookup + rest + strings.Repeat(settle+" _OTHER", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTraced(t, true, sdktrace.AlwaysSample())
				if tt.before {
					s.post(s.token, "order-4711")
					s.told(t)
				}
				if tt.fault != nil {
					tt.fault(s)
				}
				token := s.token
				if tt.token != "" {
					token = tt.token
				}
				if got := s.post(token, "order-4711"); got != tt.status {
					t.Errorf("got the status %d, want %d", got, tt.status)
				}
				time.Sleep(time.Minute) // in which what goes on in the background has no span
				s.replies.Always(idemtest.Settle, idemtest.None)
				time.Sleep(time.Minute)
				for _, span := range s.spans.Ended() {
					all := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status())
					for _, secret := range []string{token, token[len(token)-8:], "order-4711"} {
						if strings.Contains(all, secret) {
							t.Errorf("a span has a secret: %s", all)
						}
					}
				}
				got := s.told(t)
				if tt.undone { // while the request is answered
					got = strings.ReplaceAll(got, settle, "")
				}
				if got != tt.want {
					t.Errorf("got\n%s, want\n%s", got, tt.want)
				}
			})
		})
	}
}

// A request that waits for another one says so.
func TestSpansOfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTraced(t, true, sdktrace.AlwaysSample())
		for range 2 {
			go s.post(s.token, "order-4711")
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		var waits []time.Duration
		for _, span := range s.spans.Ended() {
			took := span.EndTime().Sub(span.StartTime())
			if span.Name() == "sallyport.wait" && took > 0 { // some are over at once, by chance
				waits = append(waits, took)
			}
		}
		// For the key, and for the create.
		if len(waits) != 2 || waits[0] != 10*time.Millisecond || waits[1] < time.Second {
			t.Errorf("got waits of %v, want 10 ms and a second", waits)
		}
	})
}

// A request whose span is not recorded has no spans, and costs no allocation.
func TestSpansOfNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allocations []float64
		for _, tracer := range []bool{false, true} {
			s := newTraced(t, tracer, sdktrace.NeverSample())
			if got := s.post(s.token, "order-4711"); got != 201 || len(s.spans.Ended()) != 0 {
				t.Errorf("got the status %d and %d spans, want 201 and none", got, len(s.spans.Ended()))
			}
			policy := &ratelimit.Policy{Name: "organization", Limit: ratelimit.MustParse("1000-S")}
			charges := []ratelimit.Charge{{Policy: policy, Cost: 1}}
			take := func() { s.failover.Take(context.Background(), charges) }
			allocations = append(allocations, testing.AllocsPerRun(100, take))
			if len(s.spans.Ended()) != 0 {
				t.Error("a call without a request has a span")
			}
		}
		if allocations[0] != allocations[1] {
			t.Errorf("allocations without a Tracer and with one: %v", allocations)
		}
	})
}
