package middleware

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// API is an http.Handler that implements the whole contract for the routes
// registered with it. It owns the order of the stages, which is the security of
// the whole:
//
//	RequestID → Recover → Authenticate → (mux) → RateLimit → Require → Idempotent → handler
//
// Everything up to Authenticate runs before the mux, so that without a key
// every path, known or not, is a 401. The rest runs for the pattern that
// matched, never for the text of the URL. A 404, a 405 or a redirect of the mux
// is charged to the organization and key like any request. The code of this
// path is in path.go: it calls the inside of each stage, not the methods of the
// Guard; its open and close are RequestID and Recover.
//
// Register all routes, then serve: Handle must not be called concurrently with
// ServeHTTP.
type API struct {
	guard  *Guard
	base   string
	mux    *http.ServeMux
	routes []Route
	own    []RouteOptions             // of routes with a limit of their own
	limits map[string]ratelimit.Limit // of routes, by the policy's name
}

// NewAPI returns an API without routes, for the keys in a store. It panics on
// options that [Options.Validate] refuses.
func NewAPI(keys keystore.Store, o Options) *API {
	g := newGuard(keys, o, nil)
	if g.auth == nil {
		panic("middleware: NewAPI: there is neither a key store nor an Options.Authenticator")
	}
	return &API{guard: g, base: strings.TrimRight(g.options.Base, "/"), mux: http.NewServeMux(), limits: make(map[string]ratelimit.Limit)}
}

// A Route is what was registered with [API.Handle].
type Route struct {
	Method, Path string // Path as in the pattern, wildcards and a host included
	Need         Requirement
	Idempotent   bool
	KeyRequired  bool // a request without an Idempotency-Key is refused
}

// Routes returns the routes in the order of registration.
func (a *API) Routes() []Route { return slices.Clone(a.routes) }

// Options returns the API's options with the defaults filled in.
func (a *API) Options() Options { return a.guard.options }

// Stats is [Guard.Stats].
func (a *API) Stats() Stats { return a.guard.Stats() }

// WaitSettled is [Guard.WaitSettled].
func (a *API) WaitSettled(ctx context.Context) error { return a.guard.WaitSettled(ctx) }

// RouteOptions are the options of one route, beside the API's.
type RouteOptions struct {
	// Limit is a policy of this route, beside the API's limits. Routes with the
	// same policy share its buckets, one for each organization and environment.
	// It needs RateLimit.Store.
	Limit *ratelimit.Policy
	// Cost is what one request spends of each policy; 0 means 1. It needs a
	// policy. HandleWith panics if Cost is above the burst of Limit, or of a
	// policy that refuses and that no plan replaces. Where a plan chooses a
	// policy with a smaller burst, the request gets 400.
	Cost int64
	// ReportOnly makes the requirement and all limits of the route refuse
	// nothing. [Event].Reported tells what would have been refused. Concurrent
	// still refuses.
	ReportOnly bool
	// Idempotency changes the API's for this route: a field that is zero has
	// the API's value, the Runner too. It must name the route's method, where
	// the API does not.
	Idempotency *IdempotencyOptions
	// NotIdempotent takes the route out of idempotency: an Idempotency-Key is
	// ignored.
	NotIdempotent bool
}

// Handle registers a handler for a pattern of [http.ServeMux] and says which
// scopes a key needs. The pattern must name its method and lie under the base
// path. A POST handler is idempotent when the API has an Idempotency.Runner.
//
// It panics on a pattern that is malformed, without a method, outside the base
// or registered before, on a requirement that is empty or names an unknown
// scope, and on a nil handler, also a nil pointer or function.
func (a *API) Handle(pattern string, need Requirement, h http.Handler) {
	a.HandleWith(pattern, need, RouteOptions{}, h)
}

// HandleFunc is [API.Handle] for a function.
func (a *API) HandleFunc(pattern string, need Requirement, h func(http.ResponseWriter, *http.Request)) {
	a.Handle(pattern, need, http.HandlerFunc(h))
}

// HandleWith is [API.Handle] for a route with options of its own. It also
// panics if the options are not valid.
func (a *API) HandleWith(pattern string, need Requirement, o RouteOptions, h http.Handler) {
	method, path := a.split(pattern)
	if absent(h) {
		mistake(pattern, "the handler is nil")
	}
	need.reportOnly = need.reportOnly || o.ReportOnly
	check, err := a.guard.newScopeCheck(need)
	if err != nil {
		mistake(pattern, err.Error())
	}
	if err := a.guard.limits.validRoute(o); err != "" {
		mistake(pattern, err)
	}
	idempotency, err := a.guard.routeIdempotency(method, o)
	if err != nil {
		mistake(pattern, err.Error())
	}
	if p := o.Limit; p != nil {
		if other, taken := a.limits[p.Name]; taken && other != p.Limit {
			mistake(pattern, "another route has a different rate limit of the name "+strconv.Quote(p.Name))
		}
		a.limits[p.Name] = p.Limit
		a.own = append(a.own, o)
	}
	rt := &route{api: a, scope: check, options: o, handler: h}
	described := Route{Method: method, Path: path, Need: need}
	if idempotency != nil {
		rt.idempotent = &idempotentStage{idempotency, a.guard, h}
		described.Idempotent, described.KeyRequired = true, idempotency.Required
	}
	a.mux.Handle(pattern, rt)
	a.routes = append(a.routes, described)
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
		mistake(pattern, "the path is not under "+a.base)
	}
	return method, path
}

func mistake(pattern, what string) {
	panic("middleware: API.Handle(" + strconv.Quote(pattern) + "): " + what)
}

// counts reports whether there is a policy for every route.
func (o RateLimitOptions) counts() bool {
	return o.Plan != nil || o.KeyPlan != nil || slices.ContainsFunc(o.policies(), func(p *ratelimit.Policy) bool { return p != nil })
}

// validRoute says what is wrong with the limit or the cost of a route, or "".
func (l *limiter) validRoute(o RouteOptions) string {
	switch {
	case o.Cost < 0:
		return "RouteOptions.Cost is negative"
	case o.Cost > 0 && o.Limit == nil && !l.counts():
		return "RouteOptions.Cost is set and no policy applies to the route"
	case o.Limit != nil && l.Store == nil:
		return "the route has a rate limit and RateLimit.Store is nil"
	case o.Limit != nil:
		if err := o.Limit.Validate(); err != nil {
			return "RouteOptions.Limit: " + err.Error()
		}
	}
	policies := l.policies() // Organization, Sandbox, Key, Client
	for i, p := range append(policies, o.Limit) {
		own := i == len(policies)
		replaced := i < 2 && l.Plan != nil || i == 2 && l.KeyPlan != nil
		switch {
		case p == nil:
		case o.Cost > p.Limit.Capacity() && (own || !replaced && !p.ReportOnly && !o.ReportOnly):
			return "the cost is more than the burst of policy " + strconv.Quote(p.Name) + ", so no request under it would ever pass"
		case o.Limit != nil && !own && p.Name == o.Limit.Name:
			return "the route's rate limit has the name " + strconv.Quote(p.Name) + " of one of the API's"
		}
	}
	return ""
}
