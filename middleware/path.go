package middleware

import (
	"bytes"
	"maps"
	"mime/multipart"
	"net/http"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
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
	if !g.recovers && !g.authenticates && g.exchange(w) != nil {
		g.next.ServeHTTP(w, r) // a RequestID inside another one
		return
	}
	c := &call{gate: g}
	c.begin(w, r) // the request id, on whatever is sent
	defer c.end(r.MultipartForm)
	c.enter()
	c.returned = true
}

func (c *call) enter() {
	g := c.gate.guard
	switch {
	case c.misplaced && c.gate.mux != nil:
		g.report.misuse(c.w, c.r, StageAuthenticate, // 500
			"an API stands inside Idempotent, so a replay would skip its decisions; make its routes idempotent instead")
		return
	case c.misplaced:
		g.report.misuse(c.w, c.r, StageAuthenticate,
			"Authenticate stands inside Idempotent, so a replay would skip it; put it outside")
		return
	case c.gate.authenticates:
		caller, d := g.auth.check(c.facts.response, c.w, c.r)
		switch {
		case d.problem == nil:
			c.facts.caller = caller
		case g.options.ReportOnly && d.problem.Status < http.StatusInternalServerError:
			c.facts.reported = true
			c.facts.response.observed().noteReported(d.problem.Code, d.problem.caller.KeyID())
		default:
			g.auth.hint(c.w, c.r, d.problem.Code)
			g.report.refuse(c.w, c.r, StageAuthenticate, d) // 401, 400, 403, 429, 500, 503
			return
		}
		c.report, c.reportOnly = g.report, g.options.ReportOnly
		c.facts.response.admission, c.facts.response.Checked = &c.admission, c.gate.mux == nil
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
		c.r = c.r.WithContext(&c.facts)
		c.gate.next.ServeHTTP(c.w, c.r)
	}
}

// Refuse answers in place of a handler behind a Guard's Authenticate that
// succeeds without a decision of Enforce.
func (x *exchange) Refuse() bool {
	a := x.admission
	switch {
	case a.decided.Load() || factsOf(a.r.Context()).reported:
		return false
	case a.reportOnly:
		x.observed().noteReported(noRequirement, "")
		return false
	}
	h := x.Header()
	clear(h) // it describes the handler's response, of which nothing is to be seen
	maps.Copy(h, a.before)
	x.Stamp(h)
	a.report.logWith(x, a.r).Error("middleware: a route has no Enforce: its handler ran, and its success is answered "+
		"with 500; put Guard.Enforce on it, of middleware.AnyCaller() if no scope is needed",
		"pattern", a.report.route(x, a.r))
	a.report.refuse(x, a.r, StageScope, denied(codes.Internal))
	return true
}

// A route is the rest of the path, from the router of an API to the handler.
type route struct {
	guard       *Guard
	deprecation *deprecation // nil for a route that stays
	limit       routeLimit
	scope       *scopeCheck
	quota       *quotaStage      // nil for a route that is free
	idempotent  *idempotentStage // nil when the route is not idempotent
	next        http.Handler
}

// ServeHTTP is called by the mux of an API.
func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, g := (*call)(w.(*muxWriter)), rt.guard
	c.matched = true
	f, x := &c.facts, c.facts.response
	x.record.match(r.Pattern)
	if rt.deprecation != nil {
		rt.deprecation.tell(c.w.Header())
		c.before = fieldsBefore(x, c.w.Header()) // a panic leaves them
		x.record.note(func(e *Event) { e.Deprecated = true })
	}
	if rt.idempotent != nil {
		f.idempotent, f.repeatable = rt.idempotent.idempotency, r
	}

	// From here on only scoped changes in f: a Plan may hold it.
	if d := g.limits.check(f, x, c.w, r, rt.limit); d.problem != nil {
		g.report.refuse(c.w, r, StageRateLimit, d) // 429, 400, 503
		return
	}
	defer g.limits.end(f.caller)

	if !f.reported {
		if d := rt.scope.check(f.caller, x); d.problem != nil {
			g.report.refuse(c.w, r, StageScope, d) // 403
			return
		}
	}
	f.scoped.Store(true)

	if rt.quota != nil {
		f = rt.quota.enter(f, r) // quota.go: an operation that begins gets 403 or 503
	}
	if rt.idempotent != nil {
		rt.idempotent.handle(f, c.w, r) // keyedcall.go: the handler, a replay, or 400, 409, 413, 422, 503
		return
	}
	serveCharged(g.report, f, rt.next, c.w, r)
}

// unmatched charges a request that no route matched, and answers it.
func (c *call) unmatched() {
	g, mux := c.gate.guard, c.muxAnswer()
	if d := g.limits.charge(&c.facts, c.facts.response, c.w, c.r, routeLimit{}); d.problem != nil {
		g.report.refuse(c.w, c.r, StageRateLimit, d)
		return
	}
	h := c.w.Header()
	switch mux.status {
	case http.StatusNotFound:
		g.report.refuse(c.w, c.r, StageRoute, denied(codes.NotFound))
	case http.StatusMethodNotAllowed:
		h["Allow"] = mux.header["Allow"]
		g.report.refuse(c.w, c.r, StageRoute, denied(codes.MethodNotAllowed))
	case http.StatusBadRequest: // "OPTIONS *" has no path
		g.report.refuse(c.w, c.r, StageRoute, denied(codes.BadRequest))
	default: // a redirect to the clean path
		recordOf(c.w).decide(StageRoute, redirected)
		maps.Copy(h, mux.header)
		c.w.WriteHeader(mux.status)
		_, _ = mux.body.WriteTo(c.w)
	}
}

// call is one request on its path through a gate. Its admission has the request
// that next gets, and the header to restore after a panic.
type call struct {
	admission
	gate *gate
	w    http.ResponseWriter

	given     *http.Request // as received; r may be a copy
	misplaced bool          // inside an Idempotent
	opened    bool          // the response is own
	matched   bool          // a route matched
	returned  bool
	answer    *muxAnswer // what ServeMux wrote
	facts     facts      // for the handler; empty if there is nothing to tell it
	own       exchange   // the response, if there is no outer RequestID
}

// exchange returns the one that w belongs to, or nil if the gate has to make
// one.
func (g *gate) exchange(w http.ResponseWriter) *exchange {
	x := exchangeOf(w)
	if x != nil && x.foreign && g.ids {
		return nil
	}
	return x
}

func (c *call) begin(w http.ResponseWriter, r *http.Request) {
	g, outer, x := c.gate.guard, factsOf(r.Context()), c.gate.exchange(w)
	c.misplaced = c.gate.authenticates && outer.insideIdempotent(w, r)
	switch {
	case x == nil && c.gate.ids:
		c.opened, x = true, &c.own
		c.before = fieldsBefore(x, w.Header())
		w = g.ids.open(x, w, r, outer)
	case x == nil: // an Authenticate whose writer is foreign: the exchange carries the id and the Check
		c.opened, x = true, &c.own
		c.before = fieldsBefore(x, w.Header())
		x.Owner, x.Request, x.foreign = x, r, true
		if outer != nil && outer.response != nil {
			x.IDHeader, x.ID = outer.response.IDHeader, outer.response.ID
		}
		if w = x.Wrap(w); x.ID == "" {
			g.report.hint(w, r, "middleware: Authenticate has no RequestID outside it, so its refusals have no id and no Event")
		}
	default:
		if c.gate.recovers {
			w = x.trackCommit(w, r)
			c.before = fieldsBefore(x, w.Header())
		}
		x.observe(g.options.Hooks)
		if c.gate.authenticates {
			x.Checked = false // by an Authenticate outside: what follows here decides
		}
	}
	c.given = r
	if r.Pattern != "" && c.gate.mux != nil {
		// ServeMux overwrites Pattern and path values in place: middleware
		// inside an outer mux has its own until the request ends.
		r = r.WithContext(r.Context())
	}
	c.w, c.r = w, r
	switch {
	case c.misplaced: // what is known of the caller stays
	case c.gate.authenticates:
		// No decision about an outer request holds for this one.
		c.facts.Context, c.facts.response, c.facts.hooks = r.Context(), x, g.report.hooks(x, r)
		x.facts = &c.facts
	case c.opened:
		c.facts.copy(r.Context(), outer)
		if outer != nil && outer.response != nil {
			x.admission = outer.response.admission
		}
		c.facts.response, c.facts.hooks = x, g.report.hooks(x, r)
		x.facts = &c.facts
	}
}

// end turns a panic into a 500 or an abort, and ends the response. The request
// came with the given form.
func (c *call) end(given *multipart.Form) {
	aborted := !c.returned // a handler may leave by runtime.Goexit
	r := c.r
	response.Leave(c.given, r, given)
	if c.gate.mux == nil {
		r = c.given
	}
	defer func() {
		if c.opened {
			c.gate.guard.ids.close(&c.own, r, aborted)
		}
	}()
	if !c.gate.recovers {
		return
	}
	if v := recover(); v != nil {
		recovered(c.gate.guard.report, c.w, r, v, c.before) // panics to abort
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
