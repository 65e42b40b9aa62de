package middleware

import (
	"bytes"
	"maps"
	"net/http"

	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
)

// A gate is the path of a request up to its router: RequestID, Recover and
// Authenticate, or those of them that it has. An API has one gate, with all
// three. Where these pieces of a Guard stand directly inside each other, they
// are one gate too, so that the request is copied once for all of them.
type gate struct {
	guard                        *Guard
	ids, recovers, authenticates bool

	next http.Handler
	mux  *http.ServeMux // of an API, in place of next
}

// outside returns a gate for the stages of s, and those of the gate that it is
// around.
func (g *Guard) outside(s *gate) http.Handler {
	s.guard = g
	if inner, ok := s.next.(*gate); ok && inner.guard == g {
		s.recovers, s.authenticates, s.next = s.recovers || inner.recovers, inner.authenticates, inner.next
	}
	return s
}

// ServeHTTP is the path of a request up to its route.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.recovers && !g.authenticates && exchangeOf(w) != nil {
		g.next.ServeHTTP(w, r) // a RequestID inside another one
		return
	}
	c := &call{gate: g}
	c.begin(w, r) // the request id, on whatever is sent
	defer c.end()
	c.enter()
	c.returned = true
}

func (c *call) enter() {
	g := c.gate.guard
	switch {
	case c.misplaced && c.gate.mux != nil:
		g.report.misuse(c.w, c.r, StageAuth, "an API stands inside Idempotent, so a replay would skip its decisions; make its routes idempotent instead") // 500
		return
	case c.misplaced:
		g.report.misuse(c.w, c.r, StageAuth, "Authenticate stands inside Idempotent, so a replay would skip it; put it outside")
		return
	case c.gate.authenticates && g.auth.isPreflight(c.r):
		c.facts.serve(g.auth.preflight, c.w, c.r)
		return
	case c.gate.authenticates:
		caller, refused := g.auth.check(c.facts.response, c.w, c.r)
		if refused != nil {
			g.report.refuse(c.w, c.r, StageAuth, refused) // 401, 400, 403, 429, 500, 503
			return
		}
		c.facts.principal = caller
	}

	switch {
	case c.gate.mux != nil:
		c.gate.mux.ServeHTTP((*muxWriter)(c), c.r) // calls route.ServeHTTP when a route matches
		if !c.matched {
			c.unmatched()
		}
	case c.facts.response == nil: // a Recover inside RequestID
		c.gate.next.ServeHTTP(c.w, c.r)
	default:
		c.facts.serve(c.gate.next, c.w, c.r)
	}
}

// A route is the rest of the path of a request, from its router to the handler:
// RateLimit, Require and Idempotent, or those of them that are not nil.
type route struct {
	report     *reporter
	limits     *limiter
	limit      routeLimit
	scope      *scopeCheck
	idempotent *idempotentStage
	next       http.Handler
}

// ServeHTTP is called by the mux of an API.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := (*call)(w.(*muxWriter))
	c.matched = true
	f := &c.facts
	f.response.record.match(r.Pattern)
	lacking := rt.scope.check(f.principal)
	// For the handler. A Plan gets this context before the requirement refuses.
	f.scoped = lacking == nil || rt.scope.need.reportOnly
	if rt.idempotent != nil {
		f.idempotent, f.repeatable = rt.idempotent.idempotency, r
	}
	rt.pass(f, lacking, c.w, r)
}

// pass is the path from the router on. f does not change: others may hold it.
// lacking is what the requirement says.
func (rt *route) pass(f *facts, lacking *Problem, w http.ResponseWriter, r *http.Request) {
	if rt.limits != nil {
		refused, ok := rt.limits.check(f, w, r, rt.limit)
		if ok && !rt.limits.begin(f.principal) {
			refused, ok = *refusal(codeTooManyConcurrent), false
		}
		if !ok {
			keyed.FreeKey(w, r)                              // if an Idempotent stands outside
			rt.report.refuse(w, r, StageRateLimit, &refused) // 429, 400, 503
			return
		}
		defer rt.limits.end(f.principal)
	}

	switch {
	case lacking != nil && !rt.scope.need.reportOnly:
		rt.report.refuse(w, r, StageScope, lacking) // 403
		return
	case lacking != nil:
		recordOf(w).noteReported(lacking.Code)
	}

	switch {
	case rt.idempotent != nil:
		rt.idempotent.serve(f, w, r) // idempotency.go: the handler, a replay, or 400, 409, 413, 422, 503
	case rt.scope != nil:
		f.serve(rt.next, w, r)
	default:
		rt.next.ServeHTTP(w, r) // RateLimit has found out nothing
	}
}

// A piece is the route of a Guard: RateLimit, Require or Idempotent, or more of
// them in this order, where they stand directly inside each other.
type piece struct {
	guard *Guard
	route
}

// inside returns a piece for the stage of p, and those of the piece that it is
// around, if they come later on the path.
func (g *Guard) inside(p *piece) http.Handler {
	p.guard, p.report = g, g.report
	inner, ok := p.next.(*piece)
	if !ok || inner.guard != g || p.idempotent != nil || inner.limits != nil || p.scope != nil && inner.scope != nil {
		return p
	}
	p.idempotent, p.next = inner.idempotent, inner.next
	if p.scope == nil {
		p.scope = inner.scope
	}
	return p
}

func (p *piece) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := r.Context().(*facts)
	if !ok {
		f = extend(r.Context())
	}
	if stage, what := p.misplaced(f, w, r); what != "" {
		keyed.FreeKey(w, r)
		p.report.misuse(w, r, stage, what)
		return
	}
	x := exchangeOf(w)
	x.know(f)
	var lacking *Problem
	if p.scope != nil {
		p.report.pattern(x, r)
		lacking = p.scope.check(f.principal)
	}
	switch {
	case p.idempotent != nil && f.idempotent == p.idempotent.idempotency && insideIdempotent(w, r):
		p.next.ServeHTTP(w, r) // the same stage stands outside
		return
	case p.idempotent != nil:
		f = extend(r.Context())
		f.scoped, f.idempotent, f.repeatable, f.claim = true, p.idempotent.idempotency, r, nil
		if f.response == nil {
			f.response = new(exchange) // the caller came by WithPrincipal, without RequestID
		}
	case p.scope != nil:
		f = extend(r.Context())
		f.scoped = true
	}
	p.pass(f, lacking, w, r)
	if p.scope != nil {
		p.guard.warnUnused(w, r)
	}
}

// misplaced returns what is wrong with what stands outside the piece, or "".
func (p *piece) misplaced(f *facts, w http.ResponseWriter, r *http.Request) (stage Stage, what string) {
	known := f.principal.known()
	switch {
	case p.limits != nil && !known && p.limits.needsPrincipal():
		return StageRateLimit, "RateLimit counts by organization or key, and has no Authenticate before it"
	case p.scope != nil && !known:
		return StageScope, "Require has no Authenticate before it"
	case p.scope != nil && !f.principal.fits(p.scope.registry):
		return StageScope, "the principal was made for another scope registry than Options.Service"
	case p.scope != nil && f.idempotent != nil:
		return StageScope, "Require stands inside Idempotent, so a replay would skip it; put it outside"
	case p.idempotent != nil && (!known || p.scope == nil && !f.scoped):
		return StageIdempotency, "Idempotent has no Require before it; use guard.AnyKey if no scope is needed"
	case p.idempotent != nil && f.idempotent != nil && f.idempotent != any(p.idempotent.idempotency) && insideIdempotent(w, r):
		return StageIdempotency, "Idempotent stands inside another Idempotent; leave one of them out, or give the route its own by RouteOptions.Idempotency"
	}
	return "", ""
}

// unmatched charges a request that no route matched, and answers it.
func (c *call) unmatched() {
	g, mux := c.gate.guard, c.muxAnswer()
	if refused, ok := g.limits.check(&c.facts, c.w, c.r, routeLimit{}); !ok {
		g.report.refuse(c.w, c.r, StageRateLimit, &refused)
		return
	}
	h := c.w.Header()
	switch mux.status {
	case http.StatusNotFound:
		g.report.refuse(c.w, c.r, StageRoute, refusal(codeNotFound))
	case http.StatusMethodNotAllowed:
		h["Allow"] = mux.header["Allow"]
		g.report.refuse(c.w, c.r, StageRoute, refusal(codeMethodNotAllowed))
	case http.StatusBadRequest: // "OPTIONS *" has no path
		g.report.refuse(c.w, c.r, StageRoute, refusal(codeBadRequest))
	default: // a redirect to the clean path
		recordOf(c.w).decide(StageRoute, redirected)
		maps.Copy(h, mux.header)
		c.w.WriteHeader(mux.status)
		_, _ = mux.body.WriteTo(c.w)
	}
}

// call is one request on its path through a gate.
type call struct {
	gate *gate
	r    *http.Request
	w    http.ResponseWriter

	given     *http.Request // the request as received; r is a copy if an outer mux has set Pattern
	before    http.Header   // to restore after a panic: what outer middleware has set
	misplaced bool          // inside an Idempotent
	opened    bool          // the response is own
	matched   bool          // a route matched
	returned  bool
	answer    *muxAnswer // what ServeMux wrote
	facts     facts      // for the handler; empty if there is nothing to tell it
	own       exchange   // the response, if there is no outer RequestID
}

func (c *call) begin(w http.ResponseWriter, r *http.Request) {
	g, outer, x := c.gate.guard, factsOf(r.Context()), exchangeOf(w)
	c.misplaced = c.gate.authenticates && insideIdempotent(w, r)
	switch {
	case x == nil && c.gate.ids:
		c.opened, x = true, &c.own
		c.before = fieldsBefore(x, w.Header())
		w = g.ids.open(x, w, r, outer)
	case x == nil: // an Authenticate whose writer is foreign: the exchange only carries the id
		x = &c.own
		x.hooks = g.report.hooks(nil, r)
		if outer != nil && outer.response != nil {
			x.IDHeader, x.ID = outer.response.IDHeader, outer.response.ID
		}
	default:
		if c.gate.recovers {
			w = x.trackCommit(w, r)
			c.before = fieldsBefore(x, w.Header())
		}
		x.use(g.options.Hooks)
	}
	c.given = r
	if r.Pattern != "" && c.gate.mux != nil {
		// ServeMux overwrites Pattern and path values in place: middleware
		// inside an outer mux has its own until the request ends.
		r = r.WithContext(r.Context())
	}
	c.w, c.r = w, r
	switch {
	case c.gate.authenticates:
		// No decision about an outer request holds for this one.
		c.facts = facts{Context: r.Context(), response: x}
		x.facts = &c.facts
	case c.opened:
		c.facts = *extend(r.Context())
		c.facts.response, x.facts = x, &c.facts
	}
}

// end turns a panic into a 500 or an abort, and ends the response.
func (c *call) end() {
	aborted := !c.returned // a handler may leave by runtime.Goexit
	defer func() {
		if c.given != c.r {
			copyBack(c.given, c.r)
		}
		if c.opened {
			c.gate.guard.ids.close(&c.own, c.r, aborted)
		}
	}()
	if !c.gate.recovers {
		return
	}
	if v := recover(); v != nil {
		recovered(c.gate.guard.report, c.w, c.r, v, c.before) // panics to abort
		aborted = false
	}
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
