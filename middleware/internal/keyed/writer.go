package keyed

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// writer is what the handler of a keyed request writes to. It holds the
// response back until its outcome is saved, so that no client sees a response
// that a repeat would not get. It has no Unwrap, Hijack or Push, which would
// bypass it.
//
// A response that grows over the limit, or that is flushed and of a streaming
// media type, cannot be held back. It starts streaming: the run saves that the
// response was not retained, and what was held back goes out.
//
// A goroutine that outlives the handler may still call the methods. After close
// they change nothing, as in http.TimeoutHandler: from then on the run owns the
// rest. It must not use the map that Header returned, as in net/http.
type writer struct {
	run *Run

	// header is the handler's own: nothing that happens to it reaches the
	// response before it is sent. It begins with what outer stages have set.
	header http.Header

	mu        sync.Mutex
	begun     bool   // an interim response was sent
	head      fields // the header as it was at WriteHeader
	status    int    // 0 before WriteHeader
	length    int64  // the Content-Length that the handler declared, or -1
	encoded   []byte // the reply as it is stored, begun with the first byte of body
	bodyAt    int    // where the body begins in encoded
	trailer   fields // once closed
	streaming bool
	discarded bool // another attempt owns the key: nothing is sent
	bypassed  bool // the handler's response was sent past w
	closed    bool // the handler has returned
	silent    bool // the handler returned without having written anything
	wroteLate bool // after that, before the response was stored
	stored    bool
}

// open makes w ready for a handler.
func (w *writer) open() {
	w.header = maps.Clone(w.run.W.Header())
	if _, id := w.header[w.run.IDHeader]; id && len(w.header) == 1 {
		return // the common case: the request id is set again when it is sent
	}
	for name, values := range w.header {
		w.header[name] = slices.Clone(values)
	}
}

func (w *writer) Header() http.Header { return w.header }

// Below lets inner stages find the response that this one is part of.
func (w *writer) Below() http.ResponseWriter { return w.run.W }

// Committed reports whether the handler has decided on a status.
func (w *writer) Committed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status != 0
}

func (w *writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		w.tooLate()
		return
	}
	w.writeHeader(status)
}

func (w *writer) writeHeader(status int) {
	if w.status != 0 {
		return
	}
	if status < 100 || status > 999 {
		panic("middleware: invalid WriteHeader code " + strconv.Itoa(status))
	}
	switch {
	case status == http.StatusSwitchingProtocols:
		return // a keyed request has nothing to switch to
	case status < 200:
		w.inform(status)
		return
	}
	w.status = status
	w.head = copyFields(w.header)
	w.length = -1
	if v, _ := w.head.get("Content-Length"); len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
}

// inform sends an informational response with the handler's header, and leaves
// nothing of that in the header of the final one.
func (w *writer) inform(status int) {
	w.begun = true
	h := w.run.W.Header()
	outer := copyFields(h)
	copyFields(w.header).replace(h)
	w.run.W.WriteHeader(status)
	outer.replace(h)
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(len(p)); err != nil {
		return 0, err
	}
	switch {
	case w.discarded:
		return len(p), nil
	case w.streaming:
		return w.run.W.Write(p)
	}
	w.encoded = append(w.encoded, p...)
	return len(p), nil
}

func (w *writer) WriteString(s string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(len(s)); err != nil {
		return 0, err
	}
	switch {
	case w.discarded:
		return len(s), nil
	case w.streaming:
		return io.WriteString(w.run.W, s)
	}
	w.encoded = append(w.encoded, s...)
	return len(s), nil
}

// admit prepares for n more bytes of body, or says why there may be none.
func (w *writer) admit(n int) error {
	if w.closed {
		w.tooLate()
		return http.ErrHandlerTimeout
	}
	w.writeHeader(http.StatusOK)
	switch {
	case !bodyAllowed(w.status):
		return http.ErrBodyNotAllowed
	case w.streaming || w.discarded:
		return nil
	case w.length >= 0 && int64(len(w.body())+n) > w.length:
		return http.ErrContentLength
	case len(w.body())+n > w.run.MaxResponse && w.mayStream():
		w.startStreaming()
	case w.encoded == nil:
		w.encode(n)
	}
	return nil
}

// encode begins the stored reply, to which the body is appended. There is room
// for so many bytes of it: most handlers write theirs at once.
func (w *writer) encode(room int) {
	w.encoded = w.reply().encode(w.run, room)
	w.bodyAt = len(w.encoded)
}

// reply returns the reply without its body.
func (w *writer) reply() Reply {
	return Reply{RequestID: w.run.RequestID, Status: w.status, Retained: true, header: w.head}
}

func (w *writer) body() []byte { return w.encoded[w.bodyAt:] }

// payload returns the whole reply as it is stored.
func (w *writer) payload() []byte {
	if w.encoded == nil {
		w.encode(0) // there is no body
	}
	return w.encoded
}

// mayStream reports whether the response need not be held back whole. That of a
// transaction must: it may roll back.
func (w *writer) mayStream() bool { return !w.run.Execution.Joined() }

func (w *writer) startStreaming() {
	if w.run.saveStreaming() {
		w.streaming = true
		w.send()
	} else {
		w.discarded = true
	}
	w.encoded, w.bodyAt = nil, 0
}

// tooLate handles a write after the handler has returned. If the handler had
// written nothing, its router writes too late, which is reported. Otherwise it
// is a goroutine that was left behind.
func (w *writer) tooLate() {
	switch {
	case !w.silent:
	case w.stored:
		w.silent = false // reported once
		w.run.Stage.Late()
	default:
		w.wroteLate = true
	}
}

func (w *writer) Flush() { _ = w.FlushError() }

// FlushError holds a flush back like all else, unless the response is of a
// streaming media type: reverse proxies flush ordinary responses too.
func (w *writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.writeHeader(http.StatusOK)
	if !w.streaming && !w.discarded && w.mayStream() {
		if v, _ := w.head.get("Content-Type"); len(v) > 0 && w.run.Streams(v[0]) {
			w.startStreaming()
		}
	}
	if !w.streaming {
		return nil
	}
	return http.NewResponseController(w.run.W).Flush()
}

// Deadlines and full duplex belong to the connection, not to the response that
// is held back.

func (w *writer) SetReadDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

func (w *writer) SetWriteDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error { return c.SetWriteDeadline(t) })
}

func (w *writer) EnableFullDuplex() error {
	return w.control((*http.ResponseController).EnableFullDuplex)
}

func (w *writer) control(f func(*http.ResponseController) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return http.ErrHandlerTimeout
	}
	return f(http.NewResponseController(w.run.W))
}

// store notes that the response of the handler was stored.
func (w *writer) store() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored = true
	if w.wroteLate {
		w.tooLate()
	}
}

// close ends the handler's use of w. Nothing that is called on w later changes
// the response.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// finish decides on the response of a handler that has returned, and closes w.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = w.status == 0
	w.writeHeader(http.StatusOK)
	w.closed = true
	body := w.body()
	_, typed := w.head.get("Content-Type")
	if encoding, _ := w.head.get("Content-Encoding"); !typed && len(body) > 0 && (len(encoding) == 0 || encoding[0] == "") {
		// net/http would look at the same bytes; a replay must not depend on
		// it.
		w.head = append(w.head, field{"Content-Type", []string{http.DetectContentType(body)}})
		w.encode(len(body))
		w.encoded = append(w.encoded, body...)
	}
	// Read once, now: from here on a goroutine that the handler left behind may
	// write to the map.
	w.trailer = w.trailers()
	if w.streaming {
		w.trailer.set(w.run.W.Header())
	}
}

// bypass notes that the client has got another response, with that status.
func (w *writer) bypass(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bypassed, w.silent, w.status = true, false, status
}

// send sends what was held back.
func (w *writer) send() {
	if w.bypassed {
		return // the client has a response already
	}
	h := w.run.W.Header()
	w.head.replace(h)
	w.run.W.WriteHeader(w.status)
	if body := w.body(); len(body) > 0 {
		_, _ = w.run.W.Write(body) // the client has left: a repeat gets it
	}
	w.trailer.set(h)
}

// trailers returns what the handler has set in its header after WriteHeader and
// net/http takes for trailers.
func (w *writer) trailers() (set fields) {
	for name, values := range w.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			set = append(set, field{name, values})
		}
	}
	declared, _ := w.head.get("Trailer")
	for _, list := range declared {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, has := w.header[name]; has {
				set = append(set, field{name, values})
			}
		}
	}
	return set
}

// truncated reports whether the body ends before the Content-Length that the
// handler declared. Such a response must not look whole when it is repeated.
func (w *writer) truncated() bool {
	return int64(len(w.body())) < w.length && bodyAllowed(w.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
