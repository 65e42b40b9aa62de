package keyed

import (
	"errors"
	"net/http"

	"github.com/sallyport-go/sallyport/idem"
)

// ErrInterrupted means that what the handler has done is not known.
var ErrInterrupted = errors.New("middleware: the context of a keyed handler ended before its response was whole")

// proves reports whether the response says what the handler did. ended is why
// its context has ended, or nil: the handler may have stopped half-way for that.
// Then an error that it wrote is a proof, but no 5xx under a lost claim: a call
// that was cancelled fails, whatever it has done. So is a status that was set
// before the end, with a body of the declared length, and one that was set after
// it, unless it is 200: a layer that holds the response back, or a router, sets
// 200 and a length for a handler that has set neither.
func (w *writer) proves(ended error) bool {
	switch {
	case ended == nil:
		return true
	case w.status >= 400:
		return w.status < 500 || !errors.Is(ended, idem.ErrLost)
	case w.sending == bypassed:
		return w.commit == nil // not known: it is not retained, and a transaction is not committed
	case !w.explicit:
		return false
	case w.late:
		return w.status != http.StatusOK
	}
	return w.wrote == w.length || !bodyAllowed(w.status)
}

// unproven ends a run whose response proves nothing, and returns what the client
// is refused with. It returns nil for a proof.
func (x *Run) unproven(streams bool) error {
	ended, outcome, refused := x.ctx.ended(), idem.OutcomeUnknown, ErrInterrupted
	switch {
	case x.writer.proves(ended):
		return nil
	case streams:
		// What may be cut must not look whole, neither here nor to a repeat.
		x.writer.unrecord(contextEnded + ": " + ended.Error())
		_ = x.save(x.settlement()) // the runner goes on with it; a transaction is settled
		return http.ErrAbortHandler
	case x.Stage.Join:
		x.rollBack()
		if refused = ErrNotSaved; x.writer.sending == bypassed {
			refused = http.ErrAbortHandler // the client has got what is undone
		}
	case x.ctx.Freed.Load():
		outcome, refused = idem.OutcomeFree, ErrNotSaved
	}
	x.failed("the context of a keyed handler ended before its response was whole", ended)
	if err := x.save(idem.Settlement{Outcome: outcome}); errors.Is(err, idem.ErrLost) {
		return err
	}
	return refused
}
