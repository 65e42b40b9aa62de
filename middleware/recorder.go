package middleware

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recorder is the writer that a handler of an idempotent request gets. It holds
// the response back until its outcome is saved, so that no client sees an answer
// that a repeat would not. It shows no Unwrap, no Hijacker and no Pusher: each
// would lead past it.
//
// A response that grows over the limit, or that the handler flushes, cannot be
// held back: it goes live, which saves that it was not retained and then passes
// everything through.
type recorder struct {
	below http.ResponseWriter
	limit int         // bytes of body that are held back; < 0: no limit and no going live
	live  func() bool // saves the fact; false: somebody else owns the outcome

	outside http.Header // what stages outside have set; nil when that is at most the request id
	head    fields      // the header as it was at WriteHeader
	status  int         // 0 before WriteHeader
	length  int64       // the Content-Length that the handler declared, or -1
	body    []byte
	isLive  bool
	mute    bool // the outcome is somebody else's: nothing goes out
	over    bool // the handler has ended: a goroutine that it left behind writes into nothing
}

// Header is that of the writer below. What the handler changes in it after
// WriteHeader is for trailers alone, as in net/http.
func (w *recorder) Header() http.Header {
	if w.over {
		return make(http.Header)
	}
	return w.below.Header()
}

func (w *recorder) WriteHeader(status int) {
	if w.status != 0 || w.over {
		return
	}
	if status < 100 || status > 999 {
		panic("middleware: invalid WriteHeader code " + strconv.Itoa(status))
	}
	switch {
	case status == http.StatusSwitchingProtocols:
		return // there is nothing to switch a recorded request to
	case status < 200:
		w.below.WriteHeader(status) // not the response
		return
	}
	w.status = status
	w.head = copyFields(w.below.Header())
	w.length = -1
	if v, _ := w.head.get("Content-Length"); len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			w.length = n
		}
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	if ok, err := w.admit(len(p)); !ok {
		return 0, err
	}
	switch {
	case w.mute:
		return len(p), nil
	case w.isLive:
		return w.below.Write(p)
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

func (w *recorder) WriteString(p string) (int, error) {
	if ok, err := w.admit(len(p)); !ok {
		return 0, err
	}
	switch {
	case w.mute:
		return len(p), nil
	case w.isLive:
		return io.WriteString(w.below, p)
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

// admit prepares for n more bytes of body.
func (w *recorder) admit(n int) (bool, error) {
	if w.over {
		return false, http.ErrHandlerTimeout
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case !bodyAllowed(w.status):
		return false, http.ErrBodyNotAllowed
	case w.isLive || w.mute:
		return true, nil
	case w.length >= 0 && int64(len(w.body)+n) > w.length:
		return false, http.ErrContentLength
	case w.limit >= 0 && len(w.body)+n > w.limit:
		w.goLive()
	}
	return true, nil
}

func (w *recorder) goLive() {
	if w.live() {
		w.isLive = true
		w.reveal()
	} else {
		w.mute = true
	}
	w.body = nil
}

func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) FlushError() error {
	if w.limit < 0 || w.over {
		return nil // held back to the end, whatever the handler wishes
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.isLive && !w.mute {
		w.goLive()
	}
	if w.mute {
		return nil
	}
	return http.NewResponseController(w.below).Flush()
}

// The deadlines are the connection's and have nothing to do with what is held
// back.

func (w *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.below).SetReadDeadline(t)
}

func (w *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.below).SetWriteDeadline(t)
}

func (w *recorder) EnableFullDuplex() error {
	return http.NewResponseController(w.below).EnableFullDuplex()
}

// finish ends the response when the handler has returned.
func (w *recorder) finish() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_, typed := w.head.get("Content-Type")
	if encoding, _ := w.head.get("Content-Encoding"); !typed && len(w.body) > 0 && (len(encoding) == 0 || encoding[0] == "") {
		// net/http would look at the same bytes; a replay must not depend on it.
		w.head = append(w.head, field{"Content-Type", []string{http.DetectContentType(w.body)}})
	}
}

// reveal sends what was held back.
func (w *recorder) reveal() {
	h := w.below.Header()
	trailers := w.trailers(h)
	w.head.copyTo(h)
	w.below.WriteHeader(w.status)
	if len(w.body) > 0 {
		_, _ = w.below.Write(w.body) // the client has left: a repeat gets it
	}
	for _, f := range trailers {
		h[f.name] = f.values
	}
}

// trailers returns what the handler has set in h after its head.
func (w *recorder) trailers(h http.Header) (set fields) {
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			set = append(set, field{name, values})
		}
	}
	declared, _ := w.head.get("Trailer")
	for _, list := range declared {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, has := h[name]; has {
				set = append(set, field{name, values})
			}
		}
	}
	return set
}

// own reports whether a header field of the response is the handler's, and not
// one that a stage outside had set before.
func (w *recorder) own(name string) bool {
	outside, has := w.outside[name]
	if !has {
		return true
	}
	values, _ := w.head.get(name)
	return !slices.Equal(values, outside)
}

// short reports whether the body ends before the Content-Length that the handler
// declared. Such a response must not look whole when it is repeated.
func (w *recorder) short() bool {
	return int64(len(w.body)) < w.length && bodyAllowed(w.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
