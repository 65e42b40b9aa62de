package middleware

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// Hooks are the places where a team hears of what the stages do and changes how
// refusals look. A nil *Hooks in a stage's options means those of the stage
// outside it, so it is enough to give them to the outermost one. The fields are
// read while requests are served and must not change after the first.
type Hooks struct {
	// Logger receives what an operator must know: panics, stores that do not
	// answer, stages put together wrongly. Nil means slog.Default(). No secret
	// is ever written to it.
	Logger *slog.Logger

	// Problem writes a refusal in place of the default, which is
	// [Problem.WriteTo]. Headers that belong to the refusal (WWW-Authenticate,
	// Retry-After, Cache-Control, the request id) are set already; the hook
	// chooses the Content-Type, writes p.Status and the body. A hook that writes
	// nothing, or calls WriteProblem, gets the default.
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// ErrorObject adds to the default body an object "error" with "type", "code"
	// and "message", which is where the SDKs of the Stripe family look.
	ErrorObject bool

	// Observe is told what each stage decided. It is called on the request's
	// goroutine, from many requests at once, and must be quick.
	Observe func(ctx context.Context, e Event)
}

// Stage names one gate on the path of a request.
type Stage string

// The stages in the order of the path.
const (
	StageRecover     Stage = "recover"
	StageAuth        Stage = "authenticate"
	StageRoute       Stage = "route"
	StageRateLimit   Stage = "rate_limit"
	StageScope       Stage = "scope"
	StageIdempotency Stage = "idempotency"
)

// An Event is one decision of one stage.
type Event struct {
	Stage Stage

	// Outcome is "passed", "executed" or "replayed" (both of Idempotency), or the
	// code of the refusal as in [Problem.Code].
	Outcome string

	RequestID    string
	Pattern      string // the matched pattern, "" before the mux and for unknown paths
	KeyID        string // "" before authentication, as the next two
	Organization string
	Environment  keystore.Environment

	Policy string        // the rate limit that decided, if one did
	Wait   time.Duration // what a refused client was told to wait
}

const (
	passed   = "passed"
	executed = "executed"
	replayed = "replayed"
)

func (h *Hooks) logger() *slog.Logger {
	if h == nil || h.Logger == nil {
		return slog.Default()
	}
	return h.Logger
}
