package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A handler finds optional abilities of its writer by type assertion, so the
// wrapper has to show the ones of the writer below and no others. Each dress is
// one pointer wide and costs no allocation. The letters: F http.Flusher, H
// http.Hijacker, R io.ReaderFrom, P http.Pusher. http1 and http2 are what net/http
// itself hands out, with the deprecated CloseNotifier.
type (
	plain  struct{ *writer }
	dressF struct{ plain }
	dressH struct{ plain }
	dressR struct{ plain }
	dressP struct{ plain }

	dressFH struct{ dressF }
	dressFR struct{ dressF }
	dressFP struct{ dressF }
	dressHR struct{ dressH }
	dressHP struct{ dressH }
	dressRP struct{ dressR }

	dressFHR struct{ dressFH }
	dressFHP struct{ dressFH }
	dressFRP struct{ dressFR }
	dressHRP struct{ dressHR }

	dressFHRP struct{ dressFHR }

	http1 struct{ dressFHR }
	http2 struct{ dressFP }
)

func (d plain) core() *writer { return d.writer }

// coreOf returns the writer of this package that w is a dress of, or nil.
func coreOf(w http.ResponseWriter) *writer {
	if d, ok := w.(interface{ core() *writer }); ok {
		return d.core()
	}
	return nil
}

// FlushError is in every dress, because http.ResponseController looks for it
// before it follows Unwrap: a writer below that flushes without being an
// http.Flusher itself would flush past the commit.
func (d plain) FlushError() error { return d.flush() }

func (d dressF) Flush() { _ = d.flush() }

func (d dressH) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return d.hijack() }
func (d dressFH) Hijack() (net.Conn, *bufio.ReadWriter, error) { return d.hijack() }

func (d dressR) ReadFrom(r io.Reader) (int64, error)   { return d.readFrom(r) }
func (d dressFR) ReadFrom(r io.Reader) (int64, error)  { return d.readFrom(r) }
func (d dressHR) ReadFrom(r io.Reader) (int64, error)  { return d.readFrom(r) }
func (d dressFHR) ReadFrom(r io.Reader) (int64, error) { return d.readFrom(r) }

func (d dressP) Push(t string, o *http.PushOptions) error    { return d.push(t, o) }
func (d dressFP) Push(t string, o *http.PushOptions) error   { return d.push(t, o) }
func (d dressHP) Push(t string, o *http.PushOptions) error   { return d.push(t, o) }
func (d dressRP) Push(t string, o *http.PushOptions) error   { return d.push(t, o) }
func (d dressFHP) Push(t string, o *http.PushOptions) error  { return d.push(t, o) }
func (d dressFRP) Push(t string, o *http.PushOptions) error  { return d.push(t, o) }
func (d dressHRP) Push(t string, o *http.PushOptions) error  { return d.push(t, o) }
func (d dressFHRP) Push(t string, o *http.PushOptions) error { return d.push(t, o) }

// closeNotifier is http.CloseNotifier: old handlers still ask for it, and it
// costs two lines to go on answering.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (d http1) CloseNotify() <-chan bool { return d.below.(closeNotifier).CloseNotify() }
func (d http2) CloseNotify() <-chan bool { return d.below.(closeNotifier).CloseNotify() }

const (
	canFlush = 1 << iota
	canHijack
	canReadFrom
	canPush
	canNotify
)

// dress wraps w for this request; a writer that is dressed for it already, or for
// what it is a branch of, is returned as it is.
func (s *state) dress(w http.ResponseWriter) http.ResponseWriter {
	if core := coreOf(w); core != nil {
		for p := s; p != nil; p = p.parent {
			if core.state == p {
				return w
			}
		}
	}
	return s.wrap(w)
}

func (s *state) wrap(w http.ResponseWriter) http.ResponseWriter {
	core := &s.w
	if core.state != nil {
		// Somebody else's wrapper came between two of our stages.
		core = new(writer)
	}
	core.below, core.state = w, s
	return core.dressed()
}

func (w *writer) dressed() http.ResponseWriter {
	abilities := 0
	if _, ok := w.below.(http.Flusher); ok {
		abilities |= canFlush
	}
	if _, ok := w.below.(http.Hijacker); ok {
		abilities |= canHijack
	}
	if _, ok := w.below.(io.ReaderFrom); ok {
		abilities |= canReadFrom
	}
	if _, ok := w.below.(http.Pusher); ok {
		abilities |= canPush
	}
	if _, ok := w.below.(closeNotifier); ok {
		abilities |= canNotify
	}
	p := plain{w}
	f, h, r := dressF{p}, dressH{p}, dressR{p}
	fh := dressFH{f}
	switch abilities {
	case canFlush | canHijack | canReadFrom | canNotify:
		return http1{dressFHR{fh}}
	case canFlush | canPush | canNotify:
		return http2{dressFP{f}}
	}
	switch abilities &^ canNotify {
	case canFlush:
		return f
	case canHijack:
		return h
	case canReadFrom:
		return r
	case canPush:
		return dressP{p}
	case canFlush | canHijack:
		return fh
	case canFlush | canReadFrom:
		return dressFR{f}
	case canFlush | canPush:
		return dressFP{f}
	case canHijack | canReadFrom:
		return dressHR{h}
	case canHijack | canPush:
		return dressHP{h}
	case canReadFrom | canPush:
		return dressRP{r}
	case canFlush | canHijack | canReadFrom:
		return dressFHR{fh}
	case canFlush | canHijack | canPush:
		return dressFHP{fh}
	case canFlush | canReadFrom | canPush:
		return dressFRP{dressFR{f}}
	case canHijack | canReadFrom | canPush:
		return dressHRP{dressHR{h}}
	case canFlush | canHijack | canReadFrom | canPush:
		return dressFHRP{dressFHR{fh}}
	}
	return p
}
