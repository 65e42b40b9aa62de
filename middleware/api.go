package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/arguments"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// API is an http.Handler that implements the whole contract for the routes
// registered with it. It owns the order of the stages, which is the security of
// the whole:
//
//	RequestID → Recover → Authenticate → (mux) → RateLimit → Enforce → Quota → Idempotent → handler
//
// Everything up to Authenticate runs before the mux, so that without a key
// every path, known or not, is a 401. The rest runs for the pattern that
// matched, never for the text of the URL. A 404, a 405 or a redirect of the mux
// is charged to the organization and key like any request.
//
// A CORS middleware stands around it, and RequestID around both:
// api.Guard().RequestID(cors(api)). Routes beside it that ask for less, such as
// webhooks without a key, have the stages of that [Guard]. Register all routes,
// then serve: Handle must not be called concurrently with ServeHTTP.
type API struct {
	guard *Guard

	base   string
	path   gate
	mux    *http.ServeMux
	routes []Route
	limits map[string]ratelimit.Limit // of routes, by the policy's name
	quotas map[string]idem.Quota      // of routes, by their names
	places map[string]string          // file and line where each pattern was registered
}

// NewAPI returns an API without routes, for the keys in a store, which may be nil
// if Options.Authenticate finds all callers. It panics on options that
// [Options.Validate] refuses.
func NewAPI(keys keystore.Store, o Options) *API {
	g := New(keys, o)
	if g.auth == nil {
		panic("middleware: NewAPI: there is neither a key store nor Options.Authenticate")
	}
	a := &API{
		guard:  g,
		base:   strings.TrimRight(g.options.Base, "/"),
		mux:    http.NewServeMux(),
		limits: make(map[string]ratelimit.Limit),
		quotas: make(map[string]idem.Quota),
		places: make(map[string]string),
	}
	a.path = gate{guard: g, ids: true, recovers: true, authenticates: true, mux: a.mux}
	return a
}

// ServeHTTP is the path of a request, in path.go. A handler may send another
// request through the API on its own context: it needs its own API key, and no
// decision about the outer request holds for it. A handler that clones its request
// for that clears RequestURI: inside [Guard.Idempotent] a clone is otherwise taken
// for the request itself, which an API refuses with 500.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.path.ServeHTTP(w, r) }

// Guard returns the stages that the API is made of, for what stands around or
// beside it.
func (a *API) Guard() *Guard { return a.guard }

// A Route is what was registered with [API.Handle].
type Route struct {
	Method, Path string       // Path as in the pattern, wildcards and a host included
	Scopes       []scope.Name // that the caller needs
	AnyOf        bool         // one of Scopes is enough

	// Options are what Handle was given. The fields of Idempotency that are zero
	// have the API's values; if the route is not idempotent, Off is set.
	Options RouteOptions
}

// Routes returns the routes in the order of registration.
func (a *API) Routes() []Route {
	routes := slices.Clone(a.routes)
	for i := range routes {
		routes[i].Scopes = slices.Clone(routes[i].Scopes)
	}
	return routes
}

// RouteOptions are the options of one route, beside the API's.
type RouteOptions struct {
	// Policy is a limit of this route, beside the API's limits; it needs
	// RateLimit.Store. Routes with the same policy share its buckets, one for each
	// tenant. With ratelimit.Unlimited the requests of the route are charged to no
	// policy, the API's and Client among them, and only Concurrent counts them.
	Policy *ratelimit.Policy
	// Cost is what one request spends of each policy; 0 means 1. It needs a
	// policy. Handle panics if Cost is above the burst of Policy, or of a policy
	// of the API that is not report-only and that no RateLimit.Plan replaces.
	// Where a plan chooses a policy with a smaller burst, the request gets 400.
	Cost int64
	// Units is what an operation of this route uses of the quotas; 0 means that it
	// is free and asks none. See [QuotaOptions]. It needs Options.Quota or Quota,
	// and a Runner whose store is that of the API's. A handler adds what it finds
	// out by [AddUnits].
	Units int64
	// Quota is for Units of a kind of their own, such as images: they are counted
	// apart, under its name, and are limited for each tenant by it alone. Routes
	// with the same Quota share what it allows.
	Quota *idem.Quota
	// Idempotency changes the API's for this route: a field that is zero has the
	// API's value, the Runner too. Off takes the route out. Where
	// Options.Idempotency.Methods lacks the method of the route, set Methods here.
	Idempotency IdempotencyOptions
	// Deprecated is since when, or from when on, clients should not use the
	// route; Sunset is when it will be gone, not before. Responses of the route
	// say so in the fields Deprecation (RFC 9745) and Sunset (RFC 8594), its
	// refusals and replays too, but for those of a request without a caller, which
	// come before the route is known. [Event].Deprecated tells who still calls.
	Deprecated, Sunset time.Time
	// Successor is the URL of a page that says what to use in place of the
	// route: a Link of the relations "deprecation" and "sunset", as they are set.
	Successor string
}

// Handle registers a handler for a pattern of [http.ServeMux] and says which
// scopes a key needs. The pattern must name its method and lie under the base
// path. A POST handler is idempotent, unless Options.Idempotency is Off.
//
// At most one RouteOptions may be given; without one the route has what the API
// has. Handle panics on a pattern that is malformed, without a method, outside
// the base or registered before, on a requirement that is empty or names an
// unknown scope, on a nil handler, and on options that are not valid.
func (a *API) Handle(pattern string, need Requirement, h http.Handler, options ...RouteOptions) {
	var o RouteOptions
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		mistake(pattern, "RouteOptions are given more than once")
	}
	method, path := a.split(pattern)
	if arguments.Absent(h) {
		mistake(pattern, "the handler is nil")
	}
	limit := routeLimit{o.Policy, o.Cost}
	check, scopeErr := newScopeCheck(need, a.guard.options.Service.Scopes)
	repeats, repeatErr := a.routeIdempotency(method, o.Idempotency)
	quota, quotaErr := a.guard.quotas.routeStage(o.Units, o.Quota, repeats)
	ends, endErr := newDeprecation(o.Deprecated, o.Sunset, o.Successor)
	if err := cmp.Or(scopeErr, a.guard.limits.validRoute(limit), repeatErr, quotaErr, endErr); err != nil {
		mistake(pattern, err.Error())
	}
	if p := o.Policy; p != nil && p != ratelimit.Unlimited {
		if other, taken := a.limits[p.Name]; taken && other != p.Limit {
			mistake(pattern, "another route has a different rate limit of the name "+strconv.Quote(p.Name))
		}
		a.limits[p.Name] = p.Limit
	}
	if q := o.Quota; q != nil {
		if other, taken := a.quotas[q.Name]; taken && other != *q {
			mistake(pattern, "another route has a different quota of the name "+strconv.Quote(q.Name))
		}
		a.quotas[q.Name] = *q
	}
	if quota != nil {
		a.guard.noQuota.Store(false)
	}
	rt := &route{guard: a.guard, limit: limit, scope: check, quota: quota, deprecation: ends, next: h}
	o.Idempotency = IdempotencyOptions{Off: true}
	if repeats != nil {
		rt.idempotent = &idempotentStage{repeats, a.guard.report, h}
		o.Idempotency = repeats.IdempotencyOptions
	}
	a.register(pattern, rt)
	a.routes = append(a.routes, Route{Method: method, Path: path, Scopes: need.names, AnyOf: need.any, Options: o})
}

var registeredHere = regexp.MustCompile(`pattern ("[^"]*") \(registered at [^)]*\)`)

// register panics as ServeMux does, with the places where Handle was called in
// place of its own.
func (a *API) register(pattern string, rt *route) {
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	caller, more := frames.Next()
	for more && strings.Contains(caller.Function, "middleware.(*API).") {
		caller, more = frames.Next()
	}
	place := caller.File + ":" + strconv.Itoa(caller.Line)
	defer func() {
		if v := recover(); v != nil {
			at := func(string) string { return place } // the new pattern comes first
			panic(registeredHere.ReplaceAllStringFunc(fmt.Sprint(v), func(text string) string {
				quoted := registeredHere.FindStringSubmatch(text)[1]
				known, _ := strconv.Unquote(quoted)
				text = "pattern " + quoted + " (registered at " + at(known) + ")"
				at = func(known string) string { return a.places[known] }
				return text
			}))
		}
	}()
	a.mux.Handle(pattern, rt)
	a.places[pattern] = place
}

// HandleFunc is [API.Handle] for a function.
func (a *API) HandleFunc(
	pattern string, need Requirement, h func(http.ResponseWriter, *http.Request), options ...RouteOptions,
) {
	a.Handle(pattern, need, http.HandlerFunc(h), options...)
}

// split returns the method and the path of a pattern.
func (a *API) split(pattern string) (method, path string) {
	cut := strings.IndexAny(pattern, " \t")
	if cut <= 0 || strings.Contains(pattern[:cut], "/") {
		mistake(pattern, "the pattern names no method; write it as \"GET "+a.base+"/…\"")
	}
	method, path = pattern[:cut], strings.TrimLeft(pattern[cut:], " \t")
	slash := strings.IndexByte(path, '/')
	if slash < 0 || path[slash:] != a.base && !strings.HasPrefix(path[slash:], a.base+"/") {
		mistake(pattern, "the path is not under "+a.base+", the Base of the Options")
	}
	return method, path
}

func mistake(pattern, what string) {
	panic("middleware: API.Handle(" + strconv.Quote(pattern) + "): " + what)
}

// routeIdempotency returns that of a route, or nil if the route has none.
func (a *API) routeIdempotency(method string, own IdempotencyOptions) (*idempotency, error) {
	const of = "RouteOptions.Idempotency"
	g, inherits := a.guard, reflect.ValueOf(own).IsZero()
	switch {
	case inherits && (g.idempotency == nil || !slices.Contains(g.idempotency.Methods, method)):
		return nil, nil
	case inherits:
		g.useIdempotent()
		return g.idempotency, nil
	case own.Off:
		return nil, named(of, own.validate())
	case own.Runner == nil && g.idempotency == nil:
		return nil, errors.New(of + " has no Runner, and that of the API is Off")
	case own.Runner == nil:
		g.useIdempotent()
	}
	merged := own.orElse(g.options.Idempotency)
	merged.Off = false
	merged = merged.withDefaults()
	m := mistakes{merged.validate()}
	m.when(!slices.Contains(merged.Methods, method),
		"the field Methods is %q and does not have the route's %s", merged.Methods, method)
	if err := errors.Join(m...); err != nil {
		return nil, named(of, err)
	}
	bodies := g.bodies
	if own.MaxBodies != 0 {
		bodies = keyed.NewBodies(merged.MaxBodies)
	}
	return g.newIdempotency(merged, bodies), nil
}
