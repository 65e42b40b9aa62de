package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
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
	auth        Authenticator
	keys        []*keyAuthenticator // of auth
	shapes      *regexp.Regexp      // of API keys
	missing     *Problem            // for a request without credentials
	limits      *limiter
	idempotency *idempotency // nil without a Runner
	runners     map[*idem.Runner]*runnerLog
	bodies      *keyed.Bodies // of idempotent requests
	faults      faults
	unchecked   fault // of credentials
	refusals    fault // of callers that NewPrincipal does not accept

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
	g := &Guard{options: o, auth: o.Authenticator}
	if keys != nil {
		own := newKeyAuthenticator(keys, o)
		own.invalid = own.refusal("") // shared by all requests: only the Guard has it
		g.auth = own
	}
	g.keys = keyAuthenticators(g.auth)
	services := []keystore.Service{o.Service}
	for _, keys := range g.keys {
		services = append(services, keys.service)
	}
	g.shapes = keyShapes(services...)
	g.missing = refusal(codeAPIKeyMissing)
	g.missing.Challenge = `Bearer realm="` + o.Keys.Realm + `"`
	g.limits = newLimiter(o)
	g.runners = make(map[*idem.Runner]*runnerLog)
	g.bodies = &keyed.Bodies{Max: cmp.Or(o.Idempotency.MaxBodies, defaultMaxBodies)}
	if o.Idempotency.Runner != nil {
		g.idempotency = g.newIdempotency(o.Idempotency, g.bodies)
		g.noIdempotent.Store(true)
	}
	g.noRateLimit.Store(g.limits.needsPrincipal() || g.limits.Client != nil)
	return g
}

// resolveService makes o.Service that of the key store or of the key
// authenticators, unless it is given. These may differ in the shape of their
// keys, not in the scopes.
func (o *Options) resolveService(keys keystore.Store) (err error) {
	joined := keyAuthenticators(o.Authenticator)
	if len(joined) > 0 && reflect.ValueOf(o.Service).IsZero() {
		o.Service = joined[0].service
	}
	if o.Service, err = o.Service.Resolve(keys); err != nil {
		return err
	}
	for _, a := range joined {
		if a.service.Scopes != o.Service.Scopes {
			return fmt.Errorf("it has the scopes %v; a KeyAuthenticator has the scopes %v; give both the same Service", o.Service.Scopes, a.service.Scopes)
		}
	}
	return nil
}

// WaitSettled waits, after http.Server.Shutdown, until no idempotent request
// runs and the outcomes of all of them are saved, or until ctx is done.
func (g *Guard) WaitSettled(ctx context.Context) error {
	for runner := range g.runners {
		if err := runner.WaitSettled(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hooks returns the hooks for a request: the guard's own, or those of the stage
// outside it.
func (g *Guard) hooks(r *http.Request) *Hooks {
	if g.options.Hooks != nil {
		return g.options.Hooks
	}
	if f := factsOf(r.Context()); f != nil {
		return f.hooks
	}
	return nil
}

// insideIdempotent reports whether w and r belong to the request of an outer
// Idempotent: w is part of its response, or r is that request, behind a writer
// that hides it. A request within a request is another one, with another
// response.
func (g *Guard) insideIdempotent(w http.ResponseWriter, r *http.Request) bool {
	f := factsOf(r.Context())
	if f == nil || f.idempotency == nil {
		return false
	}
	// WithPrincipal hides the claim, and without RequestID there is no response
	// to compare.
	return keyed.Answers(w) || f.claim == nil && f.response == exchangeOf(w) || keyed.SameRequest(f.repeatable, r)
}

// misuse answers 500 for stages that are put together wrongly, because to pass
// the request on would be unsafe.
func (g *Guard) misuse(w http.ResponseWriter, r *http.Request, stage Stage, what string) {
	g.logger(w, r).Error("middleware: " + what)
	g.refuse(w, r, stage, refusal(codeInternal))
}

// warnUnused warns, once for each stage, of a request that has passed a Guard
// without a stage which its options configure. It is called at the end: some
// routers apply a stage anew for each request.
func (g *Guard) warnUnused(w http.ResponseWriter, r *http.Request) {
	if g.noRateLimit.Load() && g.noRateLimit.CompareAndSwap(true, false) {
		g.logger(w, r).Warn("middleware: Options.RateLimit has limits, and nothing counts requests: the Guard's RateLimit has not been used so far")
	}
	if g.noIdempotent.Load() && len(r.Header["Idempotency-Key"]) > 0 && slices.Contains(g.idempotency.Methods, r.Method) && g.noIdempotent.CompareAndSwap(true, false) {
		g.logger(w, r).Warn("middleware: Options.Idempotency has a Runner, and an Idempotency-Key was ignored: the Guard's Idempotent has not been used so far")
	}
}

// logger returns a logger whose lines say which request they are about. A
// client may have put its key into the path. The header is not looked at: a
// handler that outlives its request may be the caller.
func (g *Guard) logger(w http.ResponseWriter, r *http.Request) *slog.Logger {
	return g.hooks(r).logger().With("request_id", requestID(w, r), "method", g.method(r), "path", (&redact.Secrets{Shapes: g.shapes}).Redact(r.URL.Path))
}

// method returns the method of a request for a log. Net/http takes any token of
// up to a megabyte for one, and it may be an API key: of the first 16 bytes a
// key has no more than redaction leaves.
func (g *Guard) method(r *http.Request) string {
	m := r.Method
	if len(m) <= len(http.MethodOptions) {
		return m
	}
	return (&redact.Secrets{Shapes: g.shapes}).Redact(m[:min(len(m), 16)])
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
