package middleware

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// A Guard is the stages of one set of options, for a router of your own. Each
// stage is a method of the form func(http.Handler) http.Handler:
//
//	guard := middleware.New(keys, middleware.Options{ … })
//	r.Use(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)
//	r.With(guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Idempotent).Post("/tasks", create)
//
// A [Guard.Quota] stands in place of Idempotent. Each method says which stage must
// stand before it; see the package. Where a stage is configured and no handler uses it,
// the first request past Enforce that shows it logs a warning. A Guard is safe for
// concurrent use.
//
// A route with options of its own, such as another Runner, takes the stage that
// has them from a second Guard:
//
//	r.With(guard.Enforce(middleware.Require("keys:write")), leases.Idempotent).Post("/keys", issue)
//
// The Serve of one Guard does not wait for the replies of the other: call its
// WaitSettled. An [API] is the same stages with the order and the routing decided.
type Guard struct {
	options     Options
	report      *reporter
	ids         *requestIDs
	auth        *authentication // nil if nobody is authenticated
	limits      *limiter
	idempotency *idempotency // nil if it is off
	quotas      *quotas      // nil if the store of replies does not count
	bodies      *keyed.Bodies
	warnings    map[*idem.Runner]*keyed.Warnings
	longest     time.Duration // Timeout of idempotency, that of routes included

	// No handler has the stage yet, although the options configure it.
	noRateLimit, noIdempotent, noQuota atomic.Bool

	ownReplies atomic.Bool // replies are kept in this process, and the log does not say so yet
}

// New returns a Guard for the keys in a store. keys may be nil when
// [Guard.Authenticate] is not used or Options.Authenticate finds all callers.
// New panics on options that [Options.Validate] refuses, and on a Service that
// differs from that of a keystore.Cached in keys. With nil keys it also panics
// on ReportOnly without Options.Authenticate, and with Authenticate on options
// that are for API keys: KeyHeader, Environment, RejectBrowsers, Uses and
// Failures.
func New(keys keystore.Store, o Options) *Guard {
	if err := o.Validate(); err != nil {
		panic(err.Error())
	}
	if keys != nil && arguments.Absent(keys) {
		panic(fmt.Sprintf("middleware: the key store is a nil %T", keys))
	}
	if keys == nil && o.Authenticate != nil && (o.KeyHeader != "" || o.Environment != "" || o.RejectBrowsers ||
		o.Uses != nil || o.Failures != ratelimit.Limit{}) {
		panic("middleware: KeyHeader, Environment, RejectBrowsers, Uses and Failures of Options " +
			"are for API keys, and there is no key store")
	}
	o = o.withDefaults()
	var err error
	if o.Service, _, err = o.Service.Resolve(keys); err != nil {
		panic("middleware: Options.Service: " + err.Error())
	}
	ownReplies := o.Idempotency.Runner == nil && !o.Idempotency.Off
	if ownReplies {
		o.Idempotency.Runner = idem.NewRunner(&idem.Memory{Logger: o.Hooks.logger()}, idem.Options{Logger: o.Hooks.logger()})
	}
	report := &reporter{own: o.Hooks, shapes: keyShapes(o.Service), keyHeader: o.KeyHeader, proxies: o.proxies(),
		uses: o.Uses, advises: !o.NoShouldRetry, metadata: o.ResourceMetadata}
	g := &Guard{
		options: o, report: report,
		ids:      &requestIDs{o.RequestIDHeader, o.TrustRequestID, report},
		limits:   newLimiter(o.RateLimit, report.proxies, report),
		bodies:   keyed.NewBodies(cmp.Or(o.Idempotency.MaxBodies, defaultMaxBodies)),
		warnings: make(map[*idem.Runner]*keyed.Warnings),
	}
	if keys != nil || o.Authenticate != nil {
		g.auth = newAuthentication(keys, o, report)
	}
	if o.ReportOnly {
		if g.auth == nil {
			panic("middleware: Options.ReportOnly is about authentication, and there is none")
		}
		o.Hooks.logger().Warn("middleware: Options.ReportOnly is on: " +
			"requests that authentication would refuse go on without a caller")
	}
	if !o.Idempotency.Off {
		g.idempotency = g.newIdempotency(o.Idempotency, g.bodies)
		g.ownReplies.Store(ownReplies)
		g.noIdempotent.Store(true)
		g.quotas = newQuotas(o, report)
	}
	g.noRateLimit.Store(g.limits.limits())
	g.noQuota.Store(o.Quota.limits())
	return g
}

// newIdempotency makes options ready. Stages with one Runner share warnings.
func (g *Guard) newIdempotency(o IdempotencyOptions, bodies *keyed.Bodies) *idempotency {
	if g.warnings[o.Runner] == nil {
		g.warnings[o.Runner] = keyed.NewWarnings(g.report.once)
	}
	g.longest = max(g.longest, o.Timeout)
	runner, report := o.Runner.Options(), g.report
	return &idempotency{
		IdempotencyOptions: o,
		wait:               max(runner.Wait, 0) + o.Timeout + 2*runner.Timeout,
		stage: keyed.Stage{
			Bodies: bodies, MaxResponse: o.MaxResponse, Streaming: o.Streaming, Timeout: o.Timeout,
			Retention: runner.Retention, Join: runner.Join, FreeOn: o.FreeOn, JSONByValue: o.JSONByValue,
			OriginalID: keyed.OriginalIDHeader(g.options.RequestIDHeader), Warnings: g.warnings[o.Runner],
			Advises: report.advises, Log: report.logWith, Failed: report.sampled,
			Panicked: func(w http.ResponseWriter, r *http.Request, p any) {
				report.logPanic(exchangeOf(w), r, p)
				recordOf(w).panicked()
			},
			Answer500: func(w http.ResponseWriter, r *http.Request) {
				report.refuse(w, r, StageRecover, denied(codes.Internal))
			},
		},
	}
}

// useIdempotent notes that a handler stands inside the stage, with the Runner of
// the options.
func (g *Guard) useIdempotent() {
	g.noIdempotent.Store(false)
	if g.ownReplies.CompareAndSwap(true, false) {
		g.options.Hooks.logger().Info("middleware: Options.Idempotency has no Runner: replies are kept in the memory of " +
			"this process; several replicas need a Runner on a store that they share")
	}
}

// admits reports whether a stage may go on with the caller of f: a known one, or
// one whom a Guard let through unknown that is report-only as this one is.
func (g *Guard) admits(f *facts) bool {
	return f != nil && (f.caller != nil || f.reported && g.options.ReportOnly)
}

// Options returns the options with the defaults filled in.
func (g *Guard) Options() Options { return g.options }

// WaitSettled waits, after http.Server.Shutdown, until no keyed request
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
