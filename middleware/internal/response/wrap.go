package response

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A handler finds the optional abilities of its writer by type assertion, so
// what it gets shows the ones of the writer below and no others. Each form is one
// pointer wide: to make one allocates nothing. The letters: F http.Flusher, H
// http.Hijacker, R io.ReaderFrom, P http.Pusher. http1 and http2 are what
// net/http itself hands out, with the deprecated CloseNotifier. Of another
// combination, the abilities in the nearest form below it are shown.
//
// http.Hijacker is also shown where the writer below has it only by Unwrap:
// http.ResponseController would find it there, past the Writer.
type (
	formF struct{ *Writer }
	formH struct{ *Writer }
	formP struct{ *Writer }

	formFH struct{ formF }
	formFP struct{ formF }

	formFHR struct{ formFH }

	http1 struct{ formFHR }
	http2 struct{ formFP }
)

func (f formF) Flush() { _ = f.FlushError() }

func (f formH) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return f.hijack() }
func (f formFH) Hijack() (net.Conn, *bufio.ReadWriter, error) { return f.hijack() }

func (f formFHR) ReadFrom(r io.Reader) (int64, error) { return f.readFrom(r) }

func (f formP) Push(t string, o *http.PushOptions) error  { return f.below.(http.Pusher).Push(t, o) }
func (f formFP) Push(t string, o *http.PushOptions) error { return f.below.(http.Pusher).Push(t, o) }

// closeNotifier is http.CloseNotifier: old handlers still ask for it.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (f http1) CloseNotify() <-chan bool { return f.below.(closeNotifier).CloseNotify() }
func (f http2) CloseNotify() <-chan bool { return f.below.(closeNotifier).CloseNotify() }

// Wrap makes w the writer of the response that is sent to below, and returns
// the form of it that handlers get.
func (w *Writer) Wrap(below http.ResponseWriter) http.ResponseWriter {
	w.below = below
	_, flushes := below.(http.Flusher)
	_, hijacks := nearest[http.Hijacker](below)
	_, reads := below.(io.ReaderFrom)
	_, pushes := below.(http.Pusher)
	_, notifies := below.(closeNotifier)
	switch {
	case flushes && hijacks && reads && notifies:
		return http1{formFHR{formFH{formF{w}}}}
	case flushes && pushes && notifies && !hijacks && !reads:
		return http2{formFP{formF{w}}}
	case flushes && hijacks && reads:
		return formFHR{formFH{formF{w}}}
	case flushes && hijacks:
		return formFH{formF{w}}
	case flushes && pushes:
		return formFP{formF{w}}
	case flushes:
		return formF{w}
	case hijacks:
		return formH{w}
	case pushes:
		return formP{w}
	}
	return w
}
