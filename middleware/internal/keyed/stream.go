package keyed

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Streams returns a function that reports whether a Content-Type is of a media
// type whose responses are sent as they are flushed. more adds to the types.
func Streams(more []string) func(contentType string) bool {
	types := append([]string{"text/event-stream", "application/x-ndjson", "application/json-seq", "multipart/x-mixed-replace"}, more...)
	return func(contentType string) bool {
		mediaType, _, _ := strings.Cut(contentType, ";")
		mediaType = strings.TrimSpace(mediaType)
		return slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, mediaType) })
	}
}

// startStreaming sends what was held back. why says why what follows is not
// recorded, "" that it is. An error says that nothing can be sent.
func (w *writer) startStreaming(why string) error {
	x := w.run
	if w.encoded == nil {
		w.encode(0) // before the head is sent: keeps compares it with outer fields
	}
	body := w.body()
	w.state, w.unkept = streaming, why
	switch {
	case x.Execution.Joined():
		w.unkept = transaction
		x.ctx.write(true)
		if x.refused = x.commit(); x.refused != Sent { // commit sends it
			w.state = discarding
			return http.ErrHandlerTimeout
		}
		x.ctx.stream(false)
		w.encoded, w.bodyAt = nil, 0
		return nil
	case x.ctx.lost():
		x.refused, w.state = Lost, discarding
		return http.ErrHandlerTimeout
	case why == "":
		w.state = recording
	}
	x.ctx.stream(why == "")
	w.sendHead()
	if why != "" {
		w.encoded, w.bodyAt = nil, 0
	} else if !x.Body.Hold(cap(w.encoded)) {
		w.unrecord(noRoom)
	}
	_, _ = w.sendBody(body) // a client that has left is found by the next write
	return nil
}

// record keeps p beside what was sent before, if there is room.
func (w *writer) record(p []byte) {
	length, most := len(w.encoded)+len(p), w.bodyAt+w.run.MaxResponse
	switch {
	case length > most:
		w.unrecord(overLimit)
		return
	case length > cap(w.encoded):
		room := min(2*length, most)
		if !w.run.Body.Hold(room) {
			w.unrecord(noRoom)
			return
		}
		w.encoded = append(make([]byte, 0, room), w.encoded...)
	}
	w.encoded = append(w.encoded, p...)
}

// unrecord gives the recording up, if there is one. The response goes on.
func (w *writer) unrecord(why string) {
	if w.state == recording {
		w.state, w.unkept = streaming, why
		w.encoded, w.bodyAt = nil, 0
		w.run.Body.Hold(0)
		w.run.ctx.unrecorded()
	}
}

// sendBody sends p to the client, in pieces: each must be taken before the
// write deadline.
func (w *writer) sendBody(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, 16<<10) {
		sent, err := w.toClient(func() (int, error) { return w.run.W.Write(piece) })
		if n += sent; err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// toClient writes or flushes, and moves the deadlines. If the client has left,
// the handler of a response that is recorded does not see it until its context
// ends: a repeat gets all of it.
func (w *writer) toClient(write func() (int, error)) (int, error) {
	ctx := w.run.ctx
	ctx.write(true)
	if now := time.Now(); now.Sub(w.moved) > w.run.Timeout/8 {
		w.moved = now
		// A server of HTTP/2 resets a stream at its write deadline, also while
		// nothing is written. So it comes after the deadline of the context.
		w.setDeadline(now.Add(w.run.Timeout + w.run.Timeout/4))
	}
	n, err := write()
	ctx.write(false)
	if err != nil && w.state == recording && !errors.Is(err, http.ErrNotSupported) {
		ctx.clientLeft()
		if ctx.Err() == nil {
			err = nil
		}
	}
	return n, err
}

// setDeadline sets the write deadline, unless the handler has set its own.
func (w *writer) setDeadline(t time.Time) {
	if !w.deadlines.Load() {
		// An error says that a foreign writer has no deadlines.
		_ = http.NewResponseController(w.run.W).SetWriteDeadline(t)
	}
}
