package keyed

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// writer is what the handler of a keyed request writes to. It holds the
// response back until its outcome is saved, so that no client sees a response
// that a repeat would not get. It has no Unwrap, Hijack or Push, which would
// bypass it. A goroutine that outlives the handler may still call the methods,
// which change nothing then, but not use the map that Header returned.
type writer struct {
	q      *Request
	ctx    *Context
	commit func() error // commits a transaction and sends what was held back; nil without one

	// header is the handler's own: nothing that happens to it reaches the
	// response before it is sent. It begins with what outer stages have set.
	header http.Header
	outer  int // fields that the header below had at first

	deadlines deadlines

	mu      sync.Mutex
	sending sending
	ended   ended
	head    fields // the header as it was at WriteHeader
	status  int    // 0 at first, then that of the last interim response, then the final one
	length  int64  // the Content-Length that the handler declared, or -1
	wrote   int64  // bytes of body
	record  []byte // the reply as it is stored, as far as it was written; nil before the first byte of body
	bodyAt  int    // where the body begins in record
	trailer fields // once the handler has returned
	unkept  string // why a response that streams is not recorded
	refused error  // why the response is discarded
	final   bool   // repeats get it too, or 409

	explicit, late bool // the status is WriteHeader's; it was set when the context had ended
}

// Format keeps fmt from following q to what the client sent.
func (w *writer) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "middleware.writer") }

// sending says what becomes of what the handler writes. A response that grows
// over the limit, or that is flushed and of a streaming media type, cannot be
// held back. It streams, and is recorded meanwhile as long as there is room:
//
//	holding ──→ recording ──→ streaming
//	   ├────────────────────────↗
//	   ├──→ discarding
//	   └──→ bypassed
//
// In joined mode only the flush of a streaming media type starts that: the
// transaction commits, and nothing is recorded.
type sending uint8

const (
	holding    sending = iota // nothing is sent yet
	recording                 // what is written is sent, and kept
	streaming                 // what is written is sent
	discarding                // nothing is sent: the run has failed
	bypassed                  // nothing is sent: the client has got another response, past w
)

// streams reports whether the client gets what is written.
func (s sending) streams() bool { return s == recording || s == streaming }

// ended says what a write means after the handler has returned: it is that of a
// goroutine that was left behind, or, where the handler wrote nothing, of a router
// that writes too late. That is reported once the empty 200 in its place is stored.
//
//	running ──→ closed ←──write── stored
//	   └──→ silent ──────────────↗
type ended uint8

const (
	running ended = iota // the handler has not returned
	closed               // no write means anything
	silent               // the handler wrote nothing
	stored               // the empty 200 is stored
)

// begin makes w the writer for the handler of q.
func (w *writer) begin(q *Request, ctx *Context) {
	w.q, w.ctx = q, ctx
	outer := q.W.Header() // may panic: the writer may be a foreign one
	w.outer = len(outer)
	if id, has := outer[q.Response.IDHeader]; has && len(outer) == 1 {
		w.header = http.Header{q.Response.IDHeader: id} // the common case: the id is set again when it is sent
	} else {
		w.header = outer.Clone()
	}
}

func (w *writer) Header() http.Header { return w.header }

// Response lets inner stages find the response that this one is part of.
func (w *writer) Response() *response.Writer { return response.Of(w.q.W) }

// Committed reports whether the handler has decided on a status.
func (w *writer) Committed() bool { return w.begun() >= 200 }

// begun returns the status so far; see writer.
func (w *writer) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != running {
		w.tooLate()
		return
	}
	w.writeHeader(status, true)
}

func (w *writer) writeHeader(status int, explicit bool) {
	if w.status >= 200 {
		return
	}
	if status < 100 || status > 999 {
		panic("middleware: invalid WriteHeader code " + strconv.Itoa(status))
	}
	if status == http.StatusSwitchingProtocols {
		return // a keyed request has nothing to switch to
	}
	w.status = status
	if status < 200 {
		w.inform()
		return
	}
	w.explicit, w.late = explicit, w.ctx.ended() != nil
	w.head = copyFields(w.header, &w.ctx.room)
	w.length = -1
	if v := w.head.get("Content-Length"); len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
}

// inform sends an informational response with the handler's header, and leaves
// nothing of that in the header of the final one.
func (w *writer) inform() {
	h := w.q.W.Header()
	outer := copyFields(h, new(room))
	copyFields(w.header, new(room)).replace(h)
	w.q.W.WriteHeader(w.status)
	outer.replace(h)
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(len(p)); err != nil {
		return 0, err
	}
	w.wrote += int64(len(p))
	switch w.sending {
	case holding:
		w.record = append(w.record, p...)
		return len(p), nil
	case recording:
		if why := w.keep(p); why != "" {
			w.unrecord(why)
		}
	}
	return w.sendBody(p)
}

// admit prepares for n more bytes of body, or says why there may be none.
func (w *writer) admit(n int) error {
	if w.ended != running {
		w.tooLate()
		return http.ErrHandlerTimeout
	}
	w.writeHeader(http.StatusOK, false)
	length := len(w.body()) + n
	switch {
	case !bodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	case w.sending == discarding:
		return http.ErrHandlerTimeout
	case w.sending == streaming:
		return nil
	case w.length >= 0 && int64(length) > w.length:
		return http.ErrContentLength
	case w.sending == recording:
		return nil
	case length > w.q.Stage.MaxResponse && w.commit == nil:
		return w.stream(overLimit)
	}
	w.layOut(n)
	return nil
}

// reply returns the reply without its body.
func (w *writer) reply() Reply {
	return Reply{RequestID: w.q.Response.ID, Status: w.status, Retained: true, header: w.head}
}

// payload returns the whole reply as it is stored.
func (w *writer) payload() []byte {
	w.layOut(0) // there is no body, unless it was begun
	return w.record
}

func (w *writer) Flush() { _ = w.FlushError() }

// FlushError holds a flush back like all else, unless the response is of a
// streaming media type: reverse proxies flush ordinary responses too.
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != running {
		return nil
	}
	w.writeHeader(http.StatusOK, false)
	if w.sending == holding {
		v := w.head.get("Content-Type")
		if len(v) == 0 || !w.q.Stage.streams(v[0]) {
			return nil
		}
		_ = w.stream("") // the state says what became of it
	}
	if w.sending == discarding {
		return http.ErrHandlerTimeout
	}
	_, err := w.inTime(func() (int, error) { return 0, http.NewResponseController(w.q.W).Flush() })
	return err
}

// stream sends what was held back. why says why what follows is not recorded, ""
// that it is. An error says that nothing can be sent.
func (w *writer) stream(why string) error {
	head := w.payload() // before the head is sent: keeps compares it with outer fields
	body := w.body()
	w.sending, w.unkept = streaming, why
	switch {
	case w.commit != nil:
		w.unkept = transaction
		w.ctx.pause()
		w.refused = w.commit()
	case w.ctx.lost():
		w.refused = idem.ErrLost
	}
	if w.refused != nil {
		w.sending = discarding
		w.ctx.end()
		return http.ErrHandlerTimeout
	}
	if w.unkept != "" {
		w.record, w.bodyAt = nil, 0
		w.ctx.stream(direct)
	} else {
		w.sending = recording
		w.ctx.stream(recorded)
	}
	if w.commit != nil {
		return nil
	}
	w.final = !w.ctx.Freed.Load() && !slices.Contains(w.q.Stage.FreeOn, w.status)
	w.sendHead()
	if why == "" && !w.q.Body.Hold(cap(head)) {
		w.unrecord(noRoom)
	}
	_, _ = w.sendBody(body) // a client that has left is found by the next write
	return nil
}

// unrecord gives the recording up, if there is one. The response goes on.
func (w *writer) unrecord(why string) {
	w.unkept = why
	if w.sending == recording {
		w.sending = streaming
		w.record, w.bodyAt = nil, 0
		w.q.Body.Hold(0)
		w.ctx.unrecorded()
	}
}

// close ends the handler's use of w. Nothing that is called on w later changes
// the response.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = closed
	w.closeControl()
}

// finish decides on the response of a handler that has returned, and closes w.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = closed
	if w.status < 200 {
		w.writeHeader(http.StatusOK, false)
		w.ended = silent
	}
	w.closeControl()
	// Read once, now: from here on a goroutine that the handler left behind may
	// write to the map.
	w.trailer = w.trailers()
	if w.sending.streams() {
		w.trailer.set(w.q.W.Header())
	}
}

// tooLate handles a write after the handler has returned.
func (w *writer) tooLate() {
	if w.ended == stored {
		w.ended = closed
		w.q.Stage.Warnings.late(w.q.log, w.q.Key, w.q.Stage.Retention)
	}
}

// store notes that the response of the handler is stored. It reports whether the
// handler had written nothing.
func (w *writer) store() (empty bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == silent {
		w.ended = stored
	}
	return w.ended == stored
}

// bypass notes that the client has got another response, with that status.
func (w *writer) bypass(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sending, w.ended, w.status = bypassed, closed, status
}

// send sends what was held back.
func (w *writer) send() {
	if w.sending == bypassed {
		return // the client has a response already
	}
	h := w.sendHead()
	switch body := w.body(); { // an error: the client has left, and a repeat gets it
	case len(body) > w.q.Stage.MaxResponse:
		_, _ = w.sendBody(body) // of a transaction
		w.moveDeadline(time.Now().Add(w.q.Stage.Timeout))
	case len(body) > 0:
		_, _ = w.q.W.Write(body)
	}
	w.trailer.set(h)
}

func (w *writer) sendHead() http.Header {
	h := w.q.W.Header()
	w.head.replace(h)
	if w.final {
		w.q.Stage.advise(h, w.status)
	}
	w.q.W.WriteHeader(w.status)
	return h
}

// trailers returns what the handler has set in its header after WriteHeader and
// net/http takes for trailers.
func (w *writer) trailers() (set fields) {
	for name, values := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			set = append(set, field{name, values})
		}
	}
	for _, list := range w.head.get("Trailer") {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, has := w.header[name]; has {
				set = append(set, field{name, values})
			}
		}
	}
	return set
}

// kept reports whether the whole response is kept, or why it is not; the reason
// is "" where it needs no line in the log.
func (w *writer) kept() (why string, kept bool) {
	switch body := len(w.body()); {
	case w.sending == bypassed, w.ctx.NotRetained.Load():
		return "", false
	case w.sending == streaming:
		return w.unkept, false
	case body > w.q.Stage.MaxResponse:
		return overLimit, false
	case int64(body) < w.length && bodyAllowed(w.status):
		return tooShort, false // it must not look whole when it is repeated
	}
	return "", true
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
