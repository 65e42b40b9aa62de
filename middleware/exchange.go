package middleware

import (
	"context"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// exchange is what all stages of one response share. Stages find it by the
// writer that they are given, not by the context, so a request within a
// request, with a writer of its own, has its own exchange. It is not safe for
// concurrent use.
type exchange struct {
	response.Writer
	idText        [20]byte
	hooks         *Hooks
	guard         *Guard // that opened it, nil for a foreign writer
	authorization string // of the request that was authenticated: never logged
	apiKey        string // the same of KeyOptions.Header
	principal     Principal
	record        *record // nil when nobody observes
}

// exchangeOf returns the exchange that w belongs to, or nil.
func exchangeOf(w http.ResponseWriter) *exchange {
	if core := response.Of(w); core != nil {
		return core.Owner.(*exchange)
	}
	return nil
}

// open begins the response that is sent to w, for a request with these outer
// facts or nil. It returns the writer for the handlers inside.
func (x *exchange) open(g *Guard, w http.ResponseWriter, r *http.Request, outer *facts) http.ResponseWriter {
	x.Owner, x.Request, x.guard = x, r, g
	x.hooks = g.hooks(r)
	nested := outer != nil && outer.id() != ""
	if nested {
		// The same request behind a foreign writer, or a request within a
		// request.
		x.IDHeader, x.ID = outer.response.IDHeader, outer.response.ID
	} else {
		x.IDHeader = g.options.RequestID.Header
		x.assignID(r, g.options.RequestID.Trust)
		if outer != nil {
			x.principal = outer.principal // of a WithPrincipal outside
		}
	}
	if outer != nil && outer.event != nil {
		x.record = &record{start: time.Now(), slot: outer.event}
	}
	x.observe(x.hooks)
	if x.record != nil {
		x.record.event.Nested, x.record.outer = nested, r.Pattern
	}
	w = x.Wrap(w)
	x.Stamp(w.Header()) // for an outer handler that answers in place of an aborted one
	return w
}

// trackCommit returns w if it knows whether its handler has committed a status.
// It wraps a foreign writer, which may hold back what it is given, in one that
// knows.
func (x *exchange) trackCommit(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if _, ok := w.(interface{ Committed() bool }); ok {
		return w
	}
	noting := &response.Writer{Request: r, Owner: x}
	return noting.Wrap(w)
}

// observe reports the response to hooks, unless outer hooks observe it.
func (x *exchange) observe(hooks *Hooks) {
	if hooks == nil || hooks.Observe == nil {
		return
	}
	if x.record == nil {
		x.record = &record{start: time.Now()}
	}
	if x.record.observe == nil {
		x.record.observe = hooks.Observe
	}
}

// close ends the response, after all handlers have returned.
func (x *exchange) close(r *http.Request, aborted bool) {
	if !aborted {
		x.Finish()
	}
	if x.record != nil {
		x.report(r, aborted)
	}
}

// requestID returns the id of the exchange of w, or the one in the context if w
// has none.
func requestID(w http.ResponseWriter, r *http.Request) string {
	return exchangeOf(w).idOr(r.Context())
}

func (x *exchange) idOr(ctx context.Context) string {
	if x != nil && x.ID != "" {
		return x.ID
	}
	return RequestIDFrom(ctx)
}

// RequestIDFrom returns the id of the request whose context this is, or "".
func RequestIDFrom(ctx context.Context) string {
	if f := factsOf(ctx); f != nil {
		return f.id()
	}
	return ""
}
