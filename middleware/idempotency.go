package middleware

import (
	"context"
	"errors"
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
	// and environment, such as a project. Nil adds nothing. It is given a copy of the
	// request, whose body it may read.
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
	// a claim outlives a process that died, 0 meaning 15 s; in an idem.Memory it
	// does not. StoreTimeout bounds each call of another store, 0 meaning 2 s.
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
	// after Shutdown. Wait and StoreTimeout are then what the server's
	// WriteTimeout is extended by; give them what the Runner has.
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
		return &idempotent{gate, pieceOf(next)}
	}
}

func newIdempotency(store idem.Store, o IdempotencyOptions) *idempotency {
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost}
	}
	for _, method := range o.Methods {
		if !validToken(method) || method != strings.ToUpper(method) {
			panic("middleware: Idempotency: " + quote(method) + " in Methods is not a method; methods are in capital letters")
		}
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
	s := stateFrom(ctx)
	if s == nil || s.gate == nil {
		return
	}
	for gate := s.gate; s != nil && s.gate == gate; s = s.parent {
		s.notStarted.Store(true) // of branches, too, of the state that holds the claim
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
	faults faults
}

type idempotent struct {
	gate      *idempotency
	following piece
}

func (h *idempotent) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve(enter(r), w, r) }

func (h *idempotent) serve(s *state, w http.ResponseWriter, r *http.Request) {
	g := h.gate
	s.heed(g.Hooks)
	switch {
	case s.key == nil || s.need == nil:
		s.misuse(w, r, StageIdempotency, "Idempotency stands where no RequireScope is before it; middleware.AnyKey() is the requirement that asks for no scope")
		return
	case s.gate != nil && s.gate != g:
		s.misuse(w, r, StageIdempotency, "Idempotency stands inside another Idempotency; give API.Handle the inner one itself, or leave one out")
		return
	case s.gate == g, !slices.Contains(g.Methods, r.Method):
		h.following.serve(s, w, r)
		return
	}
	s.gate = g
	values := r.Header["Idempotency-Key"]
	if len(values) == 0 {
		if g.Required {
			s.refuse(w, r, StageIdempotency, problem(codeKeyRequired))
			return
		}
		h.following.serve(s, w, r)
		return
	}
	key, err := idem.ParseKey(values)
	if err != nil {
		p := problem(codeKeyInvalid)
		p.Detail = keyDetail(err)
		s.refuse(w, r, StageIdempotency, p)
		return
	}
	body, err := g.readBody(w, r)
	if err != nil {
		s.refuse(w, r, StageIdempotency, bodyProblem(err))
		return
	}
	extendDeadline(w, r, max(g.Wait, 0)+g.Timeout+2*g.StoreTimeout)
	x := &execution{idempotency: g, state: s, w: w, r: r, body: body}
	request := idem.Request{
		Key:   idem.NewKey(g.partition(s, r, body), key),
		Owner: s.key.Tenant(),
		// With the path go the requirement and the pattern, because the path alone can
		// be that of two routes, behind a host or http.StripPrefix: a reply must not
		// get around the decision that it was given under.
		Fingerprint: idem.Fingerprint(r.Method, *s.need+"\x00"+r.Pattern+"\x00"+r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Content-Type"), body),
	}
	if len(body) > waitingBody {
		request.Waiting = func() { x.body, x.bodyGone = nil, true }
	}
	record, claim, err := g.Runner.Begin(s.contextOf(r), request)
	switch {
	case err != nil:
		s.refuse(w, r, StageIdempotency, g.beginProblem(s, r, err))
	case claim == nil:
		g.answer(s, w, r, record)
	case x.bodyGone:
		// The first request freed the key, and this one cannot run any more.
		x.claim = claim
		x.rollBack()
		s.refuse(w, r, StageIdempotency, problem(codeInProgress))
	default:
		x.claim = claim
		x.run(h.following)
	}
}

func (g *idempotency) partition(s *state, r *http.Request, body []byte) string {
	tenant := s.key.Tenant()
	if g.Partition == nil {
		return tenant
	}
	r = r.WithContext(s.contextOf(r))
	buffered := &bufferedBody{}
	buffered.Reset(body)
	r.Body = buffered
	// With its length before it, nothing added behind a tenant makes it another.
	return strconv.Itoa(len(tenant)) + ":" + tenant + g.Partition(r)
}

// extendDeadline gives a request the time that waiting, running and the store may
// take, where the server's WriteTimeout would cut it off before. Its ReadTimeout
// is no matter: the body is read, and net/http listens for the client's leaving
// without a deadline.
func extendDeadline(w http.ResponseWriter, r *http.Request, d time.Duration) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.WriteTimeout > 0 {
		// An error says that a foreign writer has no deadlines: then none strikes.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + server.WriteTimeout))
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
		g.faults.log(s, "the idempotency store is full", err)
		return problem(codeReplyStoreFull)
	case r.Context().Err() != nil:
		return problem(codeInProgress) // nobody reads it
	}
	g.faults.log(s, "the idempotency store does not answer", err)
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
		p.OriginalStatus = first.status
		if location, _ := first.header.get("Location"); len(location) > 0 {
			p.OriginalLocation = location[0]
		}
		s.refuse(w, r, StageIdempotency, p)
		return
	}
	h := w.Header()
	for _, f := range first.header {
		h[f.name] = f.values
	}
	h["Idempotent-Replayed"] = []string{"true"}
	s.observe(Event{Stage: StageIdempotency, Outcome: replayed})
	w.WriteHeader(first.status)
	if len(first.body) > 0 {
		_, _ = w.Write(first.body) // the client has left: it may repeat again
	}
}

// keyDetail says what is wrong with the header's value.
func keyDetail(err error) string {
	bad, ok := errors.AsType[idem.KeyError](err)
	if !ok {
		return problems[codeKeyInvalid].Detail
	}
	return "The Idempotency-Key header cannot be used: " + string(bad) + "."
}
