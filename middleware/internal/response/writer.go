// Package response wraps the http.ResponseWriter of one response: it puts the
// request id on whatever is sent and remembers what was sent.
package response

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"path"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
)

// Writer is one response. It sets the header of the request id when the
// response is committed, not before, because a handler can remove, overwrite or
// repeat a header until then (httputil.ReverseProxy does all three). Handlers get
// what [Writer.Wrap] returns. It is used by one goroutine at a time.
type Writer struct {
	below http.ResponseWriter
	// Request is answered. The http.Server in its context logs the handler's
	// mistakes.
	Request *http.Request

	// IDHeader and ID are the header of the request id and its only value. With
	// IDHeader "" no header is set.
	IDHeader, ID string
	idValue      [1]string // what the header map holds

	// Owner is what the caller keeps with this response; see [Of].
	Owner any

	// Status is 0 until a final status is sent. Bytes counts the body.
	Status          int
	Bytes           int64
	Hijacked        bool
	trailers        bool        // may be sent, also after a short body
	Checked         bool        // Owner, a Refuser, is asked before a success
	dropped         bool        // it has refused what the handler writes
	lingers         bool        // see Linger
	fields          int32       // of the header, when it was committed
	headerAskedLate atomic.Bool // Header was called since then
}

// A Refuser is asked before a success is sent, or the connection is hijacked. If
// it refuses, it has answered with the Writer itself.
type Refuser interface{ Refuse() bool }

// A wrapper is a writer around another one, as net/http wants it to say.
type wrapper interface{ Unwrap() http.ResponseWriter }

// layers are w and the writers below it, as Unwrap shows them.
func layers(w http.ResponseWriter) iter.Seq[http.ResponseWriter] {
	return func(yield func(http.ResponseWriter) bool) {
		for w != nil && yield(w) {
			outer, ok := w.(wrapper)
			if !ok {
				return
			}
			w = outer.Unwrap()
		}
	}
}

// nearest returns the first of the layers that is a T.
func nearest[T any](w http.ResponseWriter) (found T, ok bool) {
	for layer := range layers(w) {
		if found, ok = layer.(T); ok {
			break
		}
	}
	return found, ok
}

// Find returns the first writer of type T, from w inwards. A foreign wrapper on
// the way must have the header map of what it wraps: otherwise it is another
// response on the same connection.
func Find[T http.ResponseWriter](w http.ResponseWriter) (found T, ok bool) {
	found, ok = nearest[T](w)
	return found, ok && (http.ResponseWriter(found) == w ||
		reflect.ValueOf(found.Header()).UnsafePointer() == reflect.ValueOf(w.Header()).UnsafePointer())
}

// part is a Writer, or what holds back a response for the Writer below it.
type part interface {
	http.ResponseWriter
	Response() *Writer
}

// Of returns the Writer of the response that w is part of; nil when there is
// none.
func Of(w http.ResponseWriter) *Writer {
	p, ok := w.(part)
	if _, wraps := w.(wrapper); !ok && wraps { // most others are a server's
		p, ok = Find[part](w)
	}
	if !ok {
		return nil
	}
	return p.Response()
}

// Committed reports whether a final status is already decided for w. It asks
// the nearest writer that knows.
func Committed(w http.ResponseWriter) bool {
	t, ok := nearest[interface{ Committed() bool }](w)
	return ok && t.Committed()
}

// Written reports whether a writer of a router outside, such as that of gin,
// was written to. An adapter may let a handler write to it, past ours.
func Written(w http.ResponseWriter) bool {
	for layer := range layers(w) {
		if t, ok := layer.(interface{ Written() bool }); ok && t.Written() {
			return true
		}
	}
	return false
}

// Innermost returns the server's own writer. http.MaxBytesReader has to be
// given that one: it asks for a method that no wrapper can have
// (golang/go#73754).
func Innermost(w http.ResponseWriter) http.ResponseWriter {
	for layer := range layers(w) {
		w = layer
	}
	return w
}

// Committed reports whether a final status was sent or the connection hijacked.
func (w *Writer) Committed() bool { return w.Status != 0 || w.Hijacked }

// Response returns w; see [Of].
func (w *Writer) Response() *Writer { return w }

func (w *Writer) http1() bool { return w.Request.ProtoMajor == 1 }

// Header returns the header map. Whoever has hijacked the connection may send
// it, as httputil.ReverseProxy does after it has added that of a 101.
func (w *Writer) Header() http.Header {
	h := w.below.Header()
	if w.Hijacked {
		w.Stamp(h)
	}
	if w.Status != 0 {
		w.headerAskedLate.Store(true)
	}
	return h
}

// Unwrap serves http.ResponseController for what commits nothing: deadlines and
// full duplex.
func (w *Writer) Unwrap() http.ResponseWriter { return w.below }

// WriteHeader sends the status. After a final status it does nothing but log.
func (w *Writer) WriteHeader(status int) {
	if w.dropped {
		return
	}
	if w.Committed() {
		w.logSuperfluous()
		return
	}
	// Over HTTP/2 there is nothing to switch to: a final status follows a 101.
	final := status < 100 || status >= 200 || status == http.StatusSwitchingProtocols && w.http1()
	if final && status < 300 && w.refused() {
		return
	}
	w.prepare(status)
	w.below.WriteHeader(status) // panics on an invalid status: nothing is committed then
	if final {
		w.Status = status
	}
}

// refused reports whether a success is refused: what the handler writes is
// dropped then.
func (w *Writer) refused() bool {
	w.dropped = w.Checked && w.Owner.(Refuser).Refuse()
	return w.dropped
}

// logSuperfluous writes net/http's own line to the server's log. net/http
// itself would name this package as the caller.
func (w *Writer) logSuperfluous() {
	what := "superfluous response.WriteHeader call"
	if w.Hijacked {
		what = "response.WriteHeader on hijacked connection"
	}
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	frame, more := frames.Next() // this method, in MODULE/middleware/internal/response
	ours, _, _ := strings.Cut(frame.Function, "/internal/response.")
	for more && (strings.HasPrefix(frame.Function, ours+".") || strings.HasPrefix(frame.Function, ours+"/internal/") ||
		strings.HasPrefix(frame.Function, "net/http.")) {
		frame, more = frames.Next()
	}
	logger := log.Default()
	if server, ok := w.Request.Context().Value(http.ServerContextKey).(*http.Server); ok {
		logger = cmp.Or(server.ErrorLog, logger)
	}
	logger.Printf("http: %s from %s (%s:%d)", what, frame.Function, path.Base(frame.File), frame.Line)
}

// commit decides on status 200 before a body byte or a flush, unless a status
// was decided before.
func (w *Writer) commit() {
	if !w.Committed() && !w.refused() {
		w.prepare(http.StatusOK)
		w.Status = http.StatusOK
	}
}

func (w *Writer) prepare(status int) {
	h := w.below.Header()
	w.Stamp(h)
	w.fields = int32(len(h))
	if status == http.StatusRequestEntityTooLarge && w.http1() {
		// http.MaxBytesReader asks the server to close through an unexported
		// method that no wrapper can forward (golang/go#73754). Without the
		// close, the server would wait for the rest of the body first.
		h["Connection"] = []string{"close"}
	}
}

func (w *Writer) Write(p []byte) (int, error) {
	w.commit()
	if w.dropped {
		return len(p), nil
	}
	n, err := w.below.Write(p)
	w.Bytes += int64(n)
	return n, err
}

func (w *Writer) WriteString(s string) (int, error) {
	w.commit()
	if w.dropped {
		return len(s), nil
	}
	n, err := io.WriteString(w.below, s)
	w.Bytes += int64(n)
	return n, err
}

// sniffed is how much of a source net/http reads before it commits a response.
const sniffed = 512

// readFrom commits with the first byte, as net/http does: a source may fail
// before it. So the first bytes go through Write, and the rest, which may be
// sent from file to connection by the kernel, through the writer below.
func (w *Writer) readFrom(src io.Reader) (n int64, err error) {
	if !w.Committed() {
		n, err = io.Copy(struct{ io.Writer }{w}, io.LimitReader(src, sniffed))
		if err != nil || n < sniffed {
			return n, err
		}
	}
	if w.dropped {
		rest, err := io.Copy(io.Discard, src)
		return n + rest, err
	}
	if n > 0 && w.below.Header()["Content-Length"] != nil {
		// Otherwise net/http would copy as much again before it looks how much is
		// left of the length, and of what is too long it takes nothing.
		_ = http.NewResponseController(w.below).Flush()
	}
	rest, err := w.below.(io.ReaderFrom).ReadFrom(src)
	w.Bytes += rest
	return n + rest, err
}

// FlushError is part of every form, because http.ResponseController looks for
// it before it follows Unwrap: a writer below that can flush without being an
// http.Flusher would flush past the commit.
func (w *Writer) FlushError() error {
	if flushes(w.below) {
		w.commit()
	}
	w.trailers = true
	return http.NewResponseController(w.below).Flush()
}

// flushes reports whether http.ResponseController finds a way to flush w. A
// Writer has one only if the writer below has.
func flushes(w http.ResponseWriter) bool {
	for layer := range layers(w) {
		switch layer.(type) {
		case interface{ prepare(int) }:
		case http.Flusher, interface{ FlushError() error }:
			return true
		}
	}
	return false
}

var errRefused = errors.New("middleware: the response was refused, see the log")

func (w *Writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.dropped || !w.Committed() && w.refused() {
		return nil, nil, errRefused
	}
	conn, rw, err := http.NewResponseController(w.below).Hijack()
	if err == nil {
		w.Hijacked = true
	}
	return conn, rw, err
}

// Finish is called when the handlers have returned. A response to which nothing
// was written becomes an empty 200 of net/http, and a trailer may have been
// added to any other: both are stamped once more.
func (w *Writer) Finish() {
	if !w.Committed() && !w.refused() {
		w.prepare(http.StatusOK)
		return
	}
	// In the common case nobody has touched the header since. To search it each
	// time would take a twentieth of a GET. A handler that kept the map from
	// before can replace one field by another unseen, so it is searched where
	// net/http may send trailers.
	h := w.below.Header()
	if id := h[w.IDHeader]; w.headerAskedLate.Load() || int32(len(h)) != w.fields || len(id) != 1 || id[0] != w.ID ||
		w.trailers || w.Bytes > unchunked || !w.http1() {
		w.Stamp(h)
	}
}

// unchunked is how long a response of HTTP/1 can be that net/http sends without
// chunks, and so without trailers: one that is not flushed and of whose header
// nothing speaks of trailers, of a Transfer-Encoding or of a Content-Length.
const unchunked = 2 << 10
