package middleware

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// A reporter tells what happened: the log, the client by a [Problem], and those
// who observe by the [Event]. All stages of a Guard share one. It knows none of
// them.
type reporter struct {
	own       *Hooks         // of the Guard; nil leaves it to the stage outside
	shapes    *regexp.Regexp // of API keys
	keyHeader string         // that may carry an API key, beside Authorization
	proxies   *proxies
	faults    sync.Map // to *fault, by message
}

// hooks returns those for a response: the Guard's own, or those of the stages
// outside.
func (p *reporter) hooks(x *exchange, r *http.Request) *Hooks {
	switch f := factsOf(r.Context()); {
	case p.own != nil:
		return p.own
	case f != nil && f.hooks != nil:
		return f.hooks
	case x != nil:
		return x.hooks // also of a stage inside
	}
	return nil
}

// log returns the logger for what is about the response of w.
func (p *reporter) log(w http.ResponseWriter, r *http.Request) *slog.Logger {
	return p.hooks(exchangeOf(w), r).logger()
}

// logWith is log with the request in each line. A client may have put its key
// into the path. The header is not looked at: a handler that outlives its
// request may be the caller.
func (p *reporter) logWith(w http.ResponseWriter, r *http.Request) *slog.Logger {
	return p.log(w, r).With("request_id", requestID(w, r), "method", p.method(r), "path", p.redact(r.URL.Path))
}

// fault counts the lines with one message.
type fault struct {
	next   atomic.Int64 // when the next line may be written, in nanoseconds since started; 0 before the first
	silent atomic.Int64 // lines suppressed since the last one
}

// fault logs a failure, each message at most once a second: otherwise each
// request of any client would write a line while a store fails. The error may
// quote the credentials.
func (p *reporter) fault(w http.ResponseWriter, r *http.Request, message string, err error) {
	p.sampled(w, r, slog.LevelError, message, err)
}

func (p *reporter) sampled(w http.ResponseWriter, r *http.Request, level slog.Level, message string, err error) {
	known, ok := p.faults.Load(message)
	if !ok {
		known, _ = p.faults.LoadOrStore(message, new(fault))
	}
	if unlogged, due := known.(*fault).due(); due {
		text := p.secrets(exchangeOf(w), r).Redact(fmt.Sprint(err))
		p.log(w, r).Log(r.Context(), level, message,
			"error", text, "request_id", requestID(w, r), "unlogged", unlogged)
	}
}

var started = time.Now()

// due reports whether a line may be written now, and how many were suppressed.
func (f *fault) due() (unlogged int64, due bool) {
	now := int64(time.Since(started)) // monotonic: the wall clock may be set back
	next := f.next.Load()
	if next != 0 && now < next || !f.next.CompareAndSwap(next, now+int64(time.Second)) {
		f.silent.Add(1)
		return 0, false
	}
	return f.silent.Swap(0), true
}

// contain calls a hook and logs its panic. x may be nil.
func (p *reporter) contain(x *exchange, r *http.Request, hook func()) {
	defer p.logHookPanic(x, r)
	hook()
}

// logHookPanic is to be deferred.
func (p *reporter) logHookPanic(x *exchange, r *http.Request) {
	if v := recover(); v != nil {
		p.logPanic(x, r, v)
	}
}

// logPanic logs a panic while the response of x, or nil, was made.
func (p *reporter) logPanic(x *exchange, r *http.Request, v any) {
	secrets := p.secrets(x, r)
	// The first line names the goroutine and may have its labels. Arguments may
	// be bytes of a secret. What is left is the same for all requests.
	_, stack, _ := bytes.Cut(debug.Stack(), []byte("\n"))
	text := secrets.Redact(fmt.Sprintf("%+v", v))
	if text == redact.LeftOut {
		text = fmt.Sprintf("%T: %s", v, text)
	}
	p.hooks(x, r).logger().Error("panic while serving a request",
		slog.String("request_id", x.idOf(r)),
		slog.String("method", p.method(r)),
		slog.String("path", secrets.Redact(r.URL.Path)),
		slog.String("panic", text), slog.String("stack", string(stackArguments.ReplaceAll(stack, []byte("(...)")))))
}

var stackArguments = regexp.MustCompile(`(?m)\([^()\n]*\)$`)

// method returns the method of a request for a log. Net/http takes any token of
// up to a megabyte for one, and it may be an API key: of the first 16 bytes a
// key has no more than redaction leaves.
func (p *reporter) method(r *http.Request) string {
	m := r.Method
	if len(m) <= len(http.MethodOptions) {
		return m
	}
	return p.redact(m[:min(len(m), 16)])
}

// redact returns a text without API keys.
func (p *reporter) redact(text string) string {
	return (&redact.Secrets{Shapes: p.shapes}).Redact(text)
}

// secrets returns the credentials of a request, to keep them out of the log: a
// handler may panic with the request itself, with an error that quotes it, or
// with a part of the key. They are those of the request and of requests outside
// it, and every text of the form of an API key.
func (p *reporter) secrets(x *exchange, r *http.Request) *redact.Secrets {
	s := &redact.Secrets{Shapes: p.shapes}
	if p.shapes == nil { // the reporter of WriteProblem
		s.Shapes = contractKey
	}
	for name, values := range r.Header {
		if !s.Spend(1) {
			break
		}
		// A client can send names of a megabyte, which take long to match.
		if len(name) > 256 || secretHeader.MatchString(name) || name == p.keyHeader {
			s.AddHeaders(values...)
		}
	}
	if x != nil {
		s.AddHeaders(x.authorization, x.apiKey)
	}
	for f := factsOf(r.Context()); f != nil; f = factsOf(f.Context) {
		if f.response != nil && f.response != x {
			s.AddHeaders(f.response.authorization, f.response.apiKey)
		}
	}
	return s
}

// keyShapes matches every text that begins like an API key of the service, so
// that one cut short matches too.
func keyShapes(s keystore.Service) *regexp.Regexp {
	whole := s.Pattern()
	pattern := whole[:strings.LastIndexByte(whole, '{')] + "{8,}"
	for _, legacy := range s.Legacy {
		if len(legacy.Prefix) > 3 { // a shorter one would hide words
			pattern += "|" + regexp.QuoteMeta(legacy.Prefix) + `[^\s"'\\,;<>(){}\[\]]{8,}`
		}
	}
	return regexp.MustCompile(pattern)
}

var contractKey = keyShapes(keystore.Service{})

var secretHeader = regexp.MustCompile(`(?i)authorization|cookie|key|token|secret|password`)

// misuse answers 500 for stages that are put together wrongly, because to pass
// the request on would be unsafe.
func (p *reporter) misuse(w http.ResponseWriter, r *http.Request, stage, what string) {
	p.logWith(w, r).Error("middleware: " + what)
	p.refuse(w, r, stage, refusal(codes.Internal))
}

// refuse answers with a refusal of a stage.
func (p *reporter) refuse(w http.ResponseWriter, r *http.Request, stage string, refused *Problem) {
	if n := recordOf(w); n != nil {
		n.decide(stage, refused.Code)
		n.event.RefusedKey, n.event.Policy = refused.key, cmp.Or(refused.Policy, n.event.Policy)
	}
	hurry(w, r)
	p.write(w, r, refused)
}

// hurry has net/http answer a client without a key at once: it would read the
// body before, which the client could hold back.
func hurry(w http.ResponseWriter, r *http.Request) {
	f := factsOf(r.Context())
	if x := exchangeOf(w); x != nil && x.facts != nil {
		f = x.facts // an API refuses before the request has them
	}
	if (f == nil || !f.principal.known()) && r.ProtoMajor == 1 && r.ContentLength != 0 {
		w.Header()["Connection"] = []string{"close"}
	}
}

// WriteProblem answers with p. Handlers use it so that their refusals look like
// the stages' own; the request id is filled in, and a response that was
// committed already is left alone, with a line in the server's log. An empty
// Detail is left out of the body. A handler that has set fields for another
// body, such as Content-Encoding, removes them first. Whether the connection can
// be used again is left to net/http, as with any response of a handler.
//
// The Event of the response names p.Code as its Problem, and as its Principal
// the one in the context of r, if that has one of [WithPrincipal].
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	if f, x := factsOf(r.Context()), exchangeOf(w); f != nil {
		x.know(f) // of a WithPrincipal inside
	}
	if !response.Committed(w) {
		recordOf(w).note(func(e *Event) { e.Problem = p.Code })
	}
	new(reporter).write(w, r, &p)
}

// write answers with a problem, unless the response is committed.
func (p *reporter) write(w http.ResponseWriter, r *http.Request, problem *Problem) {
	if response.Committed(w) {
		w.WriteHeader(problem.Status) // which only logs it as superfluous
		return
	}
	x, h := exchangeOf(w), w.Header()
	// Fresh slices: outer middleware may modify header values in place.
	values := &[...]string{problemType, "no-store", problem.Challenge, ""}
	h["Cache-Control"] = values[1:2:2]
	if problem.Challenge != "" {
		h["Www-Authenticate"] = values[2:3:3]
	}
	if problem.RetryAfter > 0 {
		values[3] = seconds(problem.RetryAfter)
		h["Retry-After"] = values[3:]
	}
	delete(h, "Content-Length") // of a response that the handler had in mind before
	full := *problem
	full.RequestID = x.idOf(r)
	if hooks := p.hooks(x, r); hooks != nil && hooks.Problem != nil {
		if contentType, body := p.ask(hooks, x, r, full); body != nil {
			h["Content-Type"] = []string{contentType}
			w.WriteHeader(full.Status)
			_, _ = w.Write(body) // the client has left: nobody to tell
			return
		}
	}
	h["Content-Type"] = values[:1:1]
	body := bodies.Get().(*[]byte)
	*body = full.append((*body)[:0])
	w.WriteHeader(full.Status)
	_, _ = w.Write(*body)
	if cap(*body) <= 4<<10 {
		bodies.Put(body)
	}
}

var bodies = sync.Pool{New: func() any {
	body := make([]byte, 0, 512)
	return &body
}}

// ask asks the Problem hook. It returns a nil body when there is none or it
// panics.
func (p *reporter) ask(hooks *Hooks, x *exchange, r *http.Request, problem Problem) (contentType string, body []byte) {
	f, once := extend(r.Context()), *hooks
	once.Problem = nil // the hook may call WriteProblem for the default
	if x != nil && x.facts != nil {
		f.principal = x.facts.principal
	}
	f.hooks, f.response = &once, new(exchange)
	f.response.ID = problem.RequestID
	problem.Missing = slices.Clone(problem.Missing) // otherwise those of the Requirement
	p.contain(x, r, func() { contentType, body = hooks.Problem(r.WithContext(f), problem) })
	return contentType, body
}

// pattern asks for the pattern of the route where the request is now, unless it
// is known.
func (p *reporter) pattern(x *exchange, r *http.Request) {
	if x == nil || x.record == nil || x.record.matched {
		return
	}
	n := x.record
	if n.pattern != nil {
		pattern := ""
		p.contain(x, r, func() { pattern = n.pattern(r) })
		if pattern != "" {
			n.match(pattern)
			return
		}
	}
	if r.Pattern != n.outer || n.event.Pattern == "" {
		n.event.Pattern = r.Pattern
	}
}

// route returns the pattern of the route for a line of the log, "" if none is
// known.
func (p *reporter) route(x *exchange, r *http.Request) (pattern string) {
	if hooks := p.hooks(x, r); hooks != nil && hooks.Pattern != nil {
		p.contain(x, r, func() { pattern = hooks.Pattern(r) })
	}
	return cmp.Or(pattern, r.Pattern)
}

// ended completes the Event of a response and hands it to those who observe.
func (p *reporter) ended(x *exchange, r *http.Request, aborted bool) {
	e := &x.record.event
	// Copies, in one allocation: an Event that is kept would keep x, of which x.ID
	// is a part, and the request line, of which the method is.
	both := x.ID + p.method(r)
	e.RequestID, e.Method = both[:len(x.ID)], both[len(x.ID):]
	if x.facts != nil {
		e.Principal = x.facts.principal
	}
	e.Status, e.Bytes, e.Duration = x.Status, x.Bytes, time.Since(started)-x.record.start
	e.Aborted = aborted
	e.sent = &x.record.sent
	e.sent.copy(p, r)
	p.pattern(x, r)
	if e.Status == 0 && !x.Hijacked && !aborted {
		e.Status = http.StatusOK // net/http's own, for a handler that wrote nothing
	}
	if e.Stage == "" {
		e.Stage, e.Outcome = StageHandler, handled
	}
	if x.record.observe != nil {
		defer p.logHookPanic(x, r)
		x.record.observe(r.Context(), *e)
	}
}
