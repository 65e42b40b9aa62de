package rawconn_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conns chan net.Conn
	close func()
}

func listenOne(c net.Conn) *oneConn {
	l := &oneConn{conns: make(chan net.Conn, 1)}
	l.conns <- c
	l.close = sync.OnceFunc(func() { close(l.conns) })
	return l
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { l.close(); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// accept returns c as the listener of srv passes it on.
func accept(t testing.TB, srv *http.Server, c net.Conn) net.Conn {
	t.Helper()
	wrapped, err := rawconn.Listen(srv, listenOne(c), options()).Accept()
	if err != nil {
		t.Fatal(err)
	}
	return wrapped
}

type readerFrom struct{ net.Conn }

func (readerFrom) ReadFrom(src io.Reader) (int64, error) { return io.Copy(io.Discard, src) }

type connState struct{ net.Conn }

func (connState) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

// TestOptionalMethods: a wrapped connection keeps those that net/http looks
// for, and gets neither ReadFrom nor ConnectionState that it did not have.
func TestOptionalMethods(t *testing.T) {
	pipe, _ := net.Pipe()
	for _, c := range []net.Conn{pipe, readerFrom{pipe}, &net.TCPConn{}, &net.UnixConn{}} {
		wrapped := accept(t, new(http.Server), c)
		_, had := c.(io.ReaderFrom)
		if _, has := wrapped.(io.ReaderFrom); has != had {
			t.Errorf("%T: ReadFrom: got %v, want %v", c, has, had)
		}
		if _, has := wrapped.(interface{ ConnectionState() tls.ConnectionState }); has {
			t.Errorf("%T: has ConnectionState", c)
		}
		if nc, ok := wrapped.(interface{ NetConn() net.Conn }); !ok || nc.NetConn() != c {
			t.Errorf("%T: NetConn does not return it", c)
		}
		want := errors.ErrUnsupported
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			want = half.CloseWrite()
		}
		if got := wrapped.(interface{ CloseWrite() error }).CloseWrite(); got != want {
			t.Errorf("%T: CloseWrite: got %v, want %v", c, got, want)
		}
	}
	if _, ok := accept(t, new(http.Server), &net.TCPConn{}).(syscall.Conn); !ok {
		t.Error("*net.TCPConn: no SyscallConn")
	}
	for _, c := range []net.Conn{connState{pipe}, tls.Server(pipe, nil)} {
		if got := accept(t, new(http.Server), c); got != c {
			t.Errorf("%T: got a %T, want it as it is", c, got)
		}
	}
}

// watched is a source that notes whether ReadFrom of a *net.TCPConn reads it.
type watched struct {
	io.Reader
	seen *atomic.Bool
}

func (s watched) Read(p []byte) (int, error) {
	if bytes.Contains(debug.Stack(), []byte("\nnet.(*TCPConn).ReadFrom(")) {
		s.seen.Store(true)
	}
	return s.Reader.Read(p)
}

// TestReadFromOfTCP: a body reaches ReadFrom of *net.TCPConn, where sendfile
// is.
func TestReadFromOfTCP(t *testing.T) {
	var seen atomic.Bool
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(likeResponse)))
		w.(io.ReaderFrom).ReadFrom(watched{strings.NewReader(likeResponse), &seen})
	}
	for name, h := range map[string]http.Handler{"owned": stage(handler), "not owned": http.HandlerFunc(handler)} {
		t.Run(name, func(t *testing.T) {
			seen.Store(false)
			c := dial(t, serve(t, newServer(h)))
			c.send(getRequest)
			if r := c.next("GET"); r.body != likeResponse {
				t.Errorf("the body has changed: got %d bytes", len(r.body))
			}
			if !seen.Load() {
				t.Error("the body did not pass ReadFrom of *net.TCPConn")
			}
		})
	}
}

// TestServeFile over the connections of each kind, and an answer of net/http
// after it.
func TestServeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(likeResponse), 0o600); err != nil {
		t.Fatal(err)
	}
	talk := func(t *testing.T, ln net.Listener, conn net.Conn) {
		srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }))
		addr := run(t, srv, rawconn.Listen(srv, ln, options()))
		if conn == nil {
			var err error
			if conn, err = net.Dial(ln.Addr().Network(), addr); err != nil {
				t.Fatal(err)
			}
		}
		c := newClient(t, conn)
		for i := range 2 {
			c.send(getRequest)
			if r := c.next("GET"); r.body != likeResponse || r.id(t) != fmt.Sprintf("own-%d", i+1) {
				t.Errorf("got %d bytes after %q", len(r.body), r.head)
			}
		}
		c.send("GARBAGE\r\n\r\n")
		wantAnswer(t, c.next("GET"), 400)
		c.all()
	}
	t.Run("TCP", func(t *testing.T) { talk(t, listenTCP(t), nil) })
	t.Run("Unix", func(t *testing.T) {
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		talk(t, ln, nil)
	})
	t.Run("pipe", func(t *testing.T) {
		here, there := net.Pipe()
		talk(t, listenOne(there), here)
	})
}
