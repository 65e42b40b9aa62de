package middleware

import (
	"net/http"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// RouteLimit is what one route of an [API] asks of the rate limit beyond the
// API's [Limits]. It wraps the handler that is given to [API.Handle] and becomes
// part of the API's one decision; anywhere else every request gets 500, and
// [RateLimit] is the piece to use.
type RouteLimit struct {
	// Policy limits each organization and environment on the routes that share
	// it, beside the API's limits. Nil adds none. Limits.Store counts it.
	Policy *ratelimit.Policy
	// Cost is what one request spends of each policy; 0 means 1. A request that
	// costs more than a policy's burst is refused with 400: it never could pass.
	Cost int64
}

// Handler wraps h. It panics on a policy that is not valid and on a cost that
// the policy never admits.
func (l RouteLimit) Handler(h http.Handler) http.Handler {
	if h == nil {
		panic("middleware: RouteLimit: the handler is nil")
	}
	if l.Cost < 0 {
		panic("middleware: RouteLimit: the cost is negative")
	}
	if l.Policy != nil {
		if err := l.Policy.Validate(); err != nil {
			panic("middleware: RouteLimit: " + err.Error())
		}
		burst := l.Policy.Limit.Burst
		if burst == 0 {
			burst = l.Policy.Limit.Count
		}
		if l.Cost > burst {
			panic("middleware: RouteLimit: the cost is more than the burst of policy " + quote(l.Policy.Name) + ", so no request would ever pass")
		}
	}
	return &limitedHandler{route: l, next: h}
}

type limitedHandler struct {
	route RouteLimit
	next  http.Handler
}

func (h *limitedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	enter(r).misuse(w, r, StageRateLimit, "RouteLimit stands outside an API")
}
