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

// state is what stages that follow one another share: the one context value, the
// one response writer and everything that a stage has found out. The first stage
// makes it, the others fill it in. It belongs to the goroutine that serves the
// request until somebody else's handler starts; after that what can be reached
// from there is only read, or atomic.
//
// A stage inside somebody else's handler goes on with a branch, which begins with
// what was found out so far. Whatever that handler does, to call the stage twice or
// for a request of its own included, what one of these requests is taken for never
// reaches another, nor the request outside.
//
// A state is never pooled: its context, its id and the header value that holds
// the id may outlive the request in a goroutine of the handler.
type state struct {
	context.Context        // the request's context as the first stage found it
	parent          *state // that it is a branch of

	hooks *Hooks
	w     writer

	header   string // canonical name of the request id's header; "" without RequestID
	id       string
	idText   [20]byte
	pattern  string
	returned atomic.Pointer[string] // the pattern, once the API's mux has returned; behind an http.TimeoutHandler it may be running yet

	authorization []string // as it came in: what must never be logged

	throttle *throttle
	auth     *authenticator // that accepted key
	key      *keystore.Key

	copied     *http.Request // what the first handler of somebody else's got, or what that is a copy of; nil before
	request    *http.Request // as the API gave it to its mux
	need       *string       // the requirement that a scope decision let pass; nil before one
	gate       *idempotency  // that has taken charge of the request
	notStarted atomic.Bool   // the handler said so, perhaps from a goroutine of its own
	http1      bool          // the connection may need "Connection: close"
	unrouted   bool          // inside the API's mux, and no route has been reached
	hooked     bool          // the Problem hook is running

	takes [2]ratelimit.Take // of the stage that is deciding; more of them take an allocation
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
	if s, ok := ctx.(*state); ok { // unless something came between two stages
		return s
	}
	s, _ := ctx.Value(stateKey{}).(*state)
	return s
}

// enter returns a state for a request that comes from somebody else's handler, or
// from the server.
func enter(r *http.Request) *state {
	s := &state{Context: r.Context(), http1: r.ProtoMajor == 1, authorization: r.Header["Authorization"]}
	if p := stateFrom(s.Context); p != nil {
		s.parent, s.http1 = p, p.http1
		s.hooks, s.hooked, s.header, s.id = p.hooks, p.hooked, p.header, p.id
		s.throttle, s.auth, s.key, s.need, s.gate = p.throttle, p.auth, p.key, p.need, p.gate
	}
	return s
}

// A piece is a handler of this package. Pieces that follow one another hand on the
// state itself; everybody else's handler gets a copy of the request with the state
// in its context. What is refused before that is spared the copy.
type piece interface {
	serve(s *state, w http.ResponseWriter, r *http.Request)
}

// pieceOf returns any handler as a piece.
func pieceOf(h http.Handler) piece {
	if p, ok := h.(piece); ok {
		return p
	}
	return foreign{h}
}

type foreign struct{ http.Handler }

func (h foreign) serve(s *state, w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, s.attach(r)) }

// attach returns the request with the state in its context.
func (s *state) attach(r *http.Request) *http.Request {
	if stateFrom(r.Context()) == s {
		return r
	}
	r = r.WithContext(s)
	if s.copied == nil {
		s.copied = r
	}
	return r
}

// contextOf returns the request's context, in which the state is.
func (s *state) contextOf(r *http.Request) context.Context {
	if ctx := r.Context(); stateFrom(ctx) == s {
		return ctx
	}
	return s
}

// heed takes over the hooks of a stage, if it has any.
func (s *state) heed(hooks *Hooks) {
	if hooks != nil && s.hooks != hooks {
		s.hooks = hooks
	}
}

// forget begins anew for a request within a request: a handler that was let in
// passes one of its own, on its own context, through the stages once more.
func (s *state) forget() {
	s.throttle, s.auth, s.key, s.need, s.gate = nil, nil, nil, nil, nil
}

// pass reports that a stage let the request through.
func (s *state) pass(stage Stage, policy string) {
	if s.hooks != nil && s.hooks.Observe != nil {
		s.observe(Event{Stage: stage, Outcome: passed, Policy: policy})
	}
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
