package middleware

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
)

// keyedCall is one request with an Idempotency-Key.
type keyedCall struct {
	stage   *idempotentStage
	key     idem.Key
	waiting time.Time // start of the wait for the first request; zero if it did not wait
	keyed.Run
}

// request describes the request to the runner.
func (c *keyedCall) request(f *facts, key string) idem.Request {
	s, r, p, extra := c.stage, c.R, f.principal, ""
	if s.Partition != nil {
		inner := r.WithContext(f)
		inner.Body = c.Body.Reader()
		extra = s.Partition(inner)
	}
	host, target := r.Host, r.RequestURI
	if s.Host != nil {
		host = s.Host(host)
	}
	if path, query, _ := strings.Cut(target, "?"); target == "" {
		target = r.URL.RequestURI() // a request that a handler made
	} else if !strings.HasSuffix(path, r.URL.EscapedPath()) || query != r.URL.RawQuery {
		// The URL was rewritten, and not just by StripPrefix: include both
		// forms.
		target += "\x00" + r.URL.RequestURI()
	}
	return idem.Request{
		Key:   idem.NewKey(p.Organization(), string(p.Environment()), p.Subject(), extra, key),
		Owner: p.Organization(),
		Fingerprint: repeat.Content{
			Method: r.Method, Host: host, Target: target,
			Range: firstValue(r.Header["Range"]), ContentType: firstValue(r.Header["Content-Type"]), Body: c.Body.Bytes,
		}.Fingerprint(),
		Waiting: c.wait,
	}
}

// firstValue returns what Header.Get would, without making the name canonical.
func firstValue(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (c *keyedCall) wait() {
	c.waiting = time.Now()
	c.Body.Wait()
}

// handlerContext is the context of a keyed handler. It is allocated apart from
// the call: a handler may retain it.
type handlerContext struct {
	facts facts
	run   keyed.Context
}

// serve runs the handler under its claim.
func (c *keyedCall) serve(f *facts, execution *idem.Execution) {
	s, g := c.stage, c.stage.guard
	ctx := &handlerContext{facts: *f}
	ctx.facts.Context, ctx.facts.claim = &ctx.run, &ctx.run.Claim
	c.Options, c.Stage, c.Execution = &s.keyed, c, execution
	c.IDHeader, c.RequestID = f.response.IDHeader, requestID(c.W, c.R)
	switch c.Serve(s.next, &ctx.run, &ctx.facts) {
	case keyed.Sent:
		exchangeOf(c.W).decide(StageIdempotency, executed)
	case keyed.Lost:
		p := refusal(codeInProgress)
		p.Detail = "Another request with this Idempotency-Key took over. Retry after the wait to get its response."
		g.refuse(c.W, c.R, StageIdempotency, p)
	case keyed.NotSaved:
		g.refuse(c.W, c.R, StageIdempotency, refusal(codeReplyStore))
	case keyed.CommitUnknown:
		g.refuse(c.W, c.R, StageIdempotency, refusal(codeCommitUnknown))
	case keyed.Aborted:
		panic(http.ErrAbortHandler)
	}
}

// Failed implements keyed.Stage.
func (c *keyedCall) Failed(what string, err error) {
	c.stage.faults.log(c.stage.guard.hooks(c.R), c.RequestID, what, err)
}

// Panicked implements keyed.Stage.
func (c *keyedCall) Panicked(w http.ResponseWriter, p any) {
	c.stage.guard.logPanic(exchangeOf(c.W), c.R, p)
	exchangeOf(c.W).note(func(e *Event) { e.Stage, e.Outcome = StageRecover, codeInternal })
	if w != nil {
		c.stage.guard.writeProblem(exchangeOf(w), w, c.R, refusal(codeInternal))
	}
}

// Stored implements keyed.Stage.
func (c *keyedCall) Stored(status int, silent bool) {
	c.stage.Stored(c.stage.guard.hooks(c.R).logger(), c.R, status, silent)
}

// Unretained implements keyed.Stage.
func (c *keyedCall) Unretained(why string) {
	c.stage.Unretained(c.stage.guard.hooks(c.R).logger(), c.R, why)
}

// Bypassed implements keyed.Stage.
func (c *keyedCall) Bypassed() {
	c.stage.Bypassed(c.stage.guard.logger(c.W, c.R))
}

// Late implements keyed.Stage.
func (c *keyedCall) Late() {
	c.stage.Late(c.stage.guard.logger(c.W, c.R), c.key, c.stage.Runner.Options().Retention)
}

// answer serves a repeat from the record.
func (s *idempotentStage) answer(w http.ResponseWriter, r *http.Request, record idem.Record) {
	switch record.State {
	case idem.InFlight:
		s.guard.refuse(w, r, StageIdempotency, refusal(codeInProgress))
		return
	case idem.Unknown:
		s.guard.refuse(w, r, StageIdempotency, refusal(codeOutcomeUnknown))
		return
	}
	first, err := keyed.Decode(record.Payload)
	x := exchangeOf(w)
	if x != nil && x.IDHeader != "" && first.RequestID != "" {
		w.Header()[s.keyed.OriginalID] = []string{first.RequestID}
	}
	if err != nil || !first.Retained {
		p := refusal(codeNotRetained)
		p.OriginalStatus, p.OriginalLocation = first.Status, first.Location()
		s.guard.refuse(w, r, StageIdempotency, p)
		return
	}
	w.Header()["Idempotent-Replayed"] = []string{"true"}
	x.decide(StageIdempotency, replayed)
	first.Send(w)
}

// extendDeadline gives a request the time that waiting, running and the store
// may take, where the server's WriteTimeout would cut it off before. Its
// ReadTimeout does not matter: the body is read.
func (s *idempotentStage) extendDeadline(w http.ResponseWriter, r *http.Request) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.WriteTimeout > 0 {
		// An error says that a foreign writer has no deadlines, so none can
		// fire.
		var deadline time.Time // none, when the sum overflows
		if d := s.wait + server.WriteTimeout; s.wait > 0 && d > 0 {
			deadline = time.Now().Add(d)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(deadline)
	}
}

func bodyProblem(err error) *Problem {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		p := refusal(codeBodyTooLarge)
		p.Detail = "The request body is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes, the most that a request with an Idempotency-Key may have here."
		return p
	}
	if errors.Is(err, keyed.ErrBodies) {
		p := refusal(codeTooManyInFlight)
		p.Detail = "Too many request bodies are in memory at the moment. Nothing was done: retry after the wait."
		return p
	}
	p := refusal(codeBadRequest)
	p.Detail = "The request body ended early or is not well formed. Nothing was done."
	return p
}

func (s *idempotentStage) beginProblem(w http.ResponseWriter, r *http.Request, record idem.Record, err error) *Problem {
	switch {
	case errors.Is(err, idem.ErrMismatch):
		p := refusal(codeKeyReused)
		if strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/") {
			p.Detail += " The boundary of a multipart body is part of the comparison: repeat the same bytes."
		}
		return p
	case errors.Is(err, idem.ErrTooMany):
		return refusal(codeTooManyInFlight)
	case errors.Is(err, idem.ErrNoTurn):
		s.faults.log(s.guard.hooks(r), requestID(w, r), "a keyed request found no free transaction in time", err)
		p := refusal(codeTooManyInFlight)
		p.Detail = "Too many operations are being worked on at the moment. Nothing was done: retry after the wait."
		return p
	case errors.Is(err, idem.ErrFull):
		s.faults.log(s.guard.hooks(r), requestID(w, r), "the idempotency store is full", err)
		p := refusal(codeReplyStoreFull)
		p.RetryAfter = max(record.RetryAfter, p.RetryAfter)
		return p
	case r.Context().Err() != nil:
		return refusal(codeInProgress) // the client has left
	}
	s.faults.log(s.guard.hooks(r), requestID(w, r), "the idempotency store does not answer", err)
	return refusal(codeReplyStore)
}
