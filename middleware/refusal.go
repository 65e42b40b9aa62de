package middleware

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/ratefields"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// misuse answers 500 for stages that are put together wrongly, because to pass
// the request on would be unsafe.
func (p *reporter) misuse(w http.ResponseWriter, r *http.Request, stage, what string) {
	p.logWith(w, r).Error("middleware: " + what)
	p.refuse(w, r, stage, denied(codes.Internal))
}

// A denial is what the check of a stage answers: why a request does not pass.
// The zero denial lets it pass.
type denial struct {
	problem *Problem      // requests may share it; nil for none
	policy  string        // the rate limit or the quota that refused, or ""
	wait    time.Duration // of that; 0 leaves the problem's own
}

// denied is the denial with the table's row of a code.
func denied(code string) denial { return denial{problem: problems[code]} }

// explained is a denial with a detail of its own.
func explained(code, detail string) denial {
	p := refusal(code)
	p.Detail = detail
	return denial{problem: p}
}

// refuse answers for a stage. Every refusal comes by here.
func (p *reporter) refuse(w http.ResponseWriter, r *http.Request, stage string, d denial) {
	p.noteRefusal(w, r, d.problem)
	if n := recordOf(w); n != nil && !response.Committed(w) {
		n.decide(stage, d.problem.Code)
		n.event.RefusedKey = cmp.Or(d.problem.caller.KeyID(), n.event.RefusedKey)
		n.event.Policy = cmp.Or(d.policy, d.problem.Policy, n.event.Policy)
	}
	hurry(w, r)
	problem := *d.problem
	problem.Policy, problem.RetryAfter = cmp.Or(d.policy, problem.Policy), cmp.Or(d.wait, problem.RetryAfter)
	if keyed.Answers(w) {
		problem.again = "" // its Idempotent says whether the key is free
	}
	if p.metadata != "" && !strings.Contains(problem.Challenge, " resource_metadata=") {
		if problem.Challenge == "Bearer" {
			problem.Challenge += ` resource_metadata="` + p.metadata + `"`
		} else if strings.HasPrefix(problem.Challenge, "Bearer ") {
			problem.Challenge += `, resource_metadata="` + p.metadata + `"`
		}
	}
	p.write(w, r, &problem)
}

// noteRefusal has Uses note that a key was refused. Failures of the service are
// not the key's.
func (p *reporter) noteRefusal(w http.ResponseWriter, r *http.Request, refused *Problem) {
	x, caller := exchangeOf(w), refused.caller
	if caller == nil && x != nil && x.facts != nil {
		caller = x.facts.caller
	}
	if p.uses == nil || refused.Status >= 500 || response.Committed(w) {
		return
	}
	p.uses.Refuse(caller, refused.Code, func() string {
		if r.Method == http.MethodConnect {
			return "" // ServeMux sets the pattern to the path that it redirects to
		}
		return p.route(x, r)
	})
}

// hurry has net/http answer a client without a key at once: it would read the
// body before, which the client could hold back.
func hurry(w http.ResponseWriter, r *http.Request) {
	f := factsOf(r.Context())
	if x := exchangeOf(w); x != nil && x.facts != nil {
		f = x.facts // an API refuses before the request has them
	}
	if (f == nil || f.caller == nil) && r.ProtoMajor == 1 && r.ContentLength != 0 {
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
// The Event of the response has p.Code as its ProblemCode, and as its Caller
// the one in the context of r, if that has one of [WithCaller].
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	if f, x := factsOf(r.Context()), exchangeOf(w); f != nil {
		x.know(f) // of a WithCaller inside
	}
	if !response.Committed(w) {
		recordOf(w).note(func(e *Event) { e.ProblemCode = p.Code })
	}
	new(reporter).write(w, r, &p)
}

// write answers with a problem, whose request id it sets, unless the response is
// committed.
func (p *reporter) write(w http.ResponseWriter, r *http.Request, full *Problem) {
	if response.Committed(w) {
		w.WriteHeader(full.Status) // which only logs it as superfluous
		return
	}
	x, h := exchangeOf(w), w.Header()
	// Fresh slices: outer middleware may modify header values in place.
	values := &[...]string{"", "no-store", full.Challenge, "", string(full.again)}
	h["Cache-Control"] = values[1:2:2]
	if full.Challenge != "" {
		h["Www-Authenticate"] = values[2:3:3]
	}
	if full.RetryAfter > 0 {
		// Clients retry at once on 0, and too early if it is rounded down.
		values[3] = strconv.FormatInt(max(ratefields.CeilSeconds(full.RetryAfter), 1), 10)
		h["Retry-After"] = values[3:4:4]
	}
	if _, set := h[keyed.ShouldRetry]; p.advises && full.again != "" && !set {
		h[keyed.ShouldRetry] = values[4:]
	}
	delete(h, "Content-Length") // of a response that the handler had in mind before
	full.requestID = x.idOf(r)
	var body []byte
	if hooks := p.hooks(x, r); hooks != nil && hooks.ProblemBody != nil {
		values[0], body = p.ask(hooks, x, r, *full)
	}
	if body == nil {
		own := bodies.Get().(*[]byte)
		body = full.append((*own)[:0])
		if *own = body; cap(body) <= 4<<10 {
			defer bodies.Put(own)
		}
		values[0] = problemType
	}
	h["Content-Type"] = values[:1:1]
	if x != nil && !keyed.Answers(w) {
		x.PrepareLinger(h, len(body))
	}
	w.WriteHeader(full.Status)
	_, _ = w.Write(body) // the client has left: nobody to tell
}

var bodies = sync.Pool{New: func() any {
	body := make([]byte, 0, 512)
	return &body
}}

// ask asks the Problem hook. It returns a nil body when there is none or it
// panics.
func (p *reporter) ask(hooks *Hooks, x *exchange, r *http.Request, problem Problem) (contentType string, body []byte) {
	f, once := extend(r.Context()), *hooks
	once.ProblemBody = nil // the hook may call WriteProblem for the default
	if x != nil && x.facts != nil {
		f.caller = x.facts.caller
	}
	f.hooks, f.response = &once, new(exchange)
	f.response.ID = problem.requestID
	problem.Missing = slices.Clone(problem.Missing) // otherwise those of the Requirement
	p.contain(x, r, func() { contentType, body = hooks.ProblemBody(r.WithContext(f), problem) })
	return contentType, body
}
