package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/scope"
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
// [Guard.Authenticate] is not used or Options.Authenticator is set. New panics
// on options that [Options.Validate] refuses. With keys or an Authenticator it
// also panics on a Base and on a RateLimit without a policy: only an API uses
// them. Without either it accepts an API's options, for example to use one
// stage.
func New(keys keystore.Store, o Options) *Guard {
	var errs []error
	if keys != nil || o.Authenticator != nil {
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
	if err := errors.Join(o.Validate(), unused); err != nil {
		panic(err.Error())
	}
	if keys != nil && o.Authenticator != nil {
		panic("middleware: both a key store and Options.Authenticator are given; leave one of them nil")
	}
	if keys != nil && absent(keys) {
		panic(fmt.Sprintf("middleware: the key store is a nil %T", keys))
	}
	o = o.withDefaults()
	if err := o.resolveService(keys); err != nil {
		panic("middleware: Options.Service: " + err.Error())
	}
	report := &reporter{own: o.Hooks, clientIP: o.ClientIP}
	g := &Guard{
		options: o, report: report,
		ids:      &requestIDs{o.RequestID, report},
		limits:   newLimiter(o.RateLimit, o.ClientIP, report),
		bodies:   &keyed.Bodies{Max: cmp.Or(o.Idempotency.MaxBodies, defaultMaxBodies)},
		warnings: make(map[*idem.Runner]*keyed.Warnings),
	}
	authenticator := o.Authenticator
	if keys != nil {
		own := o.authenticator(keys)
		own.invalid = own.refusal("") // shared by all requests: only the Guard has it
		authenticator = own
	}
	services := []keystore.Service{o.Service}
	if authenticator != nil {
		g.auth = newAuthentication(authenticator, o.Service.Scopes, o.Keys.Realm, o.Preflight, report)
		for _, keys := range g.auth.keys {
			services = append(services, keys.service)
			report.headers = append(report.headers, keys.Header)
		}
	}
	report.shapes = keyShapes(services...)
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
	return newIdempotency(o, keyed.OriginalIDHeader(g.options.RequestID.Header), bodies, g.warnings[o.Runner], g.report)
}

// RequestID gives each request an id ([xid]: 20 characters, sortable by time,
// not secret) and each response one header that carries it.
//
// It MUST be the outermost stage; a handler outside it, such as an
// http.TimeoutHandler, answers without the header. The header is enforced when
// the response is committed, for every status including 1xx, so that no handler
// inside can remove, overwrite or repeat it. [RequestIDListener] covers the
// answers that net/http gives before any handler runs.
//
// A RequestID inside another one does nothing for the same response. When the
// response ends, [Hooks].Observe is told of it.
//
// [xid]: https://github.com/rs/xid
func (g *Guard) RequestID(next http.Handler) http.Handler {
	return g.outside(&gate{ids: true, next: next})
}

// Recover answers a panic with 500 and keeps the connection. If the response is
// already committed, it aborts the connection, so that a truncated body is
// never taken for a whole one. The panic and its stack, which has no arguments,
// go to the log without the request's credentials: no eight characters of one
// in a row. A credential of less than four characters stays. A text of more
// than 8 KiB is cut. If the credentials are more than 8 KiB, the type of the
// panic replaces its text. http.ErrAbortHandler passes through without a log
// line, as in net/http.
//
// It SHOULD stand directly inside [Guard.RequestID]; without one outside, it
// adds one.
func (g *Guard) Recover(next http.Handler) http.Handler {
	return g.outside(&gate{ids: true, recovers: true, next: next})
}

// Authenticate lets a request pass that carries a live API key as a Bearer
// token (RFC 6750, section 2.1), and tells the stages and handlers inside who
// the caller is (see [PrincipalFrom]).
//
//   - No credentials, or a scheme other than Bearer: 401 with a challenge.
//   - Anything else that is not a live key: 401 with error="invalid_token".
//   - The store does not answer: 503 with Retry-After, never 401, because
//     clients do not retry a 401.
//   - This client address has used up Options.Failures: 429. A live key that
//     the keystore.Cached remembers still passes, so wrong keys cannot lock out
//     a key that is in use.
//
// [Guard.RequestID] and [Guard.Recover] SHOULD stand before it. Nothing checks
// that: without RequestID its refusals have no id.
// Put a keystore.Cached in front of a store that is not in memory.
func (g *Guard) Authenticate(next http.Handler) http.Handler {
	if g.auth == nil {
		panic("middleware: Authenticate: the Guard was made without a key store and without an Authenticator")
	}
	return &gate{guard: g, authenticates: true, next: next}
}

// RateLimit answers 429 with Retry-After for a request over its limits:
// the shortest wait, of at least a second, after which the same request is
// admitted if no other is charged.
//
// [Guard.Authenticate] MUST stand before it, unless Client is the only limit.
// RateLimit SHOULD stand before [Guard.Idempotent], so that a refusal is never
// taken for the operation's response. Inside it, a refusal frees the key, unless
// the body was read or the response begun: nothing between the two may have an
// effect.
func (g *Guard) RateLimit(next http.Handler) http.Handler {
	g.noRateLimit.Store(false)
	if !g.limits.needsPrincipal() && g.limits.Client == nil {
		return next
	}
	return g.inside(&piece{route: route{limits: g.limits, next: next}})
}

// Require lets a request pass whose key holds all of the named scopes and
// answers others with 403 and error="insufficient_scope" (RFC 6750, section
// 3.1).
//
// [Guard.Authenticate] MUST stand before it. It MUST NOT stand inside
// [Guard.Idempotent]: a replay would not pass through it. Require panics when no
// name is given, or one that Options.Service does not have.
func (g *Guard) Require(all ...scope.Name) func(http.Handler) http.Handler {
	return g.Check(Require(all...))
}

// RequireAny is [Guard.Require] for at least one of the named scopes.
func (g *Guard) RequireAny(oneOf ...scope.Name) func(http.Handler) http.Handler {
	return g.Check(RequireAny(oneOf...))
}

// AnyKey is [Guard.Require] for any live key, even one without scopes.
func (g *Guard) AnyKey(next http.Handler) http.Handler { return g.Check(AnyKey())(next) }

// Check is [Guard.Require] for a Requirement, such as one that is report-only.
func (g *Guard) Check(need Requirement) func(http.Handler) http.Handler {
	check, err := newScopeCheck(need, g.options.Service.Scopes, g.options.Keys.Realm)
	if err != nil {
		panic("middleware: Require: " + err.Error())
	}
	return func(next http.Handler) http.Handler {
		return g.inside(&piece{route: route{scope: check, next: next}})
	}
}

// Idempotent makes a retried request return the original response and take
// effect once. A request that carries an Idempotency-Key
// (draft-ietf-httpapi-idempotency-key-header-07) claims it; a repeat gets the
// stored response with Idempotent-Replayed: true, the first one's id in
// Svc-Original-Request-Id and a request id of its own.
//
//   - A key belongs to organization, environment, subject and Partition. The
//     same key with another method, host, path, query, Range, content type or
//     body gets 422.
//   - A repeat of a request in progress waits for it.
//   - The handler runs on the request's goroutine with a context that does not
//     end when the client leaves. Its response is saved, then sent.
//   - With leases ([idem.Options].Join is false) every response is retained,
//     whatever its status, unless the handler calls [FreeKey] or the status
//     is in FreeOn: then the key is free, and a repeat runs the handler again.
//     After a panic the 500 is retained.
//   - In joined mode a 2xx or 3xx is retained with the handler's rows, and a 4xx
//     without them. A 401, 403, 425, 429, 5xx and a panic roll back and free
//     the key.
//   - With leases a response of a streaming media type streams from its first
//     flush on. It is recorded meanwhile, and if it ends within MaxResponse, a
//     repeat gets all of it at once. If the client leaves, the handler may go on
//     for one Timeout; without the recording its context ends, as without a key.
//     A response that grows over MaxResponse streams too, and is not retained.
//   - In joined mode a flushed response of a streaming media type is committed
//     before its first byte leaves, and is not retained. All others are held
//     back to their end, whatever their size.
//   - A stream whose context ends before its handler returns is aborted and not
//     retained: it may be cut short. A panic or an abort in the middle leaves an
//     unknown outcome.
//   - Repeats of a response that is not retained get 409, and never run the
//     handler again. The log has a line for each route and reason, unless the
//     handler called [NotRetained].
//   - A replay has no Set-Cookie, no trailers and no 1xx responses, and neither
//     Date nor the RateLimit and CORS fields of the original.
//   - When the store does not answer, the handler does not run: 503.
//
// A decision of [Guard.Require], RequireAny or AnyKey MUST stand before it,
// because a replay must not reach a key that may not see it. [Guard.RateLimit]
// SHOULD stand before it. Compression belongs outside it; where the handler
// compresses by itself, a retry with another Accept-Encoding gets the stored
// bytes. Requests without an Idempotency-Key pass, unless Required is
// set.
//
// Replies are kept as plain text wherever the store keeps them.
func (g *Guard) Idempotent(next http.Handler) http.Handler {
	if g.idempotency == nil {
		panic("middleware: Idempotent: Options.Idempotency.Runner is nil")
	}
	g.noIdempotent.Store(false)
	return g.inside(&piece{route: route{idempotent: &idempotentStage{g.idempotency, g.report, next}, next: next}})
}

// warnUnused warns, once for each stage, of a request that has passed a Guard
// without a stage which its options configure. It is called at the end: some
// routers apply a stage anew for each request.
func (g *Guard) warnUnused(w http.ResponseWriter, r *http.Request) {
	if g.noRateLimit.Load() && g.noRateLimit.CompareAndSwap(true, false) {
		g.report.logWith(w, r).Warn("middleware: Options.RateLimit has limits, and nothing counts requests: the Guard's RateLimit has not been used so far")
	}
	if g.noIdempotent.Load() && len(r.Header["Idempotency-Key"]) > 0 && slices.Contains(g.idempotency.Methods, r.Method) && g.noIdempotent.CompareAndSwap(true, false) {
		g.report.logWith(w, r).Warn("middleware: Options.Idempotency has a Runner, and an Idempotency-Key was ignored: the Guard's Idempotent has not been used so far")
	}
}

// Limits returns what the caller has left of each limit of the organization and
// of the key or subject, and charges nothing. The limit by client address and
// RateLimitOptions.Concurrent belong to no caller and are left out. For an API,
// see [API.Limits].
func (g *Guard) Limits(ctx context.Context, p Principal) ([]LimitState, error) {
	return g.limits.states(ctx, p, nil)
}

// ResetLimits gives the caller all units of what [Guard.Limits] returns: that
// is the organization's limit for all its keys in this environment. The error
// wraps errors.ErrUnsupported if the store is no ratelimit.Resetter.
func (g *Guard) ResetLimits(ctx context.Context, p Principal) error {
	return g.limits.reset(ctx, p, nil)
}

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
