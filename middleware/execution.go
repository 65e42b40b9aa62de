package middleware

import (
	"context"

	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
)

// An Execution is the run of a handler under an Idempotency-Key, as the handler
// sees it. It concerns the request whose context was given. The zero Execution
// is that of a request without one: the first attempt, on which what the handler
// says has no effect.
type Execution struct{ claim *keyed.Claim }

// ExecutionFrom returns the execution of the request whose context this is.
func ExecutionFrom(ctx context.Context) Execution {
	if f := factsOf(ctx); f != nil && f.claim != nil {
		return Execution{f.claim}
	}
	return Execution{keyed.ClaimOf(ctx)}
}

// Attempt returns how often the operation was begun, this time included: 1,
// except where idem.Options.Reexecute lets another execution follow one whose
// outcome was lost.
func (e Execution) Attempt() int {
	if e.claim == nil {
		return 1
	}
	return e.claim.Executions
}

// Free says that the handler did nothing: the Idempotency-Key is free, and
// a repeat runs the handler again. After an attempt whose outcome was lost, the
// repeat is one attempt more. A handler that has written anything anywhere must
// not call it.
func (e Execution) Free() {
	if e.claim != nil {
		e.claim.Freed.Store(true)
	}
}

// DropResponse says that the response is not to be kept: repeats get 409
// idempotency_response_not_retained, and the handler does not run again. It is
// for responses that carry a secret, such as a new API key, which a store of
// replies would hold for its retention. Call it before the handler returns.
func (e Execution) DropResponse() {
	if e.claim != nil {
		e.claim.NotRetained.Store(true)
	}
}
