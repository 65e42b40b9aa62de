package rawconn_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// certificate returns a certificate for 127.0.0.1 and a client's trust in it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return &tls.Config{Certificates: ts.TLS.Certificates},
		&tls.Config{RootCAs: ts.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "127.0.0.1"}
}

// serveTLS runs srv behind Listen. The client's configuration offers protos.
func serveTLS(t testing.TB, srv *http.Server, protos ...string) (addr string, client *tls.Config) {
	t.Helper()
	srv.TLSConfig, client = certificate(t)
	client.NextProtos = protos
	return run(t, srv, rawconn.Listen(srv, listenTCP(t), options())), client
}

func dialTLS(t testing.TB, addr string, config *tls.Config) *client {
	t.Helper()
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

// getTLS asks for / over one protocol.
func getTLS(t testing.TB, addr string, config *tls.Config, protocol func(*http.Protocols, bool)) response {
	t.Helper()
	p := new(http.Protocols)
	protocol(p, true)
	tr := &http.Transport{TLSClientConfig: config, Protocols: p}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr, Timeout: 5 * time.Minute}).Get("https://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{r, "", string(body)}
}

var (
	http1 = (*http.Protocols).SetHTTP1
	http2 = (*http.Protocols).SetHTTP2
	h2c   = (*http.Protocols).SetUnencryptedHTTP2
)

func TestTLSAnswersOfNetHTTP(t *testing.T) {
	for _, protos := range [][]string{nil, {"http/1.1"}} {
		addr, config := serveTLS(t, newServer(stage(hello)), protos...)
		for in, status := range map[string]int{
			"GARBAGE\r\n\r\n":        400,
			"GET / HTTP/3.0\r\n\r\n": 505,
			"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 1<<16): 431,
			"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n":              417,
			"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: a\r\n\r\n":     501,
		} {
			c := dialTLS(t, addr, config)
			c.send(getRequest + in)
			if r := c.next("GET"); r.body != "hello" {
				t.Errorf("got body %q", r.body)
			}
			wantAnswer(t, c.next("GET"), status)
			c.all()
		}
	}
}

func TestTLSHandler(t *testing.T) {
	for proto, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1.1": http1, "HTTP/2.0": http2} {
		addr, config := serveTLS(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil || !r.TLS.HandshakeComplete {
				t.Errorf("%s: the request has no TLS state: %v", proto, r.TLS)
			}
			largeBody(w, r)
		})))
		r := getTLS(t, addr, config, protocol)
		if r.Proto != proto || r.body != likeResponse || !slices.Equal(r.Header[field], []string{"own-1"}) {
			t.Errorf("got %s, %d bytes, ids %q; want %s, own-1 and the body unchanged",
				r.Proto, len(r.body), r.Header[field], proto)
		}
	}
}

// TestTLSHijack: hooks and hijackers find the *tls.Conn.
func TestTLSHijack(t *testing.T) {
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		hijack(w, func(c net.Conn, _ io.Reader) {
			if _, ok := c.(interface{ NetConn() net.Conn }).NetConn().(*tls.Conn); !ok {
				t.Errorf("the hijacked %T has no *tls.Conn", c)
			}
			io.WriteString(c, switching+canned)
		})
	}))
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		if _, ok := c.(*tls.Conn); !ok {
			t.Errorf("the hook got a %T", c)
		}
	}
	addr, config := serveTLS(t, srv)
	c := dialTLS(t, addr, config)
	c.send(getRequest)
	if r := c.next("GET"); r.StatusCode != 101 || r.id(t) != "own-1" {
		t.Errorf("got %q, want 101 with own-1", r.head)
	}
	if got := c.all(); got != canned {
		t.Errorf("got %q after the head, want %q", got, canned)
	}
}

type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestPlainHTTPOnTLSPort(t *testing.T) {
	logged := make(lines, 1)
	srv := newServer(stage(hello))
	srv.ErrorLog = log.New(logged, "", 0)
	addr, _ := serveTLS(t, srv)
	c := dial(t, addr)
	c.send(getRequest)
	r := c.next("GET")
	wantAnswer(t, r, 400)
	if r.Proto != "HTTP/1.0" {
		t.Errorf("got %q", r.head)
	}
	c.all()
	if got := <-logged; !strings.HasSuffix(got, ": client sent an HTTP request to an HTTPS server\n") {
		t.Errorf("got log %q", got)
	}
}

// TestTLSProtocols: HTTP/2 is offered if and only if net/http serves it.
func TestTLSProtocols(t *testing.T) {
	only := func(set ...func(*http.Protocols, bool)) func(*http.Server) {
		return func(srv *http.Server) {
			srv.Protocols = new(http.Protocols)
			for _, f := range set {
				f(srv.Protocols, true)
			}
		}
	}
	nextProtos := func(p ...string) func(*http.Server) {
		return func(srv *http.Server) { srv.TLSConfig.NextProtos = p }
	}
	tests := []struct {
		name    string
		set     func(*http.Server)
		godebug string
		want    string
	}{
		{"default", func(*http.Server) {}, "", "h2"},
		{"HTTP/1", only(http1), "", "http/1.1"},
		{"HTTP/1, h2c", only(http1, h2c), "", "http/1.1"},
		{"HTTP/2", only(http2), "", "h2"},
		{"NextProtos h2", nextProtos("h2", "http/1.1"), "", "h2"},
		{"NextProtos h2, HTTP/1",
			func(srv *http.Server) { nextProtos("h2", "http/1.1")(srv); only(http1)(srv) }, "", "http/1.1"},
		{"NextProtos http/1.1", nextProtos("http/1.1"), "", "http/1.1"},
		{"TLSNextProto", func(srv *http.Server) {
			srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}, "", "http/1.1"},
		{"GODEBUG", func(*http.Server) {}, "http2server=0", "http/1.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GODEBUG", tt.godebug)
			server, client := certificate(t)
			srv := newServer(stage(hello))
			srv.TLSConfig = server
			tt.set(srv)
			before := slices.Clone(server.NextProtos)
			addr := run(t, srv, rawconn.Listen(srv, listenTCP(t), options()))
			client.NextProtos = []string{"h2", "http/1.1"}
			c := dialTLS(t, addr, client)
			if got := c.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != tt.want {
				t.Errorf("got protocol %q, want %q", got, tt.want)
			}
			if !slices.Equal(server.NextProtos, before) {
				t.Errorf("the caller's configuration has changed: %q", server.NextProtos)
			}
		})
	}
}

// TestSlowHandshake: it delays nobody, and ends with the server.
func TestSlowHandshake(t *testing.T) {
	srv := newServer(stage(hello))
	srv.ReadTimeout = time.Hour
	addr, config := serveTLS(t, srv)
	slow := dial(t, addr)
	slow.send("\x16\x03\x01")
	if r := getTLS(t, addr, config, http1); r.body != "hello" {
		t.Errorf("got body %q", r.body)
	}
	srv.Close()
	if _, err := slow.br.ReadByte(); err == nil {
		t.Error("the handshake continues after Close")
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error(err)
	}
}

func TestHandshakeTimeout(t *testing.T) {
	server, _ := certificate(t)
	for _, tt := range []struct {
		header, read, want time.Duration
	}{
		{0, 0, 10 * time.Second},
		{time.Second, time.Hour, time.Second},
		{0, 2 * time.Second, 2 * time.Second},
		{-1, time.Second, 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			srv := newServer(stage(hello))
			srv.TLSConfig, srv.ReadHeaderTimeout, srv.ReadTimeout = server, tt.header, tt.read
			start := time.Now()
			run(t, srv, rawconn.Listen(srv, listenOne(there), options()))
			if _, err := here.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("got %v, want EOF", err)
			}
			if got := time.Since(start); got != tt.want {
				t.Errorf("%v, %v: got %v, want %v", tt.header, tt.read, got, tt.want)
			}
		})
	}
}

// TestNoDeadlineAfterHandshake: the handshake's must not end a connection.
func TestNoDeadlineAfterHandshake(t *testing.T) {
	server, client := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		srv := newServer(stage(hello))
		srv.TLSConfig = server
		run(t, srv, rawconn.Listen(srv, listenOne(there), options()))
		conn := tls.Client(here, client)
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c := newClient(t, conn)
		c.send(getRequest)
		if r := c.next("GET"); r.body != "hello" {
			t.Errorf("got body %q", r.body)
		}
	})
}

// TestPanicOfTLSConfig: a callback that panics ends its own connection only.
func TestPanicOfTLSConfig(t *testing.T) {
	server, client := certificate(t)
	logged := make(lines, 8)
	srv := newServer(stage(hello))
	srv.ErrorLog = log.New(logged, "", 0)
	srv.TLSConfig = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "bad.example" {
			panic("bad name")
		}
		return &server.Certificates[0], nil
	}}
	addr := run(t, srv, rawconn.Listen(srv, listenTCP(t), options()))
	if _, err := tls.Dial("tcp", addr, &tls.Config{ServerName: "bad.example"}); err == nil {
		t.Error("the handshake went on after a panic")
	}
	if line := <-logged; !strings.Contains(line, "bad name") {
		t.Errorf("got log %q", line)
	}
	if r := getTLS(t, addr, client, http1); r.body != "hello" {
		t.Errorf("got body %q", r.body)
	}
}

// failingListener returns an error again and again.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, io.ErrNoProgress }

// TestTLSAcceptErrors: Serve decides which are final.
func TestTLSAcceptErrors(t *testing.T) {
	server, _ := certificate(t)
	ln := rawconn.Listen(&http.Server{TLSConfig: server}, failingListener{listenTCP(t)}, options())
	defer ln.Close()
	for range 3 {
		if c, err := ln.Accept(); c != nil || err != io.ErrNoProgress {
			t.Errorf("Accept = %v, %v; want %v", c, err, io.ErrNoProgress)
		}
	}
}

// TestServeTLS is net/http's own TLS over Listen, which saw no certificates.
func TestServeTLS(t *testing.T) {
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	var client *tls.Config
	ln := rawconn.Listen(srv, listenTCP(t), options())
	srv.TLSConfig, client = certificate(t)
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()
	defer func() {
		srv.Close()
		<-done
	}()
	for _, protocol := range []func(*http.Protocols, bool){http1, http2} {
		if r := getTLS(t, ln.Addr().String(), client, protocol); r.body != r.Proto || len(r.Header[field]) != 1 {
			t.Errorf("got body %q over %s with ids %q", r.body, r.Proto, r.Header[field])
		}
	}
	c := dial(t, ln.Addr().String())
	c.send(getRequest)
	wantAnswer(t, c.next("GET"), 400)
}
