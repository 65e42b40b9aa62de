package middleware_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

// TestDress: the handler's writer has the optional interfaces of the one below,
// none more and none less, and each reaches it.
func TestDress(t *testing.T) {
	for _, tt := range wardrobe {
		t.Run(tt.has, func(t *testing.T) {
			direct := &bare{}
			exercise(tt.make(direct))
			through := &bare{}
			h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := abilities(w); got != tt.has {
					t.Errorf("got %q, want %q", got, tt.has)
				}
				exercise(w)
			}))
			h.ServeHTTP(tt.make(through), request("GET", "/", "", ""))
			if !slices.Equal(through.calls, direct.calls) {
				t.Errorf("got calls %q, want %q", through.calls, direct.calls)
			}
		})
	}
}

// TestDressOnce: all stages of a request share one writer.
func TestDressOnce(t *testing.T) {
	var outer http.ResponseWriter
	h := middleware.Chain(stage(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer = w
			next.ServeHTTP(w, r)
		})
	}, middleware.Recover(middleware.RecoverOptions{}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w != outer {
			t.Errorf("got another writer, %T in place of %T", w, outer)
		}
	}))
	serve(h, request("GET", "/", "", ""))
}

// TestDressOfServers: what net/http hands out is shown as it is.
func TestDressOfServers(t *testing.T) {
	var seen string
	h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = abilities(w)
		if _, ok := w.(io.StringWriter); !ok {
			seen += " without WriteString"
		}
	}))
	h1, h2 := start(t, h), startTLS(t, h)
	timeout := start(t, http.TimeoutHandler(h, hangs, ""))
	do(t, h1.Client(), get(t, h1, "/", ""))
	if seen != "FHRN" {
		t.Errorf("HTTP/1.1: got %q, want FHRN", seen)
	}
	do(t, h2.Client(), get(t, h2, "/", ""))
	if seen != "FPN" {
		t.Errorf("HTTP/2: got %q, want FPN", seen)
	}
	do(t, timeout.Client(), get(t, timeout, "/", ""))
	if seen != "P" {
		t.Errorf("http.TimeoutHandler: got %q, want P", seen)
	}
}

// TestDressForwardsDeadlines: what needs no commit is found through Unwrap.
func TestDressForwardsDeadlines(t *testing.T) {
	b := &bare{}
	h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})); err != nil {
			t.Error(err)
		}
		if err := c.EnableFullDuplex(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("EnableFullDuplex: got %v, want %v", err, http.ErrNotSupported)
		}
	}))
	h.ServeHTTP(struct {
		*bare
		deadliner
	}{b, deadliner{b}}, request("GET", "/", "", ""))
	if want := []string{"SetReadDeadline", "SetWriteDeadline"}; !slices.Equal(b.calls, want) {
		t.Errorf("got %q, want %q", b.calls, want)
	}
}

// TestDressFlushErrors: http.ResponseController gets what the writer below says.
func TestDressFlushErrors(t *testing.T) {
	tests := []struct {
		name string
		make func(b *bare) http.ResponseWriter
		want error
	}{
		{"nothing", func(b *bare) http.ResponseWriter { return b }, http.ErrNotSupported},
		{"Flush", func(b *bare) http.ResponseWriter {
			return struct {
				*bare
				flusher
			}{b, flusher{b}}
		}, nil},
		{"both", func(b *bare) http.ResponseWriter {
			return struct {
				*bare
				flusher
				flushError
			}{b, flusher{b}, flushError{b}}
		}, errFlush},
		{"FlushError", func(b *bare) http.ResponseWriter {
			return struct {
				*bare
				flushError
			}{b, flushError{b}}
		}, errFlush},
		{"Unwrap to Flush", func(b *bare) http.ResponseWriter {
			return unwrapper{struct {
				*bare
				flusher
			}{b, flusher{b}}}
		}, nil},
		{"Unwrap to nothing", func(b *bare) http.ResponseWriter { return unwrapper{b} }, http.ErrNotSupported},
	}
	for _, tt := range tests {
		b := &bare{}
		h := stage()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clear(w.Header())
			err := http.NewResponseController(w).Flush()
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if flushed := err == nil || err == errFlush; flushed != (w.Header().Get(idHeader) != "") {
				t.Errorf("%s: flushed %v with the header %v", tt.name, flushed, w.Header())
			}
		}))
		h.ServeHTTP(tt.make(b), request("GET", "/", "", ""))
	}
}

// TestFlushThatCannotBe: nothing is committed for the sake of a flush that no
// writer below can do, also where a foreign one stands between two of ours.
func TestFlushThatCannotBe(t *testing.T) {
	log := newLogged()
	foreign := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(unwrapper{w}, r) })
	}
	h := middleware.Chain(middleware.RequestID(middleware.RequestIDOptions{Hooks: log.hooks()}), foreign, middleware.Recover(middleware.RecoverOptions{}))
	b := &bare{}
	h(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("got %v, want %v", err, http.ErrNotSupported)
		}
		w.WriteHeader(404)
	})).ServeHTTP(b, request("GET", "/", "", ""))
	if !slices.Equal(b.calls, []string{"WriteHeader"}) || log.String() != "" {
		t.Errorf("got %q and the log %s", b.calls, log)
	}
}

// unwrapper is how a foreign stage wraps a writer since Go 1.20: with Unwrap and
// no optional interface of its own.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// TestForeignWriters: a stage of somebody else may stand outside ours or between
// two of ours, and nobody flushes past the commit.
func TestForeignWriters(t *testing.T) {
	foreign := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(unwrapper{w}, r) })
	}
	recovers := middleware.Recover(middleware.RecoverOptions{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clear(w.Header())
		io.WriteString(w, "half")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		panic("after flush")
	})
	flushOnly := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clear(w.Header())
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		panic("after flush")
	})
	for name, around := range map[string]func(http.Handler) http.Handler{
		"outside": middleware.Chain(foreign, stage(), recovers),
		"between": middleware.Chain(stage(), foreign, recovers),
		"inside":  middleware.Chain(stage(), recovers, foreign),
	} {
		for _, h := range []http.Handler{handler, flushOnly} {
			srv := start(t, around(h))
			res, err := srv.Client().Do(get(t, srv, "/", ""))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			wantID(t, res)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: the client has read %d %q to its end (%v), which was cut short", name, res.StatusCode, body, err)
			}
		}
	}
}
