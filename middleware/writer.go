package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
)

// writer is the one response writer of this package. It enforces the request id
// when the response is committed, not before, because whatever runs inside can
// remove, overwrite or double a header until then (httputil.ReverseProxy does
// all three). It knows whether and with which status the response was committed.
//
// Handlers get it in a dress (see dress.go) that shows exactly the optional
// interfaces of the writer below.
type writer struct {
	below http.ResponseWriter
	state *state

	idValue [1]string // what the header map holds; each writer has a map of its own

	api       *API // whose mux runs inside, if one does; see API.unmatched
	swallow   bool // the API answered: what its mux still writes is dropped
	committed bool // a final status is out, or the connection was hijacked
	status    int32
}

func (w *writer) Header() http.Header { return w.below.Header() }

// Unwrap serves http.ResponseController for what needs no commit: deadlines and
// full duplex.
func (w *writer) Unwrap() http.ResponseWriter { return w.below }

func (w *writer) WriteHeader(status int) {
	switch {
	case w.swallow:
		return
	case w.committed:
		// net/http would name this method as the culprit, so say it here.
		w.state.hooks.logger().Warn("superfluous WriteHeader call", "status", status, "sent", w.status, "caller", callerOutside(), "request_id", w.state.id)
		return
	}
	// Over HTTP/2 there is nothing to switch to, and a final status follows a 101.
	informational := status >= 100 && status < 200 && !(status == http.StatusSwitchingProtocols && w.state.http1)
	if !informational && w.answered(status) {
		return
	}
	w.prepare(status)
	w.below.WriteHeader(status) // panics on an invalid status: nothing is committed then
	if !informational {
		w.committed, w.status = true, int32(status)
	}
}

// commit makes sure that a final status has been decided before a body byte or a
// flush; it reports whether the caller is to go on.
func (w *writer) commit() bool {
	if w.swallow {
		return false
	}
	if w.committed {
		return true
	}
	if w.answered(http.StatusOK) {
		return false
	}
	w.prepare(http.StatusOK)
	w.committed, w.status = true, http.StatusOK
	return true
}

// answered reports whether the API answers in place of its mux.
func (w *writer) answered(status int) bool {
	if w.api == nil || !w.state.unrouted {
		return false
	}
	w.state.unrouted = false
	w.swallow = w.api.unmatched(w, status)
	return w.swallow
}

func (w *writer) prepare(status int) {
	h := w.below.Header()
	w.stamp(h)
	if status == http.StatusRequestEntityTooLarge && w.state.http1 {
		// http.MaxBytesReader asks the server to close through an unexported
		// method that no wrapper can forward (golang/go#73754). Without the
		// close, the server would wait for the rest of the body first.
		h["Connection"] = []string{"close"}
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if !w.commit() {
		return len(p), nil
	}
	return w.below.Write(p)
}

func (w *writer) WriteString(p string) (int, error) {
	if !w.commit() {
		return len(p), nil
	}
	return io.WriteString(w.below, p)
}

func (w *writer) readFrom(src io.Reader) (int64, error) {
	if !w.commit() {
		return io.Copy(io.Discard, src)
	}
	return w.below.(io.ReaderFrom).ReadFrom(src)
}

func (w *writer) flush() error {
	if flushes(w.below) && !w.commit() {
		return nil
	}
	return http.NewResponseController(w.below).Flush()
}

// flushes reports whether http.ResponseController finds a way to flush w. Without
// one there is nothing that a commit would be for.
func flushes(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ core() *writer }:
			w = t.core().below
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.below.(http.Hijacker).Hijack()
	if err == nil {
		w.committed = true
	}
	return conn, rw, err
}

func (w *writer) push(target string, opts *http.PushOptions) error {
	return w.below.(http.Pusher).Push(target, opts)
}

// finish stamps a response that the handler left to net/http: nothing written,
// an implicit 200.
func (w *writer) finish() {
	if !w.committed && !w.swallow && !w.answered(http.StatusOK) {
		w.prepare(http.StatusOK)
	}
}

// callerOutside names the handler's function that called into this package,
// through net/http or not.
func callerOutside() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		if !more || !strings.HasPrefix(frame.Function, packagePath) && !strings.HasPrefix(frame.Function, "net/http.") {
			return frame.Function
		}
	}
}

const packagePath = "github.com/sallyport-go/sallyport/middleware."

// innermost follows Unwrap to the server's own writer, which is the one that
// http.MaxBytesReader has to be given.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}
