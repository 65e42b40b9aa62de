package keyed

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// writer is what the handler of a keyed request writes to. It holds the
// response back until its outcome is saved, so that no client sees a response
// that a repeat would not get. It has no Unwrap, Hijack or Push, which would
// bypass it.
//
// A response that grows over the limit, or that is flushed and of a streaming
// media type, cannot be held back. It streams, and is recorded meanwhile as
// long as there is room:
//
//	holding ──→ recording ──→ streaming
//	   ├────────────────────────↗
//	   └──→ discarding
//
// In joined mode only the flush of a streaming media type starts that: the
// transaction commits, and nothing is recorded.
//
// A goroutine that outlives the handler may still call the methods. After close
// they change nothing, as in http.TimeoutHandler: from then on the run owns the
// rest. It must not use the map that Header returned, as in net/http.
type writer struct {
	run *Run

	// header is the handler's own: nothing that happens to it reaches the
	// response before it is sent. It begins with what outer stages have set.
	header http.Header

	// connection guards closed, beside mu, for what must not wait for a write.
	connection sync.Mutex
	deadlines  atomic.Bool // the handler has set a write deadline

	mu        sync.Mutex
	moved     time.Time // when the write deadline was moved
	begun     bool      // an interim response was sent
	head      fields    // the header as it was at WriteHeader
	status    int       // 0 before WriteHeader
	length    int64     // the Content-Length that the handler declared, or -1
	encoded   []byte    // the reply as it is stored, begun with the first byte of body
	bodyAt    int       // where the body begins in encoded
	trailer   fields    // once closed
	state     state
	unkept    string // why a response that streams is not recorded
	bypassed  bool   // the handler's response was sent past w
	closed    bool   // the handler has returned
	silent    bool   // the handler returned without having written anything
	wroteLate bool   // after that, before the response was stored
	stored    bool
}

type state uint8

const (
	holding    state = iota // nothing is sent yet
	recording               // what is written is sent, and kept
	streaming               // what is written is sent
	discarding              // nothing is sent: the run has failed
)

func (s state) sends() bool { return s == recording || s == streaming }

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
	switch w.state {
	case holding:
		w.encoded = append(w.encoded, p...)
	case recording:
		w.record(p)
		return w.sendBody(p)
	case streaming:
		return w.sendBody(p)
	}
	return len(p), nil
}

func (w *writer) WriteString(s string) (int, error) {
	// Nobody may change or keep what is written (io.Writer), so no copy is needed.
	return w.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
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
	case w.state == discarding:
		return http.ErrHandlerTimeout
	case w.state == streaming:
		return nil
	case w.length >= 0 && int64(len(w.body())+n) > w.length:
		return http.ErrContentLength
	case w.state == recording:
		return nil
	case len(w.body())+n > w.run.MaxResponse && !w.run.Execution.Joined():
		return w.startStreaming(overLimit)
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
	if w.state == holding {
		if v, _ := w.head.get("Content-Type"); len(v) > 0 && w.run.Streams(v[0]) {
			_ = w.startStreaming("") // the state says what became of it
		}
	}
	switch w.state {
	case holding:
		return nil
	case discarding:
		return http.ErrHandlerTimeout
	}
	_, err := w.toClient(func() (int, error) { return 0, http.NewResponseController(w.run.W).Flush() })
	return err
}

// Deadlines and full duplex belong to the connection, not to the response that
// is held back.

func (w *writer) SetReadDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

func (w *writer) SetWriteDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error {
		w.deadlines.Store(true)
		return c.SetWriteDeadline(t)
	})
}

func (w *writer) EnableFullDuplex() error {
	return w.control((*http.ResponseController).EnableFullDuplex)
}

// control does not wait for a write, which a deadline may have to end.
func (w *writer) control(f func(*http.ResponseController) error) error {
	w.connection.Lock()
	defer w.connection.Unlock()
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
	w.connection.Lock()
	defer w.connection.Unlock()
	w.closed = true
}

// finish decides on the response of a handler that has returned, and closes w.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = w.status == 0
	w.writeHeader(http.StatusOK)
	w.connection.Lock()
	w.closed = true
	w.connection.Unlock()
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
	if w.state.sends() {
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
	h := w.sendHead()
	switch body := w.body(); { // an error: the client has left, and a repeat gets it
	case len(body) > w.run.MaxResponse:
		_, _ = w.sendBody(body) // of a transaction
		w.setDeadline(time.Now().Add(w.run.Timeout))
	case len(body) > 0:
		_, _ = w.run.W.Write(body)
	}
	w.trailer.set(h)
}

func (w *writer) sendHead() http.Header {
	h := w.run.W.Header()
	w.head.replace(h)
	w.run.W.WriteHeader(w.status)
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

// Why a response is not retained. The log tells it.
const (
	overLimit    = "it is larger than IdempotencyOptions.MaxResponse"
	noRoom       = "the bodies in memory leave no room for it; see IdempotencyOptions.MaxBodies"
	contextEnded = "its context ended before the handler, so it may be cut short"
	transaction  = "it streams, and its transaction had to be committed first; without idem.Options.Join it is retained"
	tooShort     = "it is shorter than its Content-Length"
)

// kept reports whether the whole response is kept, or why it is not; the reason
// is "" where it needs no line in the log.
func (w *writer) kept() (why string, kept bool) {
	switch {
	case w.bypassed, w.run.ctx.notRetained.Load():
		return "", false
	case w.state == streaming:
		return w.unkept, false
	case len(w.body()) > w.run.MaxResponse:
		return overLimit, false
	case w.truncated():
		return tooShort, false
	}
	return "", true
}

// truncated reports whether the body ends before the Content-Length that the
// handler declared. Such a response must not look whole when it is repeated.
func (w *writer) truncated() bool {
	return int64(len(w.body())) < w.length && bodyAllowed(w.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
