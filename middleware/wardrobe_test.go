package middleware_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// bare is a writer without any optional interface. It notes what reaches it.
type bare struct {
	header http.Header
	calls  []string
}

func (b *bare) Header() http.Header {
	if b.header == nil {
		b.header = http.Header{}
	}
	return b.header
}

func (b *bare) Write(p []byte) (int, error) { b.note("Write"); return len(p), nil }

func (b *bare) WriteHeader(int) { b.note("WriteHeader") }

func (b *bare) note(call string) { b.calls = append(b.calls, call) }

type (
	flusher    struct{ b *bare }
	hijacker   struct{ b *bare }
	readerFrom struct{ b *bare }
	pusher     struct{ b *bare }
	notifier   struct{ b *bare }
	deadliner  struct{ b *bare }
	flushError struct{ b *bare }
)

var errFlush = errors.New("flush failed")

func (f flusher) Flush() { f.b.note("Flush") }

func (f flushError) FlushError() error { f.b.note("FlushError"); return errFlush }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	h.b.note("Hijack")
	return nil, nil, nil
}

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.b.note("ReadFrom")
	return io.Copy(io.Discard, src)
}

func (p pusher) Push(string, *http.PushOptions) error { p.b.note("Push"); return nil }

func (n notifier) CloseNotify() <-chan bool { n.b.note("CloseNotify"); return nil }

func (d deadliner) SetReadDeadline(t time.Time) error { d.b.note("SetReadDeadline"); return nil }

func (d deadliner) SetWriteDeadline(t time.Time) error { d.b.note("SetWriteDeadline"); return nil }

// wardrobe has a writer for each combination of the optional interfaces, named by
// letters: F http.Flusher, H http.Hijacker, R io.ReaderFrom, P http.Pusher,
// N http.CloseNotifier.
var wardrobe = []struct {
	has  string
	make func(b *bare) http.ResponseWriter
}{
	{"", func(b *bare) http.ResponseWriter { return b }},
	{"F", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
		}{b, flusher{b}}
	}},
	{"H", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			hijacker
		}{b, hijacker{b}}
	}},
	{"R", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			readerFrom
		}{b, readerFrom{b}}
	}},
	{"P", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			pusher
		}{b, pusher{b}}
	}},
	{"FH", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			hijacker
		}{b, flusher{b}, hijacker{b}}
	}},
	{"FR", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			readerFrom
		}{b, flusher{b}, readerFrom{b}}
	}},
	{"FP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			pusher
		}{b, flusher{b}, pusher{b}}
	}},
	{"HR", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			hijacker
			readerFrom
		}{b, hijacker{b}, readerFrom{b}}
	}},
	{"HP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			hijacker
			pusher
		}{b, hijacker{b}, pusher{b}}
	}},
	{"RP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			readerFrom
			pusher
		}{b, readerFrom{b}, pusher{b}}
	}},
	{"FHR", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			hijacker
			readerFrom
		}{b, flusher{b}, hijacker{b}, readerFrom{b}}
	}},
	{"FHP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			hijacker
			pusher
		}{b, flusher{b}, hijacker{b}, pusher{b}}
	}},
	{"FRP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			readerFrom
			pusher
		}{b, flusher{b}, readerFrom{b}, pusher{b}}
	}},
	{"HRP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			hijacker
			readerFrom
			pusher
		}{b, hijacker{b}, readerFrom{b}, pusher{b}}
	}},
	{"FHRP", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			hijacker
			readerFrom
			pusher
		}{b, flusher{b}, hijacker{b}, readerFrom{b}, pusher{b}}
	}},
	{"FHRN", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			hijacker
			readerFrom
			notifier
		}{b, flusher{b}, hijacker{b}, readerFrom{b}, notifier{b}}
	}},
	{"FPN", func(b *bare) http.ResponseWriter {
		return struct {
			*bare
			flusher
			pusher
			notifier
		}{b, flusher{b}, pusher{b}, notifier{b}}
	}},
}

// abilities lists the optional interfaces of a writer in the letters of wardrobe.
func abilities(w http.ResponseWriter) string {
	has := ""
	if _, ok := w.(http.Flusher); ok {
		has += "F"
	}
	if _, ok := w.(http.Hijacker); ok {
		has += "H"
	}
	if _, ok := w.(io.ReaderFrom); ok {
		has += "R"
	}
	if _, ok := w.(http.Pusher); ok {
		has += "P"
	}
	if _, ok := w.(interface{ CloseNotify() <-chan bool }); ok {
		has += "N"
	}
	return has
}

// exercise calls each optional method that w has, in an order in which each still
// reaches the writer below.
func exercise(w http.ResponseWriter) {
	if n, ok := w.(interface{ CloseNotify() <-chan bool }); ok {
		n.CloseNotify()
	}
	if p, ok := w.(http.Pusher); ok {
		p.Push("/", nil)
	}
	if r, ok := w.(io.ReaderFrom); ok {
		r.ReadFrom(strings.NewReader("body"))
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	if h, ok := w.(http.Hijacker); ok {
		h.Hijack()
	}
}
