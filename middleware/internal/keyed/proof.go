package keyed

import (
	"errors"
	"net/http"

	"github.com/sallyport-go/sallyport/idem"
)

// ErrInterrupted means that the handler's context ended before its response was
// whole, so what it has done is not known.
var ErrInterrupted = errors.New("middleware: the context of a keyed handler ended before its response was whole")

// proves reports whether the response of a handler says what it did. ended is
// why the handler's context has ended, or nil. A handler whose context has ended
// may have stopped half-way. Then these are proofs: an error that it wrote; a
// status that it set after that; and a status that it set before, with a body as
// long as it had declared itself.
func (w *writer) proves(ended error) bool {
	switch {
	case ended == nil, w.status >= 400:
		return true
	case w.sending == bypassed:
		return true // the client has got a response that is not known here
	case w.late || !w.explicit:
		return w.explicit
	}
	return w.wrote == w.length || !bodyAllowed(w.status)
}

// unproven ends a run whose response proves nothing, and says how the client is
// refused. If the response is a proof, it does nothing and returns nil.
func (x *Run) unproven(streams bool) error {
	ended := x.ctx.ended()
	switch {
	case x.writer.proves(ended):
		return nil
	case streams:
		// What may be cut short must not look whole, neither here nor to a
		// repeat. Of a transaction this settles nothing: it was committed first.
		why := contextEnded + ": " + ended.Error()
		x.writer.unrecord(why)
		x.writer.unkept = why
		_ = x.save(x.settlement()) // the runner goes on with it
		return http.ErrAbortHandler
	case x.Stage.Join:
		x.rollBack()
		x.Stage.Failed(x.W, x.R, "a joined handler ran past its deadline; its transaction was rolled back", ended)
		return ErrNotSaved
	}
	x.Stage.Failed(x.W, x.R, "the context of a keyed handler ended before its response was whole", ended)
	s, refused := idem.Settlement{Outcome: idem.OutcomeUnknown}, ErrInterrupted
	if x.ctx.Freed.Load() {
		s.Outcome, refused = idem.NotStarted, ErrNotSaved
	}
	if err := x.save(s); errors.Is(err, idem.ErrLost) {
		return err
	}
	return refused
}
