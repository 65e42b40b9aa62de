package middleware

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// state is what the stages of one request share: the one context value, the one
// response writer and everything that a stage has found out. The first stage
// that runs makes it, the others fill it in. It belongs to the goroutine that
// serves the request until the handler starts; after that the fields which a
// handler can reach (id, key) are only read.
//
// A state is never pooled: its context, its id and the header value that holds
// the id may outlive the request in a goroutine of the handler.
type state struct {
	context.Context // the request's context as the first stage found it

	hooks *Hooks
	w     writer

	header  string // canonical name of the request id's header; "" without RequestID
	id      string
	idText  [20]byte
	idValue [1]string
	http1   bool // the connection may need "Connection: close"

	refusal [2]string // header values: the challenge and Retry-After

	realm    string
	throttle *throttle
	key      *keystore.Key
	pattern  string      // for leave only once returned is true
	returned atomic.Bool // the API's mux has; behind an http.TimeoutHandler it may be running yet

	request    *http.Request // as the API gave it to its mux
	notStarted bool          // the handler said so

	unrouted bool // inside the API's mux, and no route has been reached
	scoped   bool // a scope decision let the request pass
	keyed    bool // an Idempotency stage has taken charge of the request
	hooked   bool // the Problem hook is running

	takes [ratelimit.MaxTakes]ratelimit.Take // of the stage that is deciding
}

type stateKey struct{}

func (s *state) Value(key any) any {
	if key == (stateKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// String and Format keep whoever prints a context from printing the request in it,
// and with that its API key: fmt follows pointers where a verb does not fit them.
func (s *state) String() string             { return "middleware.request(" + s.id + ")" }
func (s *state) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

func stateFrom(ctx context.Context) *state {
	s, _ := ctx.Value(stateKey{}).(*state)
	return s
}

// enter returns the state of the request, made now if this is the first stage,
// with the request that carries it.
func enter(r *http.Request, hooks *Hooks) (*state, *http.Request) {
	ctx := r.Context()
	s := stateFrom(ctx)
	if s == nil {
		s = &state{Context: ctx, http1: r.ProtoMajor == 1}
		r = r.WithContext(s)
	}
	if hooks != nil {
		s.hooks = hooks
	}
	return s, r
}

// observe reports what a stage decided.
func (s *state) observe(e Event) {
	if s.hooks == nil || s.hooks.Observe == nil {
		return
	}
	e.RequestID = s.id
	e.Pattern = s.pattern
	if s.key != nil {
		e.KeyID = s.key.ID
		e.Organization = s.key.Organization
		e.Environment = s.key.Environment
	}
	s.hooks.Observe(s, e)
}
