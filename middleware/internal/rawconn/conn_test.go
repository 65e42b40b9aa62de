package rawconn_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// oneConn is a listener that accepts one connection and then no more.
type oneConn struct {
	net.Listener
	conn   chan net.Conn
	closed chan struct{}
}

func listenOne(c net.Conn) *oneConn {
	l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- c
	return l
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error { close(l.closed); return nil }

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// accept returns c as the listener of srv hands it on.
func accept(t testing.TB, srv *http.Server, c net.Conn) net.Conn {
	t.Helper()
	wrapped, err := rawconn.Listen(srv, listenOne(c), options()).Accept()
	if err != nil {
		t.Fatal(err)
	}
	return wrapped
}

type (
	closeWriter  struct{}
	connState    struct{}
	readerFrom   struct{ n atomic.Int64 }
	halfCloser   interface{ CloseWrite() error }
	tlsConnState interface{ ConnectionState() tls.ConnectionState }
)

func (closeWriter) CloseWrite() error { return io.ErrNoProgress }

func (connState) ConnectionState() tls.ConnectionState { return tls.ConnectionState{ServerName: "a"} }

func (r *readerFrom) ReadFrom(src io.Reader) (int64, error) {
	r.n.Add(1)
	return io.Copy(io.Discard, src)
}

// TestOptionalMethods: a connection has those that it had before, and no others.
func TestOptionalMethods(t *testing.T) {
	pipe, _ := net.Pipe()
	tests := []net.Conn{
		pipe,
		struct {
			net.Conn
			closeWriter
		}{Conn: pipe},
		struct {
			net.Conn
			connState
		}{Conn: pipe},
		struct {
			net.Conn
			*readerFrom
		}{pipe, new(readerFrom)},
		struct {
			net.Conn
			closeWriter
			connState
		}{Conn: pipe},
		struct {
			net.Conn
			closeWriter
			*readerFrom
		}{Conn: pipe, readerFrom: new(readerFrom)},
		struct {
			net.Conn
			connState
			*readerFrom
		}{Conn: pipe, readerFrom: new(readerFrom)},
		struct {
			net.Conn
			closeWriter
			connState
			*readerFrom
		}{Conn: pipe, readerFrom: new(readerFrom)},
		&net.TCPConn{},
		&net.UnixConn{},
	}
	methods := func(c net.Conn) string {
		var have []string
		if half, ok := c.(halfCloser); ok {
			have = append(have, fmt.Sprintf("CloseWrite %v", half.CloseWrite()))
		}
		if state, ok := c.(tlsConnState); ok {
			have = append(have, "ConnectionState of "+state.ConnectionState().ServerName)
		}
		if _, ok := c.(io.ReaderFrom); ok {
			have = append(have, "ReadFrom")
		}
		return strings.Join(have, ", ")
	}
	for _, c := range tests {
		wrapped := accept(t, new(http.Server), c)
		if got, want := methods(wrapped), methods(c); got != want {
			t.Errorf("%T: got methods %q, want %q", c, got, want)
		}
		if nc, ok := wrapped.(interface{ NetConn() net.Conn }); !ok || nc.NetConn() != c {
			t.Errorf("%T: NetConn does not return it", c)
		}
		if _, ok := wrapped.(syscall.Conn); !ok && strings.Contains(fmt.Sprintf("%T", c), "TCP") {
			t.Errorf("%T: no SyscallConn", c)
		}
	}
}

// wroteTo is a source that notes into which type of writer it is copied.
type wroteTo struct {
	io.Reader
	types *[]string
}

func (s wroteTo) WriteTo(w io.Writer) (int64, error) {
	*s.types = append(*s.types, fmt.Sprintf("%T", w))
	return io.Copy(w, s.Reader)
}

// TestReadFromOfTCP: the source of a response reaches the ReadFrom of the
// *net.TCPConn, which is the only one that knows sendfile. Only that one hands a
// source that is neither a file nor a socket to a type of package net.
func TestReadFromOfTCP(t *testing.T) {
	body := likeResponse()
	var types []string
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.(io.ReaderFrom).ReadFrom(wroteTo{strings.NewReader(string(body)), &types})
	}
	for name, h := range map[string]http.Handler{"owned": stage(handler), "not owned": http.HandlerFunc(handler)} {
		t.Run(name, func(t *testing.T) {
			types = nil
			c := dial(t, serve(t, newServer(h)))
			c.send(getRequest)
			if r := c.next("GET"); r.body != string(body) {
				t.Errorf("got %d bytes, want %d", len(r.body), len(body))
			}
			if len(types) != 1 || !strings.HasPrefix(types[0], "net.") {
				t.Errorf("the source was copied into %q, want one type of net", types)
			}
		})
	}
}

func TestServeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, likeResponse(), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dial(t, serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }))))
	for range 2 {
		c.send(getRequest)
		if r := c.next("GET"); r.body != string(likeResponse()) {
			t.Errorf("the file has changed: got %d bytes", len(r.body))
		}
	}
	c.send("GARBAGE\r\n\r\n")
	wantAnswer(t, c.next("GET"), 400)
}

// countingConn is a foreign connection with a ReadFrom of its own.
type countingConn struct {
	*net.TCPConn
	calls *atomic.Int64
}

func (c countingConn) ReadFrom(src io.Reader) (int64, error) {
	c.calls.Add(1)
	return c.TCPConn.ReadFrom(src)
}

type countingListener struct {
	net.Listener
	calls atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c.(*net.TCPConn), &l.calls}, nil
}

func TestReadFromOfForeignConn(t *testing.T) {
	ln := &countingListener{Listener: listenTCP(t)}
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(likeResponse())))
		io.Copy(w, struct{ io.Reader }{strings.NewReader(string(likeResponse()))})
	}))
	c := dial(t, run(t, srv, rawconn.Listen(srv, ln, options())))
	for i := range 3 {
		c.send(getRequest)
		if r := c.next("GET"); r.body != string(likeResponse()) || r.id(t) != fmt.Sprintf("own-%d", i+1) {
			t.Errorf("got %d bytes in %q", len(r.body), r.head)
		}
	}
	if got := ln.calls.Load(); got != 3 {
		t.Errorf("ReadFrom was called %d times, want 3", got)
	}
	c.send("GARBAGE\r\n\r\n")
	wantAnswer(t, c.next("GET"), 400)
	c.all()
}

// TestOtherConnections: a conversation over each, and an answer of net/http.
func TestOtherConnections(t *testing.T) {
	talk := func(t *testing.T, c *client) {
		c.send(getRequest)
		if r := c.next("GET"); r.id(t) != "own-1" || r.body != "hello" {
			t.Errorf("got body %q in %q", r.body, r.head)
		}
		c.send("GARBAGE\r\n\r\n")
		wantAnswer(t, c.next("GET"), 400)
		c.all()
	}
	t.Run("pipe", func(t *testing.T) {
		here, there := net.Pipe()
		srv := newServer(stage(hello))
		run(t, srv, rawconn.Listen(srv, listenOne(there), options()))
		talk(t, newClient(t, here))
	})
	t.Run("unix", func(t *testing.T) {
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		srv := newServer(stage(hello))
		c, err := net.Dial("unix", run(t, srv, rawconn.Listen(srv, ln, options())))
		if err != nil {
			t.Fatal(err)
		}
		talk(t, newClient(t, c))
	})
}

// TestWriteError: an error of the connection reaches the writer.
func TestWriteError(t *testing.T) {
	here, there := net.Pipe()
	here.Close()
	for _, p := range []string{inner, "HTTP/1.1 200 OK\r\n\r\n", "other"} {
		if n, err := accept(t, new(http.Server), there).Write([]byte(p)); n != 0 || err != io.ErrClosedPipe {
			t.Errorf("Write(%.20q) = %d, %v; want 0 and %v", p, n, err, io.ErrClosedPipe)
		}
	}
}

func TestListenPanics(t *testing.T) {
	ln := listenTCP(t)
	defer ln.Close()
	id := func() string { return "a" }
	tests := []struct {
		name string
		f    func()
	}{
		{"nil server", func() { rawconn.Listen(nil, ln, rawconn.Options{Header: "A", NewID: id}) }},
		{"nil listener", func() { rawconn.Listen(new(http.Server), nil, rawconn.Options{Header: "A", NewID: id}) }},
		{"no NewID", func() { rawconn.Listen(new(http.Server), ln, rawconn.Options{Header: "A"}) }},
		{"no name", func() { rawconn.Listen(new(http.Server), ln, rawconn.Options{NewID: id}) }},
		{"bad name", func() { rawconn.Listen(new(http.Server), ln, rawconn.Options{Header: "A:", NewID: id}) }},
		{"name with letters outside ASCII", func() { rawconn.Listen(new(http.Server), ln, rawconn.Options{Header: "Ä", NewID: id}) }},
		{"no TLSConfig", func() { rawconn.ListenTLS(new(http.Server), ln, rawconn.Options{Header: "A", NewID: id}) }},
		{"no certificate", func() {
			rawconn.ListenTLS(&http.Server{TLSConfig: new(tls.Config)}, ln, rawconn.Options{Header: "A", NewID: id})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "rawconn: ") {
					t.Errorf("got panic %q", s)
				}
			}()
			tt.f()
		})
	}
}
