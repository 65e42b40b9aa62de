package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Hooks change the log, the form of refusals, and who is told of responses. The
// fields are read while requests are served and must not change after the first
// request. A panic of a hook goes to the log and changes no response.
type Hooks struct {
	// Logger receives what an operator must know: panics, stores that do not
	// answer, stages put together wrongly. Nil means slog.Default(). The stages
	// remove credentials from what they log; [Guard.Recover] says what can stay.
	Logger *slog.Logger

	// ProblemBody returns the body of a refusal and its media type, in place of
	// application/problem+json. The status and the headers that belong to the
	// refusal are the stage's: WWW-Authenticate, Retry-After, Cache-Control and
	// the request id, which [RequestIDFrom] returns. For a nil body the client
	// gets the default.
	ProblemBody func(r *http.Request, p Problem) (contentType string, body []byte)

	// Observe is told of each response when it ends. It is called on the
	// request's goroutine, from many requests at once, and must be quick.
	// Without Observe, no Event is made. See [AccessLog].
	Observe func(ctx context.Context, e Event)

	// Pattern finds the pattern of a route, where a router other than http.ServeMux
	// knows it. It is called in Guard.Enforce, which should stand on the route, and
	// if it returns "" there, again when the response ends; for a route without
	// Guard.Enforce, for the log.
	Pattern func(r *http.Request) string
}

func (h *Hooks) logger() *slog.Logger {
	if h == nil || h.Logger == nil {
		return slog.Default()
	}
	return h.Logger
}

// hooks returns the Guard's own, or else those of the stages outside, which the
// facts have; nil if there are none. x, or nil, knows the facts of a request
// whose context a handler has replaced.
func (p *reporter) hooks(x *exchange, r *http.Request) *Hooks {
	f := factsOf(r.Context())
	if f == nil && x != nil {
		f = x.facts
	}
	if p.own != nil || f == nil {
		return p.own
	}
	return f.hooks
}

// observe makes hooks, or nil, observe the response, unless those of a stage
// outside do.
func (x *exchange) observe(hooks *Hooks) {
	if hooks == nil {
		return
	}
	if x.record == nil && hooks.Observe != nil {
		x.record = &record{start: time.Since(started)}
	}
	if n := x.record; n != nil {
		if n.observe == nil {
			n.observe = hooks.Observe
		}
		if n.pattern == nil {
			n.pattern = hooks.Pattern
		}
	}
}
