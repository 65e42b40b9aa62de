package keyed

import (
	"net/http"
	"slices"
)

// record is a response as it is stored, as far as it was written. It begins
// with the first byte of body.
type record struct {
	encoded []byte
	bodyAt  int // where the body begins
}

// begin lays out what stands before the body, unless that is done, with room for
// so many bytes of it: most handlers write theirs at once.
func (c *record) begin(q *Request, head func() Reply, room int) {
	if c.encoded == nil {
		c.encoded = head().encode(q.keeps, room)
		c.bodyAt = len(c.encoded)
	}
}

func (c *record) body() []byte { return c.encoded[c.bodyAt:] }

// drop forgets what was recorded.
func (c *record) drop() { c.encoded, c.bodyAt = nil, 0 }

// add keeps p, which is sent as well, if there is room in memory for it. It
// returns why it is not kept.
func (c *record) add(q *Request, p []byte) (why string) {
	length, most := len(c.encoded)+len(p), c.bodyAt+q.Stage.MaxResponse
	switch {
	case length > most:
		return overLimit
	case length > cap(c.encoded):
		room := min(2*length, most)
		if !q.Body.Hold(room) {
			return noRoom
		}
		c.encoded = append(make([]byte, 0, room), c.encoded...)
	}
	c.encoded = append(c.encoded, p...)
	return ""
}

// keeps reports whether a header field is part of the stored reply: one that is
// replayable and was set by the handler, not by an outer stage.
func (q *Request) keeps(f field) bool {
	if outer, has := q.W.Header()[f.name]; has && slices.Equal(f.values, outer) {
		return false
	}
	name := http.CanonicalHeaderKey(f.name) // a handler may have written to the map
	return replayable(name) && name != q.IDHeader && name != q.Stage.OriginalID
}

// Why a response is not retained. The log tells it.
const (
	overLimit    = "it is larger than IdempotencyOptions.MaxResponse"
	noRoom       = "the bodies in memory leave no room for it; see IdempotencyOptions.MaxBodies"
	contextEnded = "its context ended before the handler, so it may be cut short"
	transaction  = "it streams, and its transaction had to be committed first; without idem.Options.Join it is retained"
	tooShort     = "it is shorter than its Content-Length"
)
