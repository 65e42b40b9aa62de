// Package keyed runs the handler of a request with an Idempotency-Key: it holds
// the response back, saves what became of the request, and only then sends it.
package keyed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// Run is one run of the handler of a request under its claim.
type Run struct {
	*Request

	ctx     *Context
	handler writer  // the handler's
	writer  *writer // &handler, or after a panic a second one, which holds the 500
	Silent  bool    // an empty 200 is stored, because the handler wrote nothing
}

// ErrNotSaved means that a transaction was not committed, or that the handler
// had freed the key before it was interrupted.
var ErrNotSaved = errors.New("middleware: the transaction of a keyed request was not committed")

// Serve runs next under ctx, whose parent is the context of R, settles the
// claim, and then sends the response. inner is the context that next gets: ctx,
// or one derived from it.
//
// Nil means that the response is sent. [http.ErrAbortHandler] asks for the
// connection to be aborted, and any other error for a refusal: idem.ErrLost,
// because the claim is not there any more, idem.ErrCommitUnknown,
// idem.ErrConstraint, idem.ErrBroken, ErrInterrupted or ErrNotSaved.
func (x *Run) Serve(next http.Handler, ctx *Context, inner context.Context) (err error) {
	x.ctx = ctx
	ctx.start(x.Request)
	r := x.R.WithContext(inner)
	r.Body = x.Body.Reader()
	x.writer = &x.handler

	defer func() {
		response.Leave(x.R, r, x.R.MultipartForm)
		// This changes nothing if the claim is settled. Otherwise a stream was
		// interrupted, or a hook panicked, and the key must not stay held.
		_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown})
		ctx.end()
	}()
	returned := false
	defer func() {
		if !returned {
			err = x.interrupted(recover())
		}
	}()
	if x.Stage.Join {
		// The transaction's context is made now: a goroutine that the handler
		// leaves behind must not ask for it while the transaction ends.
		ctx.whole()
		x.handler.commit = x.commit
	}
	x.handler.begin(x.Request, ctx)
	next.ServeHTTP(x.writer, r)
	x.R.Pattern = cmp.Or(r.Pattern, x.R.Pattern) // for the log
	x.handler.finish()
	returned = true
	wrote := x.handler.ended != silent
	if x.handler.sending == holding &&
		(!wrote && (response.Written(x.W) || len(x.W.Header()) != x.handler.outer) || x.past(!wrote)) {
		x.bypassed()
	}
	return x.returned()
}

// returned ends the run of a handler that returned.
func (x *Run) returned() error {
	streams := x.writer.sending.streams()
	switch {
	case x.writer.sending == discarding:
		return x.writer.refused
	case x.Stage.Join && !streams:
		return x.commit()
	}
	if refused := x.unproven(streams); refused != nil || x.Stage.Join {
		return refused // a transaction was committed before its stream
	}
	return x.settle()
}

// interrupted ends the run of a handler that panicked with p, or that left by
// runtime.Goexit: then p is nil.
func (x *Run) interrupted(p any) error {
	x.handler.close()
	abort := p == nil || p == http.ErrAbortHandler
	joined := x.Stage.Join
	if x.handler.sending == holding && x.past(x.handler.begun() == 0) {
		x.bypassed()
	}
	switch {
	case x.handler.sending != holding:
		// The client must see that the response is not whole. What a
		// transaction has committed stays.
		if !abort {
			x.Stage.Panicked(x.W, x.R, p)
		}
		return http.ErrAbortHandler // Serve settles the claim
	case joined:
		x.rollBack()
	case abort:
		_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown}) // the runner goes on with it
	}
	if abort {
		return http.ErrAbortHandler
	}
	x.Stage.Panicked(x.W, x.R, p)
	if joined {
		x.Stage.Answer500(x.W, x.R)
		return nil
	}
	x.ctx.Freed.Store(false)
	x.writer = new(writer)
	x.writer.begin(x.Request, x.ctx)
	x.Stage.Answer500(x.writer, x.R)
	x.writer.finish()
	return x.returned()
}

// past reports whether the client has got a response past the handler's writer.
// A foreign W may hide that: then it is known of a handler that wrote nothing.
func (x *Run) past(silent bool) bool {
	if response.Committed(x.W) {
		return true
	}
	w := x.Response
	return silent && w != nil && w.Committed() && w.Request != nil && SameRequest(w.Request, x.R)
}

// SentPast is bypassed for a Silent run: an adapter had held the response back.
func (x *Run) SentPast() {
	x.Stage.Warnings.past(x.log)
	x.Stage.Warnings.addFalse(x.Key, x.Stage.Retention)
}

// bypassed notes that the client has got another response than the handler's
// writer: an adapter does not hand on the writer, or not all of its methods.
func (x *Run) bypassed() {
	var status int // not known
	if core := response.Of(x.W); core != nil {
		status = core.Status
	}
	x.writer.bypass(status)
	x.Stage.Warnings.past(x.log)
}

// nothingHappened reports whether the key may be freed: the handler said so, or
// a rollback proves it. Without one a status proves nothing.
func (x *Run) nothingHappened() bool {
	status := x.writer.status
	switch {
	case x.ctx.Freed.Load():
		return true
	case x.writer != &x.handler:
		return false // the handler panicked: the status is not its own
	case slices.Contains(x.Stage.FreeOn, status):
		return status < 500 || !errors.Is(x.ctx.ended(), idem.ErrLost) // see proves
	case x.Stage.Join:
		return status >= 500 || slices.Contains(refusals, status)
	}
	return false
}

// refusals are statuses of handlers that did nothing, where a rollback proves
// it.
var refusals = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooEarly, http.StatusTooManyRequests}

func (x *Run) settlement() idem.Settlement {
	if x.nothingHappened() {
		return idem.Settlement{Outcome: idem.OutcomeFree}
	}
	s := idem.Settlement{Outcome: idem.OutcomeDone, Summary: x.writer.reply().summary().encode(0)}
	if why, kept := x.writer.kept(); kept {
		s.Payload = x.writer.payload()
	} else {
		s.Payload = s.Summary
		if why != "" {
			x.Stage.Warnings.unretained(x.log, x.R, why)
		}
	}
	return s
}

// save settles the claim. The client's leaving does not interrupt that.
func (x *Run) save(s idem.Settlement) error {
	if x.Units != nil {
		return x.Units.settle(x, s)
	}
	return x.Execution.Settle(x.R.Context(), s)
}

// settle saves the outcome of a run without a transaction, then sends the
// response, unless it was sent as it was written.
func (x *Run) settle() error {
	s, streamed := x.settlement(), x.writer.sending.streams()
	if streamed {
		x.writer.moveDeadline(time.Time{}) // what is buffered waits for the store
	}
	err := x.save(s)
	if errors.Is(err, idem.ErrLost) && s.Outcome != idem.OutcomeFree && !streamed {
		// A second attempt took over, and its response is the one that counts.
		return err
	}
	if s.Outcome == idem.OutcomeDone {
		x.Silent = x.writer.store()
		_, kept := x.writer.kept()
		x.Stage.Warnings.stored(x.log, x.R, x.writer.status, kept, x.Silent)
	}
	if streamed {
		x.writer.moveDeadline(time.Now().Add(x.Stage.Timeout))
	} else {
		x.writer.final = s.Outcome == idem.OutcomeDone
		x.writer.send()
	}
	return nil
}

// commit ends a run whose rows and reply are one transaction.
func (x *Run) commit() error {
	if refused := x.unproven(false); refused != nil {
		return refused
	}
	w := x.writer
	if x.nothingHappened() {
		x.rollBack()
		w.send()
		return nil
	}
	s := x.settlement()
	s.RollBack = w.status >= 400
	err := x.save(s)
	switch {
	case err == nil:
		if w.ended == silent { // not where a stream begins: w.mu is held there
			x.Silent = w.store()
			x.Stage.Warnings.stored(x.log, x.R, w.status, false, x.Silent) // no status that asks for a retry
		}
		w.final = true
		w.send()
	case errors.Is(err, idem.ErrCommitUnknown):
		x.failed("the database did not say whether a transaction was committed", err)
	case errors.Is(err, idem.ErrConstraint):
		x.Stage.Failed(x.W, x.R, slog.LevelWarn, "a constraint that is checked at COMMIT refused what a keyed request "+
			"wrote; a handler that is to answer itself has it checked before, as by SET CONSTRAINTS ALL IMMEDIATE", err)
	case errors.Is(err, idem.ErrBroken):
		x.failed("the handler of a keyed request left a transaction that cannot be committed, and it was rolled back: "+
			"answer with an error when a statement has failed, close all Rows, and set nothing that keeps the reply from "+
			"being saved, such as READ ONLY", err)
	default:
		x.failed("a transaction was not committed", err)
		return ErrNotSaved
	}
	return err
}

func (x *Run) rollBack() {
	switch err := x.save(idem.Settlement{Outcome: idem.OutcomeFree}); {
	case err == nil, errors.Is(err, idem.ErrLost):
	case errors.Is(err, idem.ErrCommitUnknown):
		x.failed("the handler of a keyed request ended its transaction itself; what it wrote may stand", err)
	default:
		x.failed("a transaction was not rolled back cleanly; the database drops it with its connection", err)
	}
}

// failed logs what became of the run.
func (x *Run) failed(what string, err error) { x.Stage.Failed(x.W, x.R, slog.LevelError, what, err) }
