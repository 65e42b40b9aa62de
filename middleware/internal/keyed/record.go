package keyed

import (
	"math"
	"net/http"
	"slices"
)

// layOut lays out what stands before the body of the stored reply, unless that
// is done, with room for so many bytes of it: most handlers write theirs at once.
func (w *writer) layOut(room int) {
	if w.record != nil {
		return
	}
	var few [8]field
	reply, kept, outer := w.reply(), few[:0], w.q.W.Header()
	for _, f := range w.head {
		if w.q.keeps(f, outer) {
			kept = append(kept, f)
		}
	}
	reply.header = kept
	w.record = reply.encode(room)
	w.bodyAt = len(w.record)
}

// body is what was recorded of the body.
func (w *writer) body() []byte { return w.record[w.bodyAt:] }

// keep records p, which is sent as well, if there is room in memory for it. It
// returns why it does not.
func (w *writer) keep(p []byte) (why string) {
	length, most := len(w.record)+len(p), w.bodyAt+min(w.q.Stage.MaxResponse, math.MaxInt-w.bodyAt)
	switch {
	case length > most:
		return overLimit
	case length > cap(w.record):
		room := min(2*length, most)
		if !w.q.Body.Hold(room) {
			return noRoom
		}
		w.record = append(make([]byte, 0, room), w.record...)
	}
	w.record = append(w.record, p...)
	return ""
}

// keeps reports whether a header field is part of the stored reply: one that is
// replayable and was set by the handler, not by an outer stage.
func (q *Request) keeps(f field, outer http.Header) bool {
	if f.name == q.Response.IDHeader {
		return false
	}
	if values, has := outer[f.name]; has && slices.Equal(f.values, values) {
		return false
	}
	if f.name == "Content-Type" || f.name == "Location" {
		return true // most responses have no others, and canonical names take time
	}
	name := http.CanonicalHeaderKey(f.name) // a handler may have written to the map
	return replayable(name) && name != q.Response.IDHeader && name != q.Stage.OriginalID
}

// Why a response is not retained. The log tells it.
const (
	overLimit    = "it is larger than IdempotencyOptions.MaxResponse"
	noRoom       = "the bodies in memory leave no room for it; see IdempotencyOptions.MaxBodies"
	contextEnded = "its context ended before the handler, so it may be cut short"
	transaction  = "it streams, and its transaction had to be committed first; without idem.Options.Join it is retained"
	tooShort     = "it is shorter than its Content-Length"
)
