package rawconn_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// TestSlowHandshake: it holds up nobody, has the server's time and ends with the
// listener.
func TestSlowHandshake(t *testing.T) {
	t.Run("others", func(t *testing.T) {
		srv := newServer(stage(hello))
		srv.ReadTimeout = time.Hour
		addr, config := serveTLS(t, srv)
		slow := dial(t, addr)
		slow.send("\x16\x03\x01")
		if r := get(t, "https://"+addr, config, http1); r.body != "hello" {
			t.Errorf("got body %q", r.body)
		}
		srv.Close()
		if _, err := slow.br.ReadByte(); err == nil {
			t.Error("the handshake goes on after Close")
		} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Error(err)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		srv := newServer(stage(hello))
		srv.ReadTimeout, srv.WriteTimeout, srv.ReadHeaderTimeout = time.Hour, 20*time.Millisecond, time.Hour
		addr, _ := serveTLS(t, srv)
		slow := dial(t, addr)
		slow.send("\x16\x03\x01")
		if _, err := slow.br.ReadByte(); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
	})
}

// deadlineConn notes the last deadline.
type deadlineConn struct {
	net.Conn
	last time.Time
}

func (c *deadlineConn) SetDeadline(d time.Time) error {
	c.last = d
	return c.Conn.SetDeadline(d)
}

// TestHandshakeDeadline: it is no longer there when net/http gets the connection.
func TestHandshakeDeadline(t *testing.T) {
	server, client := certificate(t)
	here, there := net.Pipe()
	conn := &deadlineConn{Conn: there}
	ln := rawconn.ListenTLS(&http.Server{TLSConfig: server}, listenOne(conn), options())
	defer ln.Close()
	go tls.Client(here, client).Handshake()
	if _, err := ln.Accept(); err != nil || !conn.last.IsZero() {
		t.Errorf("got error %v, deadline %v; want none", err, conn.last)
	}
}

// TestPanicOfTLSConfig: a callback that panics costs its own connection only.
func TestPanicOfTLSConfig(t *testing.T) {
	server, client := certificate(t)
	lines := make(chan string, 10)
	srv := newServer(stage(hello))
	srv.ErrorLog = log.New(lineWriter(lines), "", 0)
	srv.TLSConfig = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "bad.example" {
			panic("bad name")
		}
		return &server.Certificates[0], nil
	}}
	addr := run(t, srv, rawconn.ListenTLS(srv, listenTCP(t), options()))
	if _, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "bad.example", RootCAs: client.RootCAs}); err == nil {
		t.Error("the handshake went on after a panic")
	}
	if line := <-lines; !strings.Contains(line, "bad name") {
		t.Errorf("got log %q", line)
	}
	if r := get(t, "https://"+addr, client, http1); r.body != "hello" {
		t.Errorf("got body %q", r.body)
	}
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// flakyListener fails once, temporarily, and then for good.
type flakyListener struct {
	net.Listener
	errs chan error
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if err, ok := <-l.errs; ok {
		return nil, err
	}
	return nil, io.ErrUnexpectedEOF
}

func TestTLSAcceptErrors(t *testing.T) {
	server, _ := certificate(t)
	srv := newServer(stage(hello))
	srv.TLSConfig = server
	inner := &flakyListener{listenTCP(t), make(chan error, 1)}
	inner.errs <- io.ErrNoProgress
	close(inner.errs)
	ln := rawconn.ListenTLS(srv, inner, options())
	for _, want := range []error{io.ErrNoProgress, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF} {
		if c, err := ln.Accept(); c != nil || err != want {
			t.Errorf("Accept = %v, %v; want %v", c, err, want)
		}
	}
	ln.Close()
	if c, err := ln.Accept(); c != nil || err == nil {
		t.Errorf("after Close: Accept = %v, %v", c, err)
	}
}
