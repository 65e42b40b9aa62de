package middleware

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// IdempotencyOptions configure [Idempotency].
type IdempotencyOptions struct {
	// Methods are those whose Idempotency-Key counts; nil means POST. On others
	// the header is ignored. GET and HEAD panic.
	Methods []string

	// Required refuses requests without an Idempotency-Key with 400.
	Required bool

	// Partition adds to what an Idempotency-Key belongs to, beyond organization
	// and environment, such as a project. Nil adds nothing.
	Partition func(*http.Request) string

	// MaxBody is the largest body that a request with a key may have, in bytes;
	// 0 means 1 MiB. The body is in memory while the handler runs.
	MaxBody int64

	// MaxResponse is the largest response body that is retained, in bytes; 0
	// means 1 MiB. A larger one is sent once, and repeats get 409.
	MaxResponse int

	// Timeout is the deadline of the handler's context, which does not end when
	// the client leaves; 0 means 30 s.
	Timeout time.Duration

	// Wait is how long a repeat waits for the first request to end; 0 means 10 s,
	// negative means 409 at once.
	Wait time.Duration

	// Retention is how long a response is known, 0 meaning 24 h. Lease is how long
	// a claim outlives a process that died, 0 meaning 15 s. StoreTimeout bounds
	// each call of the store, 0 meaning 2 s.
	Retention, Lease, StoreTimeout time.Duration

	// Executions is how many requests with a key an organization and environment
	// may have in progress in this process; 0 means 1,024.
	Executions int

	// Reexecute lets a repeat run the handler again when the outcome of the first
	// attempt is unknown because its process died. The handler sees it by
	// [Attempt]. By default such a repeat gets 409, and nothing runs twice.
	Reexecute bool

	// Join runs the handler in a transaction of the store (see idem.Joiner), so
	// that what it writes and the reply are saved together or not at all. The
	// store must be able to.
	Join bool

	// Draining, when closed, ends all waits; close it from
	// http.Server.RegisterOnShutdown.
	Draining <-chan struct{}

	// Runner, when set, is used in place of one made from the store and the
	// options above that it has too: to share it, and to call its WaitSettled
	// after Shutdown. Wait and StoreTimeout are then what the server's own
	// timeouts are extended by; give them what the Runner has.
	Runner *idem.Runner

	Hooks *Hooks
}

// Idempotency makes a retried request return the original response and take
// effect once. A request that carries an Idempotency-Key
// (draft-ietf-httpapi-idempotency-key-header-07) claims it; a repeat gets the
// stored response with Idempotent-Replayed: true, the first one's id in
// Svc-Original-Request-Id and a request id of its own.
//
//   - A key belongs to organization, environment and Partition. The same key with
//     another method, path, query, content type or body gets 422.
//   - A repeat of a request in progress waits for it.
//   - The handler runs on the request's goroutine with a context that does not end
//     when the client leaves. Its response is saved, then sent.
//   - A handler that answers 401, 403, 425 or 429, or calls [NotStarted], promises
//     that nothing happened: the key is free again. Every other response is kept,
//     5xx included. After a panic the 500 is kept.
//   - A response over MaxResponse, or one that the handler flushes, is sent and not
//     retained: repeats get 409 and never run it again.
//   - When the store does not answer, the handler does not run: 503.
//
// A decision of [RequireScope] MUST stand before it, because a replay must not
// reach a key that may not see it; without, every request gets 500.
// [RateLimit] SHOULD stand before it, and compression outside it. Requests
// without a key are passed on untouched.
//
// Replies are kept as plain text wherever the store keeps them.
func Idempotency(store idem.Store, o IdempotencyOptions) func(http.Handler) http.Handler {
	if store == nil && o.Runner == nil {
		panic("middleware: Idempotency: the store is nil")
	}
	gate := newIdempotency(store, o)
	return func(next http.Handler) http.Handler {
		return &idempotent{gate: gate, next: next}
	}
}

func newIdempotency(store idem.Store, o IdempotencyOptions) *idempotency {
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost}
	}
	if slices.Contains(o.Methods, http.MethodGet) || slices.Contains(o.Methods, http.MethodHead) {
		panic("middleware: Idempotency: GET and HEAD are idempotent by themselves; leave them out of Methods")
	}
	if o.MaxBody < 0 || o.MaxResponse < 0 || o.Timeout < 0 {
		panic("middleware: Idempotency: a limit is negative")
	}
	if o.MaxBody == 0 {
		o.MaxBody = 1 << 20
	}
	if o.MaxResponse == 0 {
		o.MaxResponse = 1 << 20
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Runner == nil {
		options := idem.Options{
			Lease: o.Lease, Retention: o.Retention, Wait: o.Wait, Timeout: o.StoreTimeout,
			ExecutionsPerOwner: o.Executions, Reexecute: o.Reexecute, Join: o.Join, Draining: o.Draining,
		}
		if o.Hooks != nil {
			options.Logger = o.Hooks.Logger
		}
		o.Runner = idem.NewRunner(store, options)
	}
	if o.Wait == 0 {
		o.Wait = 10 * time.Second
	}
	if o.StoreTimeout == 0 {
		o.StoreTimeout = 2 * time.Second
	}
	return &idempotency{IdempotencyOptions: o}
}

// NotStarted tells [Idempotency] that the handler did nothing, so that its
// response is not kept and a repeat with the same key runs again. A handler that
// has written anything anywhere must not call it.
func NotStarted(ctx context.Context) {
	if s := stateFrom(ctx); s != nil {
		s.notStarted = true
	}
}

// Attempt returns how often the operation of this request was begun, this time
// included: 1, except where IdempotencyOptions.Reexecute lets a later attempt
// run after the outcome of an earlier one was lost.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(attemptKey{}).(int); ok {
		return n
	}
	return 1
}

type attemptKey struct{}

type idempotency struct {
	IdempotencyOptions
}

type idempotent struct {
	gate *idempotency
	next http.Handler
}

func (h *idempotent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := h.gate
	s, r := enter(r, g.Hooks)
	switch {
	case s.key == nil || !s.scoped:
		s.misuse(w, r, StageIdempotency, "Idempotency stands where no RequireScope is before it; middleware.AnyKey() is the requirement that asks for no scope")
		return
	case s.keyed, !slices.Contains(g.Methods, r.Method):
		h.next.ServeHTTP(w, r)
		return
	}
	values := r.Header["Idempotency-Key"]
	if len(values) == 0 {
		if g.Required {
			s.refuse(w, r, StageIdempotency, problem(codeKeyRequired))
			return
		}
		h.next.ServeHTTP(w, r)
		return
	}
	key, err := idem.ParseKey(values)
	if err != nil {
		p := problem(codeKeyInvalid)
		p.Detail = keyDetail(err)
		s.refuse(w, r, StageIdempotency, p)
		return
	}
	body, code := g.readBody(w, r)
	if code != "" {
		p := problem(code)
		switch code {
		case codeBadRequest:
			p.Detail = "The request body ended early or is not well formed. Nothing was done."
		case codeBodyTooLarge:
			p.Detail = "The request body is larger than " + strconv.FormatInt(g.MaxBody, 10) + " bytes, the most that a request with an Idempotency-Key may have here."
		}
		s.refuse(w, r, StageIdempotency, p)
		return
	}
	extendDeadlines(w, r, max(g.Wait, 0)+g.Timeout+2*g.StoreTimeout)
	x := &execution{idempotency: g, state: s, w: w, r: r, body: body}
	record, claim, err := g.Runner.Begin(r.Context(), idem.Request{
		Key:         idem.NewKey(g.partition(s, r), key),
		Owner:       s.key.Tenant(),
		Fingerprint: idem.Fingerprint(r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type"), body),
	})
	switch {
	case err != nil:
		s.refuse(w, r, StageIdempotency, g.beginProblem(s, r, err))
	case claim == nil:
		g.answer(s, w, r, record)
	default:
		x.claim = claim
		x.run(h.next)
	}
}

func (g *idempotency) partition(s *state, r *http.Request) string {
	if g.Partition == nil {
		return s.key.Tenant()
	}
	// The tenant is injective and says how long it is, so nothing added behind it
	// can make it another.
	return s.key.Tenant() + "\x00" + g.Partition(r)
}

// readBody returns the whole body, or the code of the refusal.
func (g *idempotency) readBody(w http.ResponseWriter, r *http.Request) ([]byte, string) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, ""
	}
	if r.ContentLength > g.MaxBody {
		return nil, codeBodyTooLarge
	}
	// The server's own writer, because MaxBytesReader tells it to close the
	// connection by a method that no wrapper has. A declared length is a promise,
	// not a reason to set memory aside.
	src := http.MaxBytesReader(innermost(w), r.Body, g.MaxBody)
	buf := make([]byte, 0, max(512, min(r.ContentLength+1, 16<<10)))
	for {
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, ""
		}
		if err != nil {
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				return nil, codeBodyTooLarge
			}
			return nil, codeBadRequest
		}
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
	}
}

// extendDeadlines gives a request the time that waiting, running and the store
// may take, where the server's timeouts would cut it off before.
func extendDeadlines(w http.ResponseWriter, r *http.Request, d time.Duration) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return
	}
	// The errors say that a foreign writer has no deadlines: then none strike.
	if server.WriteTimeout > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + server.WriteTimeout))
	}
	if server.ReadTimeout > 0 {
		// The server goes on reading to notice that the client leaves; a read that
		// times out would look like that.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d + server.ReadTimeout))
	}
}

func (g *idempotency) beginProblem(s *state, r *http.Request, err error) Problem {
	switch {
	case errors.Is(err, idem.ErrMismatch):
		p := problem(codeKeyReused)
		if strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/") {
			p.Detail += " The boundary of a multipart body is part of the comparison: repeat the same bytes."
		}
		return p
	case errors.Is(err, idem.ErrTooMany):
		return problem(codeTooManyInFlight)
	case errors.Is(err, idem.ErrFull):
		s.hooks.logger().Error("the idempotency store is full", "request_id", s.id)
		return problem(codeReplyStoreFull)
	case r.Context().Err() != nil:
		return problem(codeInProgress) // nobody reads it
	}
	s.hooks.logger().Error("the idempotency store does not answer", "error", err, "request_id", s.id)
	return problem(codeReplyStore)
}

// answer serves a repeat from the record.
func (g *idempotency) answer(s *state, w http.ResponseWriter, r *http.Request, record idem.Record) {
	switch record.State {
	case idem.InFlight:
		s.refuse(w, r, StageIdempotency, problem(codeInProgress))
		return
	case idem.Unknown:
		s.refuse(w, r, StageIdempotency, problem(codeOutcomeUnknown))
		return
	}
	first, err := decodeReply(record.Payload)
	if s.header != "" && first.requestID != "" {
		w.Header()[originalHeader(s.header)] = []string{first.requestID}
	}
	if err != nil || !first.retained {
		p := problem(codeNotRetained)
		p.OriginalStatus, p.OriginalLocation = first.status, first.header.Get("Location")
		s.refuse(w, r, StageIdempotency, p)
		return
	}
	h := w.Header()
	for name, values := range first.header {
		h[name] = values
	}
	h["Idempotent-Replayed"] = trueValue
	s.observe(Event{Stage: StageIdempotency, Outcome: replayed})
	w.WriteHeader(first.status)
	if len(first.body) > 0 {
		_, _ = w.Write(first.body) // the client has left: it may repeat again
	}
}

var trueValue = []string{"true"}

// bufferedBody is a request body that was read before.
type bufferedBody struct{ bytes.Reader }

func (*bufferedBody) Close() error { return nil }

// keyDetail says what is wrong with the header's value.
func keyDetail(err error) string {
	bad, ok := errors.AsType[idem.KeyError](err)
	if !ok {
		return problems[codeKeyInvalid].Detail
	}
	return "The Idempotency-Key header cannot be used: " + string(bad) + "."
}
