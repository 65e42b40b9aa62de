package middleware

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// Options configure an [API]. The zero value is the contract as it stands,
// without limits and without idempotency.
type Options struct {
	// Base is the path under which every route lies; "" means "/api/v1".
	Base string

	// Format is the shape of the keys, RequestID.Header the name of the request
	// id's header: the two places that carry the service's own abbreviation.
	Format    keystore.Format
	RequestID RequestIDOptions

	// Registry holds the scopes; nil means scope.Contract().
	Registry *scope.Registry

	// Auth has what else Authenticate can be told. Its Format, Registry and Hooks
	// are taken from here when they are not set.
	Auth AuthOptions

	// Failures, when set, is the limit of [ThrottleFailures].
	Failures ratelimit.Limit
	// ClientIP finds the client's address for Failures and, unless Limits has one of
	// its own, for Limits.Client.
	ClientIP ClientIP

	Limits Limits

	// Replies, when set, makes every POST route idempotent, as Idempotency says.
	Replies     idem.Store
	Idempotency IdempotencyOptions

	Hooks *Hooks
}

// API is an http.Handler that keeps the whole contract for the routes registered
// with it. It owns the order of the stages, which is the security of the whole:
//
//	RequestID → Recover → ThrottleFailures → Authenticate → (mux) → RateLimit → RequireScope → Idempotency → handler
//
// Everything up to Authenticate runs before the mux, so that without a key every
// path, known or not, is a 401. The rest runs for the pattern that matched, never
// for the text of the URL. A 404, a 405 or a redirect of the mux is charged to
// the organization and key like any request.
//
// Register all routes, then serve: Handle must not be called concurrently with
// ServeHTTP.
type API struct {
	base        string
	registry    *scope.Registry
	mux         *http.ServeMux
	outer       piece
	limits      *limiter
	idempotency *idempotency
	routes      []Route
	document    documented
}

// NewAPI returns an API without routes, for the keys in a store. It panics when
// the options make no sense, as [http.ServeMux.Handle] does.
func NewAPI(keys keystore.Store, o Options) *API {
	if o.Base == "" {
		o.Base = "/api/v1"
	}
	if !strings.HasPrefix(o.Base, "/") || strings.ContainsAny(o.Base, "{} ") {
		panic("middleware: NewAPI: Base " + quote(o.Base) + " is not a path")
	}
	if o.Registry == nil {
		o.Registry = scope.Contract()
	}
	if o.Hooks == nil {
		o.Hooks = &Hooks{}
	}
	if err := o.Limits.validate(); err != nil {
		panic("middleware: NewAPI: Limits: " + err.Error())
	}
	a := &API{base: strings.TrimRight(o.Base, "/"), registry: o.Registry, mux: http.NewServeMux()}
	if o.Limits.ClientIP.trusted == nil {
		o.Limits.ClientIP = o.ClientIP
	}
	a.limits = o.Limits.gate()
	if o.Replies != nil || o.Idempotency.Runner != nil {
		if o.Idempotency.Hooks == nil {
			o.Idempotency.Hooks = o.Hooks
		}
		a.idempotency = newIdempotency(o.Replies, o.Idempotency)
	}
	o.RequestID.Hooks = o.Hooks
	if o.Auth.Format == (keystore.Format{}) {
		o.Auth.Format = o.Format
	}
	if o.Auth.Registry == nil {
		o.Auth.Registry = o.Registry
	}
	a.document = documented{format: o.Auth.Format, header: o.RequestID.header(), hooks: o.Hooks}
	stages := []func(http.Handler) http.Handler{RequestID(o.RequestID), Recover(RecoverOptions{Hooks: o.Hooks})}
	if o.Failures != (ratelimit.Limit{}) {
		stages = append(stages, ThrottleFailures(o.Failures, ThrottleOptions{ClientIP: o.ClientIP}))
	}
	stages = append(stages, Authenticate(keys, o.Auth))
	a.outer = pieceOf(Chain(stages...)(routing{a}))
	return a
}

// A Route is what was registered with [API.Handle].
type Route struct {
	Method, Path string // Path as in the pattern, wildcards and a host included
	Need         Requirement
	Idempotent   bool

	keyRequired bool // a request without an Idempotency-Key is refused
}

// Routes returns the routes in the order of registration.
func (a *API) Routes() []Route { return slices.Clone(a.routes) }

// Handle registers a handler for a pattern of [http.ServeMux], which must name
// its method and lie under the API's base path, and for what it requires of a
// key. A POST handler is made idempotent when the API has a store for replies,
// unless the handler is an [Idempotency] already. [RouteLimit] adds a limit of
// the route's own.
//
// It panics on a pattern that is malformed, without a method, outside the base
// or registered before, and on a requirement that is empty or names an unknown
// scope.
func (a *API) Handle(pattern string, need Requirement, h http.Handler) {
	mistake := func(what string) { panic("middleware: API.Handle(" + quote(pattern) + "): " + what) }
	cut := strings.IndexAny(pattern, " \t")
	ok := cut > 0
	method, path := pattern[:max(cut, 0)], pattern[cut+1:]
	path = strings.TrimLeft(path, " \t")
	if !ok || method == "" || strings.Contains(method, "/") {
		mistake("the pattern names no method; write it as \"GET " + a.base + "/…\"")
	}
	slash := strings.IndexByte(path, '/')
	if slash < 0 || path[slash:] != a.base && !strings.HasPrefix(path[slash:], a.base+"/") {
		mistake("the path is not under " + a.base)
	}
	if h == nil {
		mistake("the handler is nil")
	}
	if _, err := need.resolve(a.registry); err != nil {
		mistake(err.Error())
	}
	var route RouteLimit
	if limited, ok := h.(*limitedHandler); ok {
		route, h = limited.route, limited.next
		if route.Policy != nil && a.limits.Store == nil {
			mistake("the route has a rate limit and Limits.Store is nil")
		}
		for _, p := range a.limits.policies() {
			if p != nil && route.Policy != nil && p.Name == route.Policy.Name {
				mistake("the route's rate limit has the name " + quote(p.Name) + " of one of the API's")
			}
		}
	}
	gated, idem := h.(*idempotent)
	if !idem && a.idempotency != nil && slices.Contains(a.idempotency.Methods, method) {
		gated, idem = &idempotent{a.idempotency, pieceOf(h)}, true
		h = gated
	}
	h = RequireScope(need, ScopeOptions{Registry: a.registry})(h)
	a.mux.Handle(pattern, routed{pieceOf(a.limits.limit(h, route))})
	a.routes = append(a.routes, Route{Method: method, Path: path, Need: need, Idempotent: idem, keyRequired: idem && gated.gate.Required})
}

// HandleFunc is Handle for a function.
func (a *API) HandleFunc(pattern string, need Requirement, h func(http.ResponseWriter, *http.Request)) {
	if h == nil {
		panic("middleware: API.HandleFunc(" + quote(pattern) + "): the handler is nil")
	}
	a.Handle(pattern, need, http.HandlerFunc(h))
}

// ServeHTTP serves a request along the stages.
//
// A handler may call it with a request of its own on the context of the one that it
// serves: that request needs its own key and is decided for itself.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := enter(r)
	if s.key != nil {
		s.forget()
	}
	a.outer.serve(s, w, r)
}

// WaitSettled waits, after http.Server.Shutdown, until the outcomes of all
// idempotent requests are saved, or ctx is done.
func (a *API) WaitSettled(ctx context.Context) error {
	if a.idempotency == nil {
		return nil
	}
	return a.idempotency.Runner.WaitSettled(ctx)
}

// routing hands the request to the mux and watches for an answer that no route
// gave.
type routing struct{ *API }

func (h routing) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h routing) serve(s *state, w http.ResponseWriter, r *http.Request) {
	core := coreOf(w)
	if core == nil || core.state != s {
		w = s.wrap(w) // by which routed finds the state
		core = coreOf(w)
	}
	core.api = h.API
	if r.Pattern != "" || s.parent != nil {
		r = r.WithContext(r.Context()) // what the mux writes into it is not for whoever stands between
	}
	s.unrouted, s.request = true, r
	defer s.report(r)
	h.mux.ServeHTTP(w, r)
	if s.pattern == "" {
		s.pattern = r.Pattern
	}
}

// report tells the stages outside which pattern the request had, if what came
// between has passed on that request.
func (s *state) report(r *http.Request) {
	s.returned.Store(&s.pattern)
	for p := s.parent; p != nil && p.copied != nil && p.copied.URL == r.URL; p = p.parent {
		p.returned.Store(&s.pattern)
	}
}

// routed marks that a route was reached. It finds the state by the writer that
// routing gave to the mux, because the mux, too, is spared a copy of the request.
type routed struct{ following piece }

func (h routed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := coreOf(w).state
	s.unrouted, s.pattern = false, r.Pattern
	h.following.serve(s, w, r)
}

// unmatched answers in place of the mux, once the request has paid for itself. A
// redirect is left to the mux.
func (a *API) unmatched(w *writer, status int) bool {
	s, r := w.state, w.state.request
	var client http.ResponseWriter = plain{w}
	if !a.limits.none() {
		// A refusal is not a redirect, whatever the mux has set for one.
		h := client.Header()
		location := h["Location"]
		delete(h, "Location")
		if !a.limits.admit(s, client, r, RouteLimit{}) {
			return true
		}
		if location != nil {
			h["Location"] = location
		}
	}
	switch status {
	case http.StatusNotFound:
		s.refuse(client, r, StageRoute, problem(codeNotFound))
		return true
	case http.StatusMethodNotAllowed:
		s.refuse(client, r, StageRoute, problem(codeMethodNotAllowed))
		return true
	case http.StatusBadRequest: // "OPTIONS *", which is about no path
		s.refuse(client, r, StageRoute, problem(codeBadRequest))
		return true
	}
	return false
}
