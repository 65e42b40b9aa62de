package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/redact"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// Hooks change the log, the form of refusals, and who is told of responses. The
// fields are read while requests are served and must not change after the first
// request. A panic of a hook goes to the log and changes no response.
type Hooks struct {
	// Logger receives what an operator must know: panics, stores that do not
	// answer, stages put together wrongly. Nil means slog.Default(). No secret
	// is ever written to it.
	Logger *slog.Logger

	// Problem returns the body of a refusal and its media type, in place of
	// application/problem+json. The status and the headers that belong to the
	// refusal are the stage's: WWW-Authenticate, Retry-After, Cache-Control and
	// the request id. For a nil body the client gets the default.
	Problem func(r *http.Request, p Problem) (contentType string, body []byte)

	// Observe is told of each response when it ends. It is called on the
	// request's goroutine, from many requests at once, and must be quick.
	// Without Observe and WithEvent, no Event is made. See [AccessLog].
	Observe func(ctx context.Context, e Event)

	// Pattern finds the pattern of a route for the Event where a router other
	// than http.ServeMux knows it. It is called in Guard.Require, which should
	// stand on the route, and when the response ends, until it returns one.
	Pattern func(r *http.Request) string
}

// AccessLog returns a function for Hooks.Observe that logs each response as one
// line: at level error if it has a status of 500 or more or was aborted, at
// info otherwise. Nil means slog.Default().
func AccessLog(l *slog.Logger) func(context.Context, Event) {
	hooks := &Hooks{Logger: l}
	return func(ctx context.Context, e Event) {
		level := slog.LevelInfo
		if e.Status >= 500 || e.Aborted {
			level = slog.LevelError
		}
		attrs := []slog.Attr{
			slog.String("request_id", e.RequestID), slog.String("method", e.Method), slog.String("pattern", e.Pattern), slog.String("path", e.Path),
			slog.Int("status", e.Status), slog.Int64("bytes", e.Bytes), slog.Duration("duration", e.Duration),
			slog.Any("caller", e.Principal), slog.String("stage", string(e.Stage)), slog.String("outcome", e.Outcome),
			slog.Any("client", e.ClientIP), slog.String("agent", e.Agent),
		}
		if e.Problem != "" {
			attrs = append(attrs, slog.String("problem", e.Problem))
		}
		if e.RefusedKey != "" {
			attrs = append(attrs, slog.String("refused_key", e.RefusedKey))
		}
		if e.Policy != "" {
			attrs = append(attrs, slog.String("policy", e.Policy), slog.Int64("limit", e.Limit), slog.Int64("remaining", e.Remaining))
		}
		if e.Waited > 0 {
			attrs = append(attrs, slog.Duration("waited", e.Waited))
		}
		if e.Reported != "" {
			attrs = append(attrs, slog.String("reported", e.Reported))
		}
		if e.Aborted {
			attrs = append(attrs, slog.Bool("aborted", true))
		}
		hooks.logger().LogAttrs(ctx, level, "request", attrs...)
	}
}

func (h *Hooks) logger() *slog.Logger {
	if h == nil || h.Logger == nil {
		return slog.Default()
	}
	return h.Logger
}

// faults logs failures, each text at most once a second: otherwise each request
// of any client would write a line while a store fails.
type faults struct{ texts sync.Map } // to *fault

// fault counts the lines with one text.
type fault struct {
	next   atomic.Int64 // when the next line may be written, in nanoseconds since started; 0 before the first
	silent atomic.Int64 // lines suppressed since the last one
}

func (f *faults) log(hooks *Hooks, id, message string, err error) {
	known, ok := f.texts.Load(message)
	if !ok {
		known, _ = f.texts.LoadOrStore(message, new(fault))
	}
	if unlogged, due := known.(*fault).due(); due {
		hooks.logger().Error(message, "error", err, "request_id", id, "unlogged", unlogged)
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

// Stage names one stage on the path of a request.
type Stage string

// The stages in the order of the path.
const (
	StageRecover     Stage = "recover"
	StageAuth        Stage = "authenticate"
	StageRoute       Stage = "route"
	StageRateLimit   Stage = "rate_limit"
	StageScope       Stage = "scope"
	StageIdempotency Stage = "idempotency"
	StageHandler     Stage = "handler"
)

// An Event is the record of one response, complete when the response ends. It
// holds no secret.
type Event struct {
	RequestID string
	Method    string // cut to 16 bytes
	Pattern   string // of the mux inside, or else of the one outside; "" for an unknown path

	// Path is that of the URL, and Agent the User-Agent header: without API keys
	// and cut to 8 KiB. ClientIP is the address as Options.ClientIP of the
	// outermost stage finds it, zero on a unix socket.
	Path, Agent string
	ClientIP    netip.Addr

	Status   int   // 0 if the connection was hijacked or aborted before a status was sent
	Bytes    int64 // of the body, as the handlers wrote it
	Duration time.Duration

	// Principal is the caller, zero if none was authenticated. Its methods give
	// key, organization and environment.
	Principal Principal

	// RefusedKey is the id of the API key that was refused because it is
	// revoked, expired or suspended, or may not be used here; "" for none.
	RefusedKey string

	// Stage is the stage that decided on the response. Outcome is the code of a
	// refusal as in [Problem.Code], "executed" or "replayed" (both of
	// StageIdempotency), "redirected" (of StageRoute) or "handled" (of
	// StageHandler).
	Stage   Stage
	Outcome string

	// Problem is the code of the Problem that a handler wrote with
	// [WriteProblem], "" for none.
	Problem string

	// Waited is how long a repeat waited for the first request with its key.
	Waited time.Duration

	// Policy is the rate limit that decided, "" without one. Limit is its
	// burst, Remaining what is left of it, and RetryAfter what a refused client
	// was told to wait.
	Policy           string
	Limit, Remaining int64
	RetryAfter       time.Duration

	// Reported is the code of the refusal that the request would have got, had
	// the limit or requirement not been report-only; "" for none.
	Reported string

	Hijacked bool // the handler took over the connection
	Aborted  bool // the connection was aborted: the client sees no whole response

	// Nested is set for a response within another one: of a request that a
	// handler sent on its own context, or behind an http.TimeoutHandler. It has
	// the outer one's RequestID.
	Nested bool
}

const (
	handled    = "handled"
	executed   = "executed"
	replayed   = "replayed"
	redirected = "redirected"
)

// record is what the stages find out for the Event of a response.
type record struct {
	start   time.Time
	slot    *eventSlot // of WithEvent, or nil
	observe func(context.Context, Event)
	outer   string // the pattern of a mux outside
	matched bool   // event.Pattern is that of the route
	event   Event
}

// decide notes which stage decided on the response, unless one inside it did.
func (x *exchange) decide(stage Stage, outcome string) {
	if x != nil && x.record != nil && x.record.event.Outcome == "" {
		x.record.event.Stage, x.record.event.Outcome = stage, outcome
	}
}

// note changes the Event that will be reported, if anybody observes.
func (x *exchange) note(change func(*Event)) {
	if x != nil && x.record != nil {
		change(&x.record.event)
	}
}

func (x *exchange) noteLimit(p *ratelimit.Policy, left ratelimit.State) {
	x.note(func(e *Event) { e.Policy, e.Limit, e.Remaining = p.Name, p.Limit.Capacity(), left.Remaining })
}

// noteReported notes what a report-only limit or requirement would have refused
// the request with. The first one counts, as the first refusal does.
func (x *exchange) noteReported(code string) {
	x.note(func(e *Event) { e.Reported = cmp.Or(e.Reported, code) })
}

// admit sets the caller of the Event: the last one that a stage was told of.
func (x *exchange) admit(p Principal) {
	if x != nil && p.known() {
		x.principal = p
	}
}

func (x *exchange) match(pattern string) {
	if x != nil && x.record != nil {
		x.record.event.Pattern, x.record.matched = pattern, true
	}
}

// notePattern asks for the pattern of the route where the request is now,
// unless it is known.
func (x *exchange) notePattern(r *http.Request) {
	if x == nil || x.record == nil || x.record.matched {
		return
	}
	if x.hooks != nil && x.hooks.Pattern != nil {
		pattern := ""
		x.guard.contain(x, r, func() { pattern = x.hooks.Pattern(r) })
		if pattern != "" {
			x.match(pattern)
			return
		}
	}
	if r.Pattern != x.record.outer || x.record.event.Pattern == "" {
		x.record.event.Pattern = r.Pattern
	}
}

// contain calls a hook and logs its panic. x may be nil.
func (g *Guard) contain(x *exchange, r *http.Request, hook func()) {
	defer func() {
		if p := recover(); p != nil {
			g.logPanic(x, r, p)
		}
	}()
	hook()
}

// report completes the Event and hands it to whoever observes.
func (x *exchange) report(r *http.Request, aborted bool) {
	e := &x.record.event
	e.RequestID, e.Method, e.Principal = x.ID, x.guard.method(r), x.principal
	e.Status, e.Bytes, e.Duration = x.Status, x.Bytes, time.Since(x.record.start)
	e.Hijacked, e.Aborted = x.Hijacked, aborted
	shapes := redact.Secrets{Shapes: x.guard.shapes}
	e.Path, e.Agent, e.ClientIP = shapes.Redact(r.URL.Path), shapes.Redact(r.UserAgent()), x.guard.options.ClientIP.From(r)
	x.notePattern(r)
	if e.Status == 0 && !x.Hijacked && !aborted {
		e.Status = http.StatusOK // net/http's own, for a handler that wrote nothing
	}
	if e.Stage == "" {
		e.Stage, e.Outcome = StageHandler, handled
	}
	if x.record.slot != nil {
		x.record.slot.Store(e)
	}
	if x.record.observe != nil {
		x.guard.contain(x, r, func() { x.record.observe(r.Context(), *e) })
	}
}

type eventSlot = atomic.Pointer[Event]

// WithEvent lets middleware outside the stages, such as an access log, see the
// Event of the response. Pass the returned context on with the request. After
// the inner handler has returned, event returns the Event of the first
// RequestID or API inside; false when none has ended a response.
func WithEvent(ctx context.Context) (_ context.Context, event func() (Event, bool)) {
	f := extend(ctx)
	slot := new(eventSlot)
	f.event = slot
	return f, func() (Event, bool) {
		if e := slot.Load(); e != nil {
			return *e, true
		}
		return Event{}, false
	}
}
