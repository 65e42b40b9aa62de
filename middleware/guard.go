package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// A Guard is the stages of one set of options, for a router of your own. Each
// stage is a method of the form func(http.Handler) http.Handler:
//
//	guard := middleware.New(keys, middleware.Options{ … })
//	r.Use(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)
//	r.With(guard.Require(scope.TasksWrite), guard.Idempotent).Post("/tasks", create)
//
// Each method says which stage must stand before it. If that one is missing,
// the stage answers every request with 500 and logs what is missing. If the
// options have limits or a Runner, and no handler uses that stage, the first
// request past Require that shows it logs a warning. A Guard is safe for
// concurrent use.
//
// An [API] is the same stages with the order and the routing decided.
type Guard struct {
	options     Options
	report      *reporter
	ids         *requestIDs
	auth        *authentication // nil if nobody is authenticated
	limits      *limiter
	idempotency *idempotency // nil without a Runner
	bodies      *keyed.Bodies
	warnings    map[*idem.Runner]*keyed.Warnings

	// No handler has the stage yet, although the options configure it.
	noRateLimit, noIdempotent atomic.Bool
}

// New returns a Guard for the keys in a store. keys may be nil when
// [Guard.Authenticate] is not used or Options.Authenticate finds all callers.
// New panics on options that [Options.Validate] refuses. With keys or
// Options.Authenticate it also panics on a Base and on a RateLimit without a
// policy: only an API uses them. Without either it accepts an API's options,
// for example to use one stage.
func New(keys keystore.Store, o Options) *Guard {
	var errs []error
	if keys != nil || o.Authenticate != nil {
		if o.Base != "" {
			errs = append(errs, errors.New("middleware: Options.Base: a Guard has no routes"))
		}
		limits := o.RateLimit
		limits.Concurrent = 0 // needs nothing else
		if !limits.counts() && !reflect.ValueOf(limits).IsZero() {
			errs = append(errs, errors.New("middleware: Options.RateLimit: a field is set, and there is no policy"))
		}
	}
	return newGuard(keys, o, errors.Join(errs...))
}

func newGuard(keys keystore.Store, o Options, unused error) *Guard {
	if keys == nil && o.Authenticate != nil && (o.Keys != KeyOptions{} || o.Failures != ratelimit.Limit{}) {
		unused = errors.Join(unused, errors.New("middleware: Options.Keys and Failures are for API keys; there is no key store"))
	}
	if err := errors.Join(o.Validate(), unused); err != nil {
		panic(err.Error())
	}
	if keys != nil && absent(keys) {
		panic(fmt.Sprintf("middleware: the key store is a nil %T", keys))
	}
	o = o.withDefaults()
	service, err := o.Service.Resolve(keys)
	if err != nil {
		panic("middleware: Options.Service: " + err.Error())
	}
	o.Service = service
	report := &reporter{own: o.Hooks, shapes: keyShapes(service), keyHeader: o.Keys.Header, proxies: o.TrustedProxies}
	g := &Guard{
		options: o, report: report,
		ids:      &requestIDs{o.RequestIDHeader, o.TrustRequestID, report},
		limits:   newLimiter(o.RateLimit, o.TrustedProxies, report),
		bodies:   &keyed.Bodies{Max: cmp.Or(o.Idempotency.MaxBodies, defaultMaxBodies)},
		warnings: make(map[*idem.Runner]*keyed.Warnings),
	}
	if keys != nil || o.Authenticate != nil {
		g.auth = newAuthentication(keys, o, report)
	}
	if o.Idempotency.Runner != nil {
		g.idempotency = g.newIdempotency(o.Idempotency, g.bodies)
		g.noIdempotent.Store(true)
	}
	g.noRateLimit.Store(g.limits.needsPrincipal() || g.limits.Client != nil)
	return g
}

func (g *Guard) newIdempotency(o IdempotencyOptions, bodies *keyed.Bodies) *idempotency {
	if g.warnings[o.Runner] == nil {
		g.warnings[o.Runner] = new(keyed.Warnings)
	}
	return newIdempotency(o, keyed.OriginalIDHeader(g.options.RequestIDHeader), bodies, g.warnings[o.Runner], g.report)
}

// Options returns the options with the defaults filled in.
func (g *Guard) Options() Options { return g.options }

// WaitSettled waits, after http.Server.Shutdown, until no idempotent request
// runs and the outcomes of all of them are saved, or until ctx is done.
func (g *Guard) WaitSettled(ctx context.Context) error {
	for runner := range g.warnings {
		if err := runner.WaitSettled(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Chain joins stages into one. The first is the outermost: it sees the request
// first and the response last. Chain panics on a nil stage.
func Chain(stages ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	for _, stage := range stages {
		if stage == nil {
			panic("middleware: Chain: a stage is nil")
		}
	}
	return func(next http.Handler) http.Handler {
		for i := len(stages) - 1; i >= 0; i-- {
			next = stages[i](next)
		}
		return next
	}
}
