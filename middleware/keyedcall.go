package middleware

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/internal/transaction"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// idempotentStage is the stage of one route or chain.
type idempotentStage struct {
	*idempotency
	report *reporter
	next   http.Handler
}

// handle answers a request under facts, which say that a scope decision was
// made.
func (s *idempotentStage) handle(f *facts, w http.ResponseWriter, r *http.Request) {
	values := r.Header["Idempotency-Key"]
	if !slices.Contains(s.Methods, r.Method) || len(values) == 0 && !s.Required || f.reported {
		if f.reported && len(values) > 0 {
			s.ignored.Do(func() {
				s.report.logWith(w, r).Warn("middleware: an Idempotency-Key was ignored: " +
					"Options.ReportOnly let the request pass without a caller")
			})
		}
		serveCharged(s.report, f, s.next, w, r)
		return
	}
	q := &keyed.Request{Stage: &s.stage, W: w, R: r}
	if u := f.units; u != nil && u.Take() {
		q.Units = u
	}
	defer q.Body.Release()
	if d := s.answer(f, q, values); d.problem != nil {
		s.report.refuse(w, r, StageIdempotency, d)
	}
}

// answer claims the key and answers the request, by its handler or by what is
// stored, or it returns why it does not.
func (s *idempotentStage) answer(f *facts, q *keyed.Request, values []string) denial {
	if len(values) == 0 {
		return denied(codes.KeyRequired)
	}
	key, err := repeat.Key(values)
	if err != nil {
		return explained(codes.KeyInvalid, "The Idempotency-Key header cannot be used: "+err.Error()+".")
	}
	if s.EchoKey {
		q.W.Header()["Idempotency-Key"] = []string{values[0]}
	}
	if err := s.stage.Bodies.Read(&q.Body, f.caller.Tenant(), q.W, q.R, s.MaxBody); err != nil {
		if err == keyed.ErrConsumed {
			s.report.misuse(q.W, q.R, StageIdempotency, "what stands outside Idempotent has read the body of the request, "+
				"whose repeats would all look the same; put it inside, or let it set r.Body to what it has read")
			return denial{}
		}
		return bodyDenial(err)
	}
	s.extendDeadline(q.W, q.R)
	claim := s.claim(f, q, key)
	if claim.Fingerprint, err = q.Fingerprint(); err != nil {
		return s.beginDenial(q, err)
	}
	if s.stage.Warnings.IsFalse(claim.Key) {
		return denied(codes.NotRetained)
	}
	record, execution, err := s.begin(q, claim)
	for errors.Is(err, idem.ErrMismatch) {
		same, failed := q.Repeats(record.Fingerprint)
		if !same {
			err = cmp.Or(failed, err)
			break
		}
		claim.Fingerprint = record.Fingerprint
		record, execution, err = s.begin(q, claim)
	}
	if !q.Waiting.IsZero() {
		recordOf(q.W).note(func(e *Event) { e.Waited = time.Since(q.Waiting) })
	}
	switch {
	case err != nil:
		return s.beginDenial(q, err)
	case execution == nil:
		return s.replay(q, record)
	case q.Dropped:
		// The first request freed the key, and this one cannot run without its body.
		s.giveBack(q, execution)
		return denied(codes.InProgress)
	case q.Units != nil && record.Attempt == 1: // a take-over was admitted before
		if d := s.admit(q, execution); d.problem != nil {
			s.report.refuse(q.W, q.R, StageQuota, d)
			return denial{}
		}
	}
	q.Key, q.Execution, q.Attempt, q.Response = claim.Key, execution, record.Attempt, &f.response.Writer
	return s.execute(f, q)
}

// admit asks the quotas whether an execution may begin. If it may not, or a plan
// panics, its key is free.
func (s *idempotentStage) admit(q *keyed.Request, e *idem.Execution) (d denial) {
	begins := false
	defer func() {
		if !begins {
			s.giveBack(q, e)
		}
	}()
	d = askQuota(s.report, q.Units, q.W, q.R)
	begins = d.problem == nil
	return d
}

// giveBack frees the key of an execution that does not begin.
func (s *idempotentStage) giveBack(q *keyed.Request, e *idem.Execution) {
	err := e.Settle(q.R.Context(), idem.Settlement{Outcome: idem.OutcomeFree})
	if err != nil && !errors.Is(err, idem.ErrLost) {
		s.report.fault(q.W, q.R, "a claim that was not used is not freed yet", err)
	}
}

func (s *idempotentStage) begin(q *keyed.Request, claim idem.Claim) (idem.Record, *idem.Execution, error) {
	ctx := q.R.Context()
	record, execution, err := s.Runner.Begin(ctx, claim, q.Wait)
	if err != nil && err == ctx.Err() && q.Waiting.IsZero() {
		// Nothing was claimed yet. The client has left, or has only closed its
		// sending half and still reads.
		record, execution, err = s.Runner.Begin(context.WithoutCancel(ctx), claim, q.Wait)
	}
	return record, execution, err
}

// claim describes the request to the runner, but for its fingerprint.
func (s *idempotentStage) claim(f *facts, q *keyed.Request, key string) idem.Claim {
	r, caller, extra := q.R, f.caller, ""
	if s.Partition != nil {
		inner := r.WithContext(f)
		inner.Body = q.Body.Reader()
		extra = s.Partition(inner)
		response.Leave(r, inner, r.MultipartForm)
	}
	host, target := r.Host, r.RequestURI
	if s.CanonicalHost != nil {
		host = s.CanonicalHost(host)
	}
	if path, query, _ := strings.Cut(target, "?"); target == "" {
		target = r.URL.RequestURI() // a request that a handler made
	} else if !strings.HasSuffix(path, r.URL.EscapedPath()) || query != r.URL.RawQuery {
		// The URL was rewritten, and not just by StripPrefix: include both forms.
		target += "\x00" + r.URL.RequestURI()
	}
	q.Content = repeat.Content{
		Method: r.Method, Host: host, Target: target, Range: firstValue(r.Header["Range"]),
		ContentType: firstValue(r.Header["Content-Type"]),
	}
	claim := idem.Claim{
		Key:    idem.NewKey(caller.Organization(), string(caller.Environment()), caller.Subject(), extra, key),
		Tenant: caller.Tenant(), Organization: caller.Organization(),
	}
	if u := q.Units; u != nil {
		claim.Account, claim.Units = u.Account, u.Route
	}
	return claim
}

// execute runs the handler under its claim.
func (s *idempotentStage) execute(f *facts, q *keyed.Request) denial {
	run := &keyed.Run{Request: q}
	// Apart from the run: a handler may retain its context.
	inner := &struct {
		facts facts
		keyed.Context
	}{}
	inner.facts.copy(&inner.Context, f)
	if s.stage.Join {
		inner.facts.Context = transaction.With(&inner.Context)
	}
	inner.facts.claim = &inner.Claim
	recordOf(q.W).note(func(e *Event) { e.Executed = true })
	err := run.Serve(s.next, &inner.Context, &inner.facts)
	if q.Units != nil {
		noteUnits(q.Units, q.W)
	}
	switch {
	case err == nil:
		recordOf(q.W).decide(StageIdempotency, executed)
		if x := f.response; run.Silent && x.Request != nil && keyed.SameRequest(x.Request, q.R) {
			x.silent.Store(run)
		}
		return denial{}
	case err == http.ErrAbortHandler:
		panic(err)
	case errors.Is(err, idem.ErrLost) && !s.Runner.Options().Reexecute:
		return denied(codes.OutcomeUnknown) // nobody took over: the record is gone, as after Erase
	case errors.Is(err, idem.ErrLost):
		return explained(codes.InProgress,
			"Another request with this Idempotency-Key took over. Retry after the wait to get its response.")
	case errors.Is(err, idem.ErrCommitUnknown):
		return denied(codes.CommitUnknown)
	case errors.Is(err, idem.ErrConstraint):
		return denied(codes.Constraint)
	case errors.Is(err, idem.ErrBroken):
		p := refusal(codes.Internal)
		p.again = codes.InVain
		return denial{problem: p}
	case errors.Is(err, keyed.ErrInterrupted):
		p := *problems[codes.Interrupted]
		if s.Runner.Options().Reexecute {
			p.again = "" // a repeat runs
		}
		return denial{problem: &p}
	}
	return explained(codes.ReplyStore, "The operation was begun and could not be completed, and nothing that it wrote "+
		"was kept. Retry after the wait with the same Idempotency-Key.")
}

// replay answers a repeat from the record.
func (s *idempotentStage) replay(q *keyed.Request, record idem.Record) denial {
	switch record.State {
	case idem.InProgress:
		return denied(codes.InProgress)
	case idem.Unknown:
		return denied(codes.OutcomeUnknown)
	}
	first, err := keyed.Decode(record.Payload)
	x, h := exchangeOf(q.W), q.W.Header()
	if x != nil && x.IDHeader != "" && first.RequestID != "" {
		h[s.stage.OriginalID] = []string{first.RequestID}
	}
	if err != nil && record.Retained { // damaged in the store, or sealed
		s.report.fault(q.W, q.R, "a stored reply of a keyed request cannot be read; its repeats get none", err)
	}
	if err != nil || !first.Retained {
		p := refusal(codes.NotRetained)
		p.OriginalStatus, p.OriginalLocation = first.Status, first.Location()
		return denial{problem: p}
	}
	h["Idempotent-Replayed"] = []string{"true"}
	recordOf(q.W).decide(StageIdempotency, replayed)
	first.Send(&s.stage, q.W)
	return denial{}
}

// extendDeadline gives a request the time that waiting, running and the store
// may take, where the server's WriteTimeout would cut it off before. Its
// ReadTimeout does not matter: the body is read.
func (s *idempotentStage) extendDeadline(w http.ResponseWriter, r *http.Request) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.WriteTimeout > 0 {
		// An error says that a foreign writer has no deadlines, so none can fire.
		var deadline time.Time // none, when the sum overflows
		if d := s.wait + server.WriteTimeout; s.wait > 0 && d > 0 {
			deadline = time.Now().Add(d)
		}
		_ = http.NewResponseController(w).SetWriteDeadline(deadline)
	}
}

func bodyDenial(err error) denial {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return explained(codes.BodyTooLarge, "The request body is larger than "+strconv.FormatInt(tooLarge.Limit, 10)+
			" bytes, the most that a request with an Idempotency-Key may have here.")
	}
	if errors.Is(err, keyed.ErrBodies) {
		return explained(codes.TooManyInFlight,
			"Too many request bodies are in memory at the moment. Nothing was done: retry after the wait.")
	}
	return explained(codes.BadRequest, "The request body ended early or is not well formed. Nothing was done.")
}

// beginDenial is the refusal for an error of [idem.Runner.Begin].
func (s *idempotentStage) beginDenial(q *keyed.Request, err error) denial {
	switch {
	case errors.Is(err, idem.ErrMismatch):
		p := refusal(codes.KeyReused)
		p.Status = s.MismatchStatus
		if strings.HasPrefix(strings.ToLower(q.R.Header.Get("Content-Type")), "multipart/") {
			p.Detail += " The boundary of a multipart body is part of the comparison: repeat the same bytes."
		}
		return denial{problem: p}
	case errors.Is(err, keyed.ErrBodies):
		return bodyDenial(err)
	case errors.Is(err, idem.ErrTooMany):
		return denied(codes.TooManyInFlight)
	case errors.Is(err, idem.ErrNoTurn):
		s.report.fault(q.W, q.R, "a keyed request found no free transaction in time", err)
		return explained(codes.TooManyInFlight,
			"The operation waited for a free transaction of the database, and none was free in time. "+
				"Nothing was done: retry after the wait.")
	case errors.Is(err, idem.ErrFull):
		s.report.fault(q.W, q.R, "the reply store is full", err)
		return denied(codes.ReplyStoreFull)
	case q.R.Context().Err() != nil:
		return denied(codes.InProgress) // the client has left
	}
	s.report.fault(q.W, q.R, "the reply store does not answer", err)
	return denied(codes.ReplyStore)
}
