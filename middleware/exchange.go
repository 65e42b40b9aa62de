package middleware

import (
	"net/http"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// exchange is what all stages of one response share. Stages find it by the
// writer that they are given, not by the context, so a request within a
// request, with a writer of its own, has its own exchange. It is not safe for
// concurrent use.
type exchange struct {
	response.Writer
	idText        [20]byte
	foreign       bool                      // of an Authenticate without RequestID, or behind a writer that hides it
	admission     *admission                // by the Authenticate outside; nil without one
	charged       any                       // the *limiter that did so last
	facts         *facts                    // of the innermost stage that knows the caller
	authorization string                    // of the request that was authenticated: never logged
	apiKey        string                    // the same of Options.KeyHeader
	record        *record                   // nil when nobody observes
	silent        atomic.Pointer[keyed.Run] // whose handler wrote nothing, as far as its stage saw
	room          [1]ratelimit.Charge
}

// An admission is a request that Authenticate has let in. That of a Guard has its
// success refused unless Enforce decides (path.go).
type admission struct {
	report     *reporter
	r          *http.Request // as the handlers get it, with the facts
	before     http.Header   // what outer middleware has set
	reportOnly bool
	decided    atomic.Bool
}

// exchangeOf returns the exchange that w belongs to, or nil.
func exchangeOf(w http.ResponseWriter) *exchange {
	if core := response.Of(w); core != nil {
		return core.Owner.(*exchange)
	}
	return nil
}

// recordOf returns where to note what happens to the response of w, or nil.
func recordOf(w http.ResponseWriter) *record { return exchangeOf(w).observed() }

// observed returns where to note what happens to the response, or nil.
func (x *exchange) observed() *record {
	if x == nil {
		return nil
	}
	return x.record
}

// know makes f what is known about the caller.
func (x *exchange) know(f *facts) {
	if x != nil && f.caller != nil {
		x.facts = f
	}
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

// idOf returns the id of the exchange, or the one in the context of r if x has
// none or is nil.
func (x *exchange) idOf(r *http.Request) string {
	if x != nil && x.ID != "" {
		return x.ID
	}
	return RequestIDFrom(r.Context())
}
