package middleware

import (
	"bytes"
	"maps"
	"net/http"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// ServeHTTP is the path of a request up to its route.
//
// A handler may send another request through the API on its own context. That
// request needs its own API key; no decision about the outer request holds for
// it. A handler that clones its request to send another one clears RequestURI:
// inside [Guard.Idempotent] a clone is otherwise taken for the request itself,
// which an API refuses with 500.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{api: a}
	c.open(w, r) // the request id, on whatever is sent
	defer c.close()
	c.serve(a.guard)
	c.returned = true
}

func (c *call) serve(g *Guard) {
	if c.misplaced {
		g.misuse(c.w, c.r, StageAuth, "an API stands inside Idempotent, so a replay would skip its decisions; make its routes idempotent instead") // 500
		return
	}
	if g.isPreflight(c.r) {
		c.facts.serve(g.options.Preflight, c.w, c.r)
		return
	}
	caller, refused := g.authenticate(c.facts.response, c.w, c.r)
	if refused != nil {
		g.refuse(c.w, c.r, StageAuth, refused) // 401, 400, 403, 429, 500, 503
		return
	}
	c.facts.principal = caller

	c.api.mux.ServeHTTP((*muxWriter)(c), c.r) // calls route.ServeHTTP when a route matches
	if !c.matched {
		c.unmatched()
	}
}

// ServeHTTP is the rest of the path of a request, from its route to the
// handler.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, g := (*call)(w.(*muxWriter)), rt.api.guard
	c.matched = true
	c.facts.response.match(r.Pattern)
	f := &c.facts
	// For the handler. A Plan may get this context before the scope check below.
	f.scoped = rt.scope.refuse(f.principal, nil) == nil
	if rt.idempotent != nil {
		f.idempotency, f.repeatable = rt.idempotent.idempotency, r
	}

	// From here on f does not change: others may hold it.
	var refused Problem
	if !g.limits.check(f, g, c.w, r, &rt.options, c.charges[:0], &refused) {
		g.refuse(c.w, r, StageRateLimit, &refused) // 429, 400, 503
		return
	}
	if !g.limits.begin(f.principal) {
		g.refuse(c.w, r, StageRateLimit, refusal(codeTooManyConcurrent)) // 429
		return
	}
	defer g.limits.end(f.principal)

	if refused := rt.scope.refuse(f.principal, f.response); refused != nil {
		g.refuse(c.w, r, StageScope, refused) // 403
		return
	}

	if rt.idempotent != nil {
		rt.idempotent.serve(f, c.w, r) // idempotency.go: the handler, a replay, or 400, 409, 413, 422, 503
		return
	}
	f.serve(rt.handler, c.w, r)
}

// unmatched charges a request that no route matched, and answers it.
func (c *call) unmatched() {
	g, mux := c.api.guard, c.muxAnswer()
	var refused Problem
	if !g.limits.check(&c.facts, g, c.w, c.r, &RouteOptions{}, c.charges[:0], &refused) {
		g.refuse(c.w, c.r, StageRateLimit, &refused)
		return
	}
	h := c.w.Header()
	switch mux.status {
	case http.StatusNotFound:
		g.refuse(c.w, c.r, StageRoute, refusal(codeNotFound))
	case http.StatusMethodNotAllowed:
		h["Allow"] = mux.header["Allow"]
		g.refuse(c.w, c.r, StageRoute, refusal(codeMethodNotAllowed))
	case http.StatusBadRequest: // "OPTIONS *" has no path
		g.refuse(c.w, c.r, StageRoute, refusal(codeBadRequest))
	default: // a redirect to the clean path
		c.facts.response.decide(StageRoute, redirected)
		maps.Copy(h, mux.header)
		c.w.WriteHeader(mux.status)
		_, _ = mux.body.WriteTo(c.w)
	}
}

// call is one request on its path through an API.
type call struct {
	api *API
	r   *http.Request
	w   http.ResponseWriter

	given     *http.Request // the request as received; r is a copy if an outer mux has set Pattern
	before    http.Header   // to restore after a panic: what outer middleware has set
	misplaced bool          // inside an Idempotent
	matched   bool          // a route matched
	returned  bool
	answer    *muxAnswer // what ServeMux wrote
	charges   [1]ratelimit.Charge
	facts     facts    // for the handler
	own       exchange // the response, if there is no outer RequestID
}

func (c *call) open(w http.ResponseWriter, r *http.Request) {
	g, outer := c.api.guard, factsOf(r.Context())
	c.misplaced = outer != nil && g.insideIdempotent(w, r)
	x := exchangeOf(w)
	if x == nil {
		x = &c.own
		if h := w.Header(); len(h) > 0 {
			c.before = h.Clone()
		}
		w = x.open(g, w, r, outer)
	} else {
		w = x.trackCommit(w, r)
		c.before = w.Header().Clone()
		x.observe(g.options.Hooks)
	}
	c.given = r
	if r.Pattern != "" {
		// ServeMux overwrites Pattern and path values in place: middleware
		// inside an outer mux has its own until the request ends.
		r = r.WithContext(r.Context())
	}
	c.w, c.r = w, r
	// No decision about an outer request holds for this one.
	c.facts = facts{Context: r.Context(), response: x, hooks: g.hooks(r)}
}

// close turns a panic into a 500 or an abort, and ends the response.
func (c *call) close() {
	p := recover()
	if p == nil {
		c.end(!c.returned) // a handler may leave by runtime.Goexit
		return
	}
	aborted := true
	defer func() { c.end(aborted) }()
	c.api.guard.recovered(c.w, c.r, p, c.before) // panics to abort
	aborted = false
}

func (c *call) end(aborted bool) {
	if c.given != c.r {
		copyBack(c.given, c.r)
	}
	if c.facts.response == &c.own {
		c.own.close(c.r, aborted)
	}
}

type route struct {
	api        *API
	scope      *scopeCheck
	options    RouteOptions
	idempotent *idempotentStage // nil when the route is not idempotent
	handler    http.Handler
}

// muxWriter is the call as the writer for ServeMux: it carries the call to its
// route. If no route matches, it keeps the answer of ServeMux, so that the
// request can be charged before it is answered.
type muxWriter call

type muxAnswer struct {
	status int
	header http.Header
	body   bytes.Buffer // of a redirect
}

func (c *call) muxAnswer() *muxAnswer {
	if c.answer == nil {
		c.answer = &muxAnswer{header: make(http.Header)}
	}
	return c.answer
}

func (m *muxWriter) Header() http.Header    { return (*call)(m).muxAnswer().header }
func (m *muxWriter) WriteHeader(status int) { (*call)(m).muxAnswer().status = status }

func (m *muxWriter) Write(p []byte) (int, error) {
	a := (*call)(m).muxAnswer()
	if a.status >= http.StatusBadRequest {
		return len(p), nil // the API answers in place of the mux
	}
	return a.body.Write(p)
}
