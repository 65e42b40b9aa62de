// Package keyed runs the handler of a request with an Idempotency-Key: it holds
// the response back, saves what became of the request, and only then sends it.
package keyed

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// Options are the settings of the runs of a stage.
type Options struct {
	MaxResponse int                           // bytes of body that are retained
	Timeout     time.Duration                 // of the handler
	FreeOn      []int                         // statuses by which a handler says that nothing happened
	OriginalID  string                        // header of a replay that has the id of the first response
	Streams     func(contentType string) bool // reports whether a flushed response is sent as it comes
}

// Run is one run of a handler under a claim.
type Run struct {
	*Options
	Stage     Stage
	Execution *idem.Execution
	W         http.ResponseWriter
	R         *http.Request
	Body      Body
	IDHeader  string // of RequestID
	RequestID string

	ctx     *Context
	refused Result  // why the handler's response is discarded
	handler writer  // the handler's
	writer  *writer // &handler, or after a panic a second one, which holds the 500
}

// Stage is the caller of a Run.
type Stage interface {
	// Failed logs what became of a transaction, and why.
	Failed(what string, err error)
	// Panicked logs a panic of the handler and writes the response for it to w,
	// unless w is nil.
	Panicked(w http.ResponseWriter, p any)
	// Stored is told the status of a response that was stored. silent says that
	// the handler wrote nothing, so that it is an implicit 200.
	Stored(status int, silent bool)
	// Unretained is told why a response is not retained.
	Unretained(why string)
	// Bypassed is told that the handler's response reached the client past the
	// run.
	Bypassed()
	// Late is told that a silent handler's response was written after the run.
	Late()
}

// Result is what the caller does next.
type Result int

const (
	Sent          Result = iota // nothing: the response is sent
	Lost                        // refuse: another attempt owns the key
	NotSaved                    // refuse: the transaction was not committed
	CommitUnknown               // refuse: whether it was committed is not known
	Aborted                     // abort the connection
)

// Serve runs next under ctx, whose parent is the context of R, settles the
// claim, and then sends the response. inner is the context that next gets: ctx,
// or one derived from it.
func (x *Run) Serve(next http.Handler, ctx *Context, inner context.Context) (result Result) {
	x.ctx = ctx
	ctx.start(x.R.Context(), x.Execution, x.Timeout)
	r := x.R.WithContext(inner)
	r.Body = x.Body.Reader()
	x.handler = writer{run: x}
	x.writer = &x.handler

	defer func() {
		x.R.MultipartForm = r.MultipartForm // the server removes its files
		if r.Pattern != "" {
			x.R.Pattern = r.Pattern // for access logs
		}
		// This changes nothing if the claim is settled. Otherwise a stream was
		// interrupted, or Panicked panicked, and the key must not stay held.
		_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown})
		ctx.end()
	}()
	returned := false
	defer func() {
		if !returned {
			result = x.interrupted(recover())
		}
	}()
	if x.Execution.Joined() {
		// The transaction's context is made now: a goroutine that the handler
		// leaves behind must not ask for it while the transaction ends.
		ctx.whole()
	}
	x.handler.open() // may panic in the Header method of a foreign writer
	next.ServeHTTP(x.writer, r)
	x.writer.finish()
	returned = true
	if x.writer.state == holding && (response.Committed(x.W) || x.writer.silent && response.Written(x.W)) {
		x.bypassed()
	}
	return x.returned()
}

// returned ends the run of a handler that returned.
func (x *Run) returned() Result {
	switch joined := x.Execution.Joined(); {
	case x.writer.state == discarding:
		return x.refused
	case x.writer.state.sends() && x.ctx.Err() != nil:
		// The handler may have ended early for that. A response that may be cut
		// must not look whole, neither here nor to a repeat.
		x.writer.unrecord(contextEnded)
		if !joined {
			_ = x.save(x.settlement()) // the runner goes on with it
		}
		return Aborted
	case joined && x.writer.state == streaming:
		return Sent // it was committed first
	case joined:
		return x.commit()
	}
	return x.settle()
}

// interrupted ends the run of a handler that panicked with p, or that left by
// runtime.Goexit: then p is nil.
func (x *Run) interrupted(p any) Result {
	x.handler.close()
	abort := p == nil || p == http.ErrAbortHandler
	joined := x.Execution.Joined()
	switch {
	case x.handler.state != holding:
		// The client must see that the response is not whole. What a
		// transaction has committed stays.
		if !abort {
			x.Stage.Panicked(nil, p)
		}
		return Aborted // Serve settles the claim
	case joined:
		x.rollBack()
	case abort:
		_ = x.save(idem.Settlement{Outcome: idem.OutcomeUnknown}) // the runner goes on with it
	}
	if abort {
		return Aborted
	}
	if joined {
		x.Stage.Panicked(x.W, p)
		return Sent
	}
	x.ctx.freed.Store(false)
	x.writer = &writer{run: x}
	x.writer.open()
	x.Stage.Panicked(x.writer, p)
	x.writer.finish()
	return x.settle()
}

// bypassed notes that the client has got another response than the handler's
// writer: an adapter does not hand on the writer, or not all of its methods.
func (x *Run) bypassed() {
	status := 0 // not known
	if core := response.Of(x.W); core != nil {
		status = core.Status
	}
	x.writer.bypass(status)
	x.Stage.Bypassed()
}

// nothingHappened reports whether the key may be freed: the handler said so, or
// the rollback proves it.
func (x *Run) nothingHappened() bool {
	if x.ctx.Freed() {
		return true
	}
	if x.writer != &x.handler {
		return false // the handler panicked: the status is not its own
	}
	if slices.Contains(x.FreeOn, x.writer.status) {
		return true
	}
	if x.Execution.Joined() {
		// The rollback is the proof. A status alone proves nothing.
		switch x.writer.status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
	}
	return false
}

func (x *Run) summary() []byte { return x.writer.reply().summary().encode(nil, 0) }

// keeps reports whether a header field is part of the stored reply: one that is
// replayable and was set by the handler, not by an outer stage.
func (x *Run) keeps(f field) bool {
	if outer, has := x.W.Header()[f.name]; has && slices.Equal(f.values, outer) {
		return false
	}
	name := http.CanonicalHeaderKey(f.name) // a handler may have written to the map
	return replayable(name) && name != x.IDHeader && name != x.OriginalID
}

func (x *Run) settlement() idem.Settlement {
	if x.nothingHappened() {
		return idem.Settlement{Outcome: idem.NotStarted}
	}
	s := idem.Settlement{Outcome: idem.Finished, Summary: x.summary()}
	if why, kept := x.writer.kept(); kept {
		s.Payload = x.writer.payload()
	} else {
		s.Payload = s.Summary
		if why != "" {
			x.Stage.Unretained(why)
		}
	}
	return s
}

// save settles the claim. The client's leaving does not interrupt that.
func (x *Run) save(s idem.Settlement) error {
	return x.Execution.Settle(x.R.Context(), s)
}

// settle saves the outcome of a run without a transaction, then sends the
// response, unless it was sent as it was written.
func (x *Run) settle() Result {
	s, sent := x.settlement(), x.writer.state.sends()
	if sent {
		x.writer.setDeadline(time.Time{}) // what is buffered waits for the store
	}
	err := x.save(s)
	if errors.Is(err, idem.ErrLost) && s.Outcome != idem.NotStarted && !sent {
		// A second attempt took over, and its response is the one that counts.
		return Lost
	}
	if s.Outcome == idem.Finished {
		x.Stage.Stored(x.writer.status, x.writer.silent)
		x.writer.store()
	}
	if sent {
		x.writer.setDeadline(time.Now().Add(x.Timeout))
	} else {
		x.writer.send()
	}
	return Sent
}

// commit ends a run whose rows and reply are one transaction.
func (x *Run) commit() Result {
	w := x.writer
	if w.status >= 500 || x.nothingHappened() {
		x.rollBack()
		w.send()
		return Sent
	}
	if x.ctx.Err() != nil {
		x.rollBack()
		x.Stage.Failed("a joined handler ran past its deadline; its transaction was rolled back", context.Cause(x.ctx))
		return NotSaved
	}
	s := x.settlement()
	s.Undo = w.status >= 400
	switch err := x.save(s); {
	case err == nil:
		w.send()
		return Sent
	case errors.Is(err, idem.ErrCommitUnknown):
		x.Stage.Failed("the database did not say whether a transaction was committed", err)
		return CommitUnknown
	default:
		x.Stage.Failed("a transaction was not committed", err)
		return NotSaved
	}
}

func (x *Run) rollBack() {
	if err := x.save(idem.Settlement{Outcome: idem.NotStarted}); err != nil && !errors.Is(err, idem.ErrLost) {
		x.Stage.Failed("a transaction was not rolled back cleanly; the database drops it with its connection", err)
	}
}
