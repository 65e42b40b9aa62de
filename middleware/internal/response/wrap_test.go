package response_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

const idHeader, id = "Svc-Request-Id", "the-id"

func newWriter(r *http.Request) *response.Writer {
	return &response.Writer{Request: r, IDHeader: idHeader, ID: id}
}

// wrap returns a handler's writer on below.
func wrap(below http.ResponseWriter) http.ResponseWriter {
	return newWriter(httptest.NewRequest("GET", "/", nil)).Wrap(below)
}

// TestWrap: a handler's writer shows optional interfaces of the one below, none
// that it lacks, and each reaches it. Combinations that no known server or
// wrapper has are shown in part.
func TestWrap(t *testing.T) {
	calls := map[rune]string{'F': "Flush", 'H': "Hijack", 'R': "ReadFrom", 'P': "Push", 'N': "CloseNotify"}
	for _, tt := range writers {
		t.Run(tt.has, func(t *testing.T) {
			direct, through := &bare{}, &bare{}
			exercise(tt.make(direct))
			w := wrap(tt.make(through))
			if got := abilities(w); got != tt.shown {
				t.Errorf("got %q, want %q", got, tt.shown)
			}
			exercise(w)
			for letter, call := range calls {
				if !strings.ContainsRune(tt.shown, letter) {
					direct.calls = slices.DeleteFunc(direct.calls, func(c string) bool { return c == call })
				}
			}
			if !slices.Equal(through.calls, direct.calls) {
				t.Errorf("got calls %q, want %q", through.calls, direct.calls)
			}
		})
	}
}

// TestWrapOfServers: what net/http hands out is shown as it is.
func TestWrapOfServers(t *testing.T) {
	var seen string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = newWriter(r).Wrap(w)
		seen = abilities(w)
		if _, ok := w.(io.StringWriter); !ok {
			seen += " without WriteString"
		}
	})
	for _, tt := range []struct {
		h     http.Handler
		http2 bool
		want  string
	}{{h, false, "FHRN"}, {h, true, "FPN"}, {http.TimeoutHandler(h, 5*time.Minute, ""), false, "P"}} {
		srv := httptest.NewUnstartedServer(tt.h)
		srv.EnableHTTP2 = tt.http2
		srv.StartTLS()
		res, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if srv.Close(); seen != tt.want {
			t.Errorf("HTTP/2 %t: got %q, want %q", tt.http2, seen, tt.want)
		}
	}
}

// TestFlushErrors: http.ResponseController gets what the writer below says.
func TestFlushErrors(t *testing.T) {
	tests := []struct {
		name string
		make func(b *bare) http.ResponseWriter
		want error
	}{
		{"nothing", func(b *bare) http.ResponseWriter { return b }, http.ErrNotSupported},
		{"Flush", func(b *bare) http.ResponseWriter { return newF(b) }, nil},
		{"both", func(b *bare) http.ResponseWriter {
			return struct {
				hasF
				flushError
			}{newF(b), flushError{b}}
		}, errFlush},
		{"FlushError", func(b *bare) http.ResponseWriter {
			return struct {
				*bare
				flushError
			}{b, flushError{b}}
		}, errFlush},
		{"Unwrap to Flush", func(b *bare) http.ResponseWriter { return unwrapper{newF(b)} }, nil},
		{"Unwrap to nothing", func(b *bare) http.ResponseWriter { return unwrapper{b} }, http.ErrNotSupported},
	}
	for _, tt := range tests {
		b := &bare{}
		w := wrap(tt.make(b))
		clear(w.Header())
		err := http.NewResponseController(w).Flush()
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if flushed := err == nil || err == errFlush; flushed != (w.Header().Get(idHeader) != "") {
			t.Errorf("%s: flushed %v with the header %v", tt.name, flushed, w.Header())
		}
	}
}

// TestFlushThatCannotBe: a flush that no writer below can do commits nothing,
// also where a foreign writer stands between two of ours.
func TestFlushThatCannotBe(t *testing.T) {
	b := &bare{}
	w := wrap(unwrapper{wrap(b)})
	if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("got %v, want %v", err, http.ErrNotSupported)
	}
	if response.Committed(w) {
		t.Error("the response is committed")
	}
	w.WriteHeader(404)
	if !slices.Equal(b.calls, []string{"WriteHeader"}) || !response.Committed(w) {
		t.Errorf("got %q", b.calls)
	}
}

// unwrapper is how a foreign stage wraps a writer since Go 1.20: with Unwrap
// and no optional interface of its own.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

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

// A type for each combination of the optional interfaces, named by letters: F
// http.Flusher, H http.Hijacker, R io.ReaderFrom, P http.Pusher, N
// http.CloseNotifier.
type (
	hasF struct {
		*bare
		flusher
	}
	hasH struct {
		*bare
		hijacker
	}
	hasP struct {
		*bare
		pusher
	}
	hasFH struct {
		hasF
		hijacker
	}
	hasFR struct {
		hasF
		readerFrom
	}
	hasFP struct {
		hasF
		pusher
	}
	hasFHR struct {
		hasFH
		readerFrom
	}
	hasFHP struct {
		hasFH
		pusher
	}
	hasFHRN struct {
		hasFHR
		notifier
	}
	hasFPN struct {
		hasFP
		notifier
	}
)

func newF(b *bare) hasF     { return hasF{b, flusher{b}} }
func newFH(b *bare) hasFH   { return hasFH{newF(b), hijacker{b}} }
func newFHR(b *bare) hasFHR { return hasFHR{newFH(b), readerFrom{b}} }

// writers are the combinations, by their letters.
var writers = []struct {
	has   string
	shown string // where there is no form for has: what the nearest one shows
	make  func(b *bare) http.ResponseWriter
}{
	{"", "", func(b *bare) http.ResponseWriter { return b }},
	{"F", "F", func(b *bare) http.ResponseWriter { return newF(b) }},
	{"H", "H", func(b *bare) http.ResponseWriter { return hasH{b, hijacker{b}} }},
	{"P", "P", func(b *bare) http.ResponseWriter { return hasP{b, pusher{b}} }},
	{"FH", "FH", func(b *bare) http.ResponseWriter { return newFH(b) }},
	{"FR", "F", func(b *bare) http.ResponseWriter { return hasFR{newF(b), readerFrom{b}} }},
	{"FP", "FP", func(b *bare) http.ResponseWriter { return hasFP{newF(b), pusher{b}} }},
	{"FHR", "FHR", func(b *bare) http.ResponseWriter { return newFHR(b) }},
	{"FHP", "FH", func(b *bare) http.ResponseWriter { return hasFHP{newFH(b), pusher{b}} }},
	{"FHRN", "FHRN", func(b *bare) http.ResponseWriter { return hasFHRN{newFHR(b), notifier{b}} }},
	{"FPN", "FPN", func(b *bare) http.ResponseWriter { return hasFPN{hasFP{newF(b), pusher{b}}, notifier{b}} }},
}

// abilities lists the optional interfaces of a writer in the letters of
// writers.
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

// exercise calls each optional method that w has, in an order in which each
// still reaches the writer below.
func exercise(w http.ResponseWriter) {
	w.WriteHeader(http.StatusOK) // after which ReadFrom goes on below at once
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
