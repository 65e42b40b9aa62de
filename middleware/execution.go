package middleware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// execution is one run of a handler under a claim.
type execution struct {
	*idempotency
	state *state
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
	claim *idem.Execution

	bodyGone bool // it was let go of while waiting

	recorder *recorder // of the response that counts: the handler's, or a 500 in its place
	handed   recorder  // the one that the handler has
	reader   bufferedBody
	settled  bool // save was called
}

// run runs the handler, settles, then sends. A handler that was interrupted
// half-way leaves an outcome behind as well.
func (x *execution) run(next piece) {
	s := x.state
	// It is apart from the rest, because a handler may keep it.
	ctx := &handlerContext{parent: s.contextOf(x.r), state: s, claim: x.claim, attempt: x.claim.Attempt(), deadline: time.Now().Add(x.Timeout)}
	r := x.r.WithContext(ctx)
	returned := false
	defer func() {
		x.r.MultipartForm = r.MultipartForm // whose files the server removes
		if !x.settled {                     // a hook panicked, and a claim that nobody settles is held for ever
			_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown})
			x.drop()
		}
		ctx.end()
	}()
	x.handed = recorder{below: x.w, limit: x.MaxResponse, live: x.goLive, outside: beyondID(s, x.w.Header())}
	x.recorder = &x.handed
	if x.claim.Joined() {
		x.recorder.limit = -1
		ctx.whole() // now, so that no goroutine of the handler has the store make it while it settles
	}
	x.reader.Reset(x.body)
	r.Body = &x.reader
	if s.copied == nil {
		s.copied = x.r
	}

	defer func() {
		if !returned {
			x.interrupted(recover())
		}
	}()
	next.serve(s, x.recorder, r)
	x.recorder.finish()
	returned = true
	x.handed.over = true // before a goroutine of the handler can hear that its context ends

	s.observe(Event{Stage: StageIdempotency, Outcome: executed})
	switch {
	case x.recorder.isLive:
	case x.recorder.mute:
		x.refuse(codeInProgress)
	case x.claim.Joined():
		x.commit(ctx)
	default:
		x.settle()
	}
}

// nothingHappened reports whether the handler promised that. By these statuses
// it says that it did not begin.
func (x *execution) nothingHappened() bool {
	switch x.recorder.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return x.state.notStarted.Load()
}

func (x *execution) reply() reply {
	w := x.recorder
	return reply{requestID: x.state.id, status: w.status, header: w.head, body: w.body, retained: true}
}

// keeps reports whether a header field is part of the stored reply.
func (x *execution) keeps(name string) bool {
	if !replayable(name) || !x.recorder.own(name) {
		return false
	}
	name = http.CanonicalHeaderKey(name)
	return name != x.state.header && !isOriginal(name, x.state.header)
}

func (x *execution) settlement() idem.Settlement {
	if x.nothingHappened() {
		return idem.Settlement{Outcome: idem.NotStarted}
	}
	full := x.reply()
	summary := full.summary().encode(nil)
	if len(full.body) > x.MaxResponse || x.recorder.short() {
		return idem.Settlement{Outcome: idem.Finished, Payload: summary, Summary: summary}
	}
	return idem.Settlement{Outcome: idem.Finished, Payload: full.encode(x.keeps), Summary: summary}
}

// save settles the claim. The client's leaving does not interrupt that.
func (x *execution) save(s idem.Settlement) error {
	x.settled = true
	return x.claim.Settle(x.state.contextOf(x.r), s)
}

// settle ends an execution whose reply stands by itself.
func (x *execution) settle() {
	settlement := x.settlement()
	err := x.save(settlement)
	if errors.Is(err, idem.ErrLost) && settlement.Outcome != idem.NotStarted {
		// A second attempt took over and its response is the one that counts.
		x.refuse(codeInProgress)
		return
	}
	if err != nil && !errors.Is(err, idem.ErrLost) {
		x.state.hooks.logger().Error("the outcome of an idempotent request is not saved yet; saving goes on", "error", err, "request_id", x.state.id)
	}
	x.recorder.reveal()
}

// drop forgets what the handler wrote, unless it went out.
func (x *execution) drop() {
	if w := &x.handed; w.below != nil && !w.isLive {
		x.state.restore(w.below.Header(), w.outside)
	}
}

// refuse answers in the handler's place.
func (x *execution) refuse(code string) {
	x.drop()
	x.state.refuse(x.w, x.r, StageIdempotency, problem(code))
}

// commit ends an execution whose rows and reply are one transaction.
func (x *execution) commit(ctx context.Context) {
	w := x.recorder
	if w.status >= 500 || x.nothingHappened() {
		x.rollBack()
		w.reveal()
		return
	}
	if ctx.Err() != nil {
		x.rollBack()
		x.state.hooks.logger().Error("a joined handler ran past its deadline and was rolled back", "error", context.Cause(ctx), "request_id", x.state.id)
		x.refuse(codeReplyStore)
		return
	}
	settlement := x.settlement()
	settlement.Undo = w.status >= 400
	switch err := x.save(settlement); {
	case err == nil:
		w.reveal()
	case errors.Is(err, idem.ErrCommitUnknown):
		x.state.hooks.logger().Error("whether a transaction was committed is not known", "error", err, "request_id", x.state.id)
		x.refuse(codeCommitUnknown)
	default:
		x.state.hooks.logger().Error("a transaction was not committed", "error", err, "request_id", x.state.id)
		x.refuse(codeReplyStore)
	}
}

func (x *execution) rollBack() {
	if err := x.save(idem.Settlement{Outcome: idem.NotStarted}); err != nil && !errors.Is(err, idem.ErrLost) {
		x.state.hooks.logger().Error("a transaction was not rolled back cleanly; the database drops it with its connection", "error", err, "request_id", x.state.id)
	}
}

// goLive saves, for a response that cannot be held back, that there was one.
func (x *execution) goLive() bool {
	settlement := idem.Settlement{Outcome: idem.NotStarted}
	if !x.nothingHappened() {
		summary := x.reply().summary().encode(nil)
		settlement = idem.Settlement{Outcome: idem.Finished, Payload: summary, Summary: summary}
	}
	err := x.save(settlement)
	if err != nil && !errors.Is(err, idem.ErrLost) {
		x.state.hooks.logger().Error("the outcome of an idempotent request is not saved yet; saving goes on", "error", err, "request_id", x.state.id)
	}
	return !errors.Is(err, idem.ErrLost)
}

// interrupted ends an execution whose handler panicked with p, or left by
// runtime.Goexit (p is nil then).
func (x *execution) interrupted(p any) {
	s := x.state
	x.handed.over = true
	abort := p == nil || p == http.ErrAbortHandler
	if !abort {
		s.logPanic(x.r, p)
	}
	switch {
	case x.claim.Joined():
		x.rollBack()
	case x.recorder.isLive || x.recorder.mute:
		abort = true // settled already, and the client must see that it is not whole
	case abort:
		_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown}) // the runner goes on with it
	}
	if abort {
		x.drop()
		if p != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	s.observe(Event{Stage: StageRecover, Outcome: codeInternal})
	x.drop()
	if x.claim.Joined() {
		s.writeProblem(x.w, x.r, problem(codeInternal))
		return
	}
	s.notStarted.Store(false)
	x.recorder = &recorder{below: x.w, limit: x.MaxResponse, live: x.goLive, outside: x.handed.outside}
	s.writeProblem(x.recorder, x.r, problem(codeInternal))
	x.settle()
}
