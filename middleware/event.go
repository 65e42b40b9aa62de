package middleware

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
	"github.com/sallyport-go/sallyport/ratelimit"
)

// The stages in the order of the path, as [Event].Stage names them.
const (
	StageRecover      = "recover"
	StageAuthenticate = "authenticate"
	StageRoute        = "route"
	StageRateLimit    = "rate_limit"
	StageScope        = "scope"
	StageQuota        = "quota"
	StageIdempotency  = "idempotency"
	StageHandler      = "handler"
)

// An Event is the record of one response, complete when the response ends, and
// may be kept. It shows no secret. What its methods return is found out when
// they are called.
type Event struct {
	RequestID string
	Method    string // cut to 16 bytes
	Pattern   string // of the mux inside, or else of the one outside; "" for an unknown path

	Status   int   // 0 if the connection was aborted, or hijacked, before a status was sent
	Bytes    int64 // of the body, as the handlers wrote it
	Duration time.Duration

	Caller *keystore.Caller // nil if none was authenticated

	// RefusedKey is the id of the API key that was refused or reported because
	// it is revoked, expired or suspended, or may not be used here; "" for none.
	RefusedKey string

	// Stage is the stage that decided on the response. Outcome is the code of a
	// refusal as in [Problem.Code], "executed" or "replayed" (both of
	// StageIdempotency), "redirected" (of StageRoute) or "handled" (of
	// StageHandler).
	Stage   string
	Outcome string

	// ProblemCode is the code of the Problem that a handler wrote with
	// [WriteProblem], "" for none.
	ProblemCode string

	// Executed is set if the handler ran under an Idempotency-Key, also if it
	// panicked or its transaction was rolled back.
	Executed bool

	// Waited is how long a repeat waited for the first request with its
	// Idempotency-Key.
	Waited time.Duration

	// Policy is the rate limit that decided, "" without one. Burst is that of
	// its limit, and Remaining what is left of it. After a refusal by a quota,
	// Policy is its name, and the others are 0.
	Policy           string
	Burst, Remaining int64

	// Units is what the request was charged for, also where its outcome is not
	// known; 0 for none.
	Units int64

	// ReportedCode is the code of the refusal that the request would have got, had
	// authentication, the limit, the requirement or the quota not been report-only, or
	// "no_requirement" for a success on a route without [Guard.Enforce]; "" for
	// none.
	ReportedCode string

	// Deprecated is set for a route with RouteOptions.Deprecated or Sunset.
	Deprecated bool

	// Aborted is set if the connection was aborted: the client sees no whole
	// response.
	Aborted bool

	// Nested is set for a response within another one: of a request that a
	// handler sent on its own context, or behind an http.TimeoutHandler. It has
	// the outer one's RequestID.
	Nested bool

	sent **sent
}

// sent is what the client sent, for the methods of Event. It is copied, so that
// an Event stays valid when the request has ended. Event has a pointer to a
// pointer, which fmt prints as an address whatever the verb: the path may hold an
// API key.
type sent struct {
	path, agent, peer, forwarded string
	report                       *reporter
}

func (s *sent) copy(report *reporter, r *http.Request) {
	s.report, s.peer = report, r.RemoteAddr
	s.path, s.agent = report.short(r.URL.Path), report.short(firstValue(r.Header["User-Agent"]))
	if len(r.RequestURI) > redact.MaxText {
		s.path = strings.Clone(s.path) // a part of it
	}
	if p := report.proxies; len(p.prefixes) > 0 || p.socket {
		s.forwarded = strings.Join(r.Header["X-Forwarded-For"], ",")
	}
	if len(s.forwarded) > redact.MaxText {
		s.peer, s.forwarded = report.proxies.client(r).String(), ""
	}
}

// short redacts a long text now, so that an Event that is kept is small.
func (p *reporter) short(text string) string {
	if len(text) > redact.MaxText {
		return p.redact(text)
	}
	return text
}

// Path returns that of the URL, without API keys and cut to 8 KiB.
func (e Event) Path() string { return e.redacted(func(s *sent) string { return s.path }) }

// Agent returns the User-Agent header, without API keys and cut to 8 KiB.
func (e Event) Agent() string { return e.redacted(func(s *sent) string { return s.agent }) }

func (e Event) redacted(field func(*sent) string) string {
	if e.sent == nil {
		return ""
	}
	text := field(*e.sent)
	if len(text) > redact.MaxText {
		return text // by short
	}
	return (*e.sent).report.redact(text)
}

// ClientIP returns the address behind the TrustedProxies of the outermost stage,
// zero on a unix socket that it does not trust.
func (e Event) ClientIP() netip.Addr {
	if e.sent == nil {
		return netip.Addr{}
	}
	s := *e.sent
	return s.report.proxies.behind(s.peer, []string{s.forwarded})
}

const (
	handled    = "handled"
	executed   = "executed"
	replayed   = "replayed"
	redirected = "redirected"

	noRequirement = "no_requirement" // is reported
)

// record is what the stages find out for the Event of a response. A nil record
// is that of a response that nobody observes.
type record struct {
	start   time.Duration // since started
	observe func(context.Context, Event)
	pattern func(*http.Request) string
	outer   string // the pattern of a mux outside
	matched bool   // event.Pattern is that of the route
	event   Event
	sent    *sent
	copied  sent
}

// decide notes which stage decided on the response, unless one inside it did.
func (n *record) decide(stage, outcome string) {
	if n != nil && n.event.Outcome == "" {
		n.event.Stage, n.event.Outcome = stage, outcome
	}
}

// panicked notes a panic of the handler.
func (n *record) panicked() {
	n.note(func(e *Event) { e.Stage, e.Outcome = StageRecover, codes.Internal })
}

func (n *record) note(change func(*Event)) {
	if n != nil {
		change(&n.event)
	}
}

func (n *record) noteLimit(p *ratelimit.Policy, left ratelimit.State) {
	n.note(func(e *Event) { e.Policy, e.Burst, e.Remaining = p.Name, p.Limit.Capacity(), left.Remaining })
}

// noteReported notes what a report-only stage would have refused the request
// with, and the id of the API key, "" for none. The first one counts, as the
// first refusal does.
func (n *record) noteReported(code, key string) {
	n.note(func(e *Event) { e.ReportedCode, e.RefusedKey = cmp.Or(e.ReportedCode, code), cmp.Or(e.RefusedKey, key) })
}

func (n *record) match(pattern string) {
	if n != nil {
		n.event.Pattern, n.matched = pattern, true
	}
}

// AccessLog returns a function for Hooks.Observe that logs each response as one
// line: at level error if it has a status of 500 or more or was aborted, at
// info otherwise. Nil means slog.Default().
func AccessLog(l *slog.Logger) func(context.Context, Event) {
	hooks := &Hooks{Logger: l} // slog.Default may change
	return func(ctx context.Context, e Event) {
		level := slog.LevelInfo
		if e.Status >= 500 || e.Aborted {
			level = slog.LevelError
		}
		attrs := []slog.Attr{
			slog.String("request_id", e.RequestID), slog.String("method", e.Method),
			slog.String("pattern", e.Pattern), slog.String("path", e.Path()),
			slog.Int("status", e.Status), slog.Int64("bytes", e.Bytes), slog.Duration("duration", e.Duration),
			slog.Any("caller", e.Caller), slog.String("stage", e.Stage), slog.String("outcome", e.Outcome),
			slog.Any("client", e.ClientIP()), slog.String("agent", e.Agent()),
		}
		add := func(known bool, more ...slog.Attr) {
			if known {
				attrs = append(attrs, more...)
			}
		}
		add(e.ProblemCode != "", slog.String("problem", e.ProblemCode))
		add(e.RefusedKey != "", slog.String("refused_key", e.RefusedKey))
		add(e.Policy != "",
			slog.String("policy", e.Policy), slog.Int64("burst", e.Burst), slog.Int64("remaining", e.Remaining))
		add(e.Units > 0, slog.Int64("units", e.Units))
		add(e.Waited > 0, slog.Duration("waited", e.Waited))
		add(e.ReportedCode != "", slog.String("reported", e.ReportedCode))
		add(e.Deprecated, slog.Bool("deprecated", true))
		add(e.Aborted, slog.Bool("aborted", true))
		hooks.logger().LogAttrs(ctx, level, "request", attrs...)
	}
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
		e.Caller = x.facts.caller
	}
	e.Status, e.Bytes, e.Duration = x.Status, x.Bytes, time.Since(started)-x.record.start
	e.Aborted = aborted
	x.record.sent, e.sent = &x.record.copied, &x.record.sent
	x.record.copied.copy(p, r)
	p.pattern(x, r)
	if e.Status == 0 && !x.Hijacked && !aborted {
		e.Status = http.StatusOK // net/http's own, for a handler that wrote nothing
	}
	if r.Method == http.MethodConnect && e.Status/100 == 3 {
		e.Pattern = "" // ServeMux has set it to the path that it redirects to
	}
	if e.Stage == "" {
		e.Stage, e.Outcome = StageHandler, handled
	}
	if x.record.observe != nil {
		p.contain(x, r, func() { x.record.observe(r.Context(), *e) })
	}
}
