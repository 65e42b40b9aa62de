package rawconn_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// certificate returns a certificate for 127.0.0.1 and what a client needs to
// trust it.
func certificate(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	ts := httptest.NewTLSServer(nil)
	defer ts.Close()
	return &tls.Config{Certificates: ts.TLS.Certificates},
		&tls.Config{RootCAs: ts.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "127.0.0.1"}
}

// serveTLS runs srv behind ListenTLS and returns its address and a client's
// configuration that offers the protocols.
func serveTLS(t testing.TB, srv *http.Server, protos ...string) (string, *tls.Config) {
	t.Helper()
	server, client := certificate(t)
	srv.TLSConfig = server
	client.NextProtos = protos
	ln := listenTCP(t)
	return run(t, srv, rawconn.ListenTLS(srv, ln, options())), client
}

// get asks for / with an HTTP client of the given protocols.
func get(t testing.TB, url string, config *tls.Config, protocols ...func(*http.Protocols, bool)) response {
	t.Helper()
	p := new(http.Protocols)
	for _, set := range protocols {
		set(p, true)
	}
	tr := &http.Transport{TLSClientConfig: config, Protocols: p}
	defer tr.CloseIdleConnections()
	r, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(url)
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
	addr, config := serveTLS(t, newServer(stage(hello)), "http/1.1")
	for in, status := range map[string]int{
		"GARBAGE\r\n\r\n":        400,
		"GET / HTTP/1.1\r\n\r\n": 400,
		"GET / HTTP/3.0\r\n\r\n": 505,
		getRequest[:14]:          400,
		"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 1<<16): 431,
		"GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n":              417,
		"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: a\r\n\r\n":     501,
	} {
		c := dialTLS(t, addr, config)
		c.send(in)
		if status != 431 {
			c.Conn.(*tls.Conn).CloseWrite()
		}
		wantAnswer(t, c.next("GET"), status)
		c.all()
	}
}

func TestTLSHandler(t *testing.T) {
	for _, tt := range []struct {
		name      string
		h         http.HandlerFunc
		body      string
		protocols []func(*http.Protocols, bool)
		proto     string
	}{
		{"HTTP/1", hello, "hello", []func(*http.Protocols, bool){http1}, "HTTP/1.1"},
		{"HTTP/2", hello, "hello", []func(*http.Protocols, bool){http1, http2}, "HTTP/2.0"},
		{"HTTP/1, 1 MB", largeBody, string(likeResponse()), []func(*http.Protocols, bool){http1}, "HTTP/1.1"},
		{"HTTP/2, 1 MB", largeBody, string(likeResponse()), []func(*http.Protocols, bool){http2}, "HTTP/2.0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, config := serveTLS(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS == nil || !r.TLS.HandshakeComplete {
					t.Errorf("the request has no TLS state: %v", r.TLS)
				}
				tt.h(w, r)
			})))
			r := get(t, "https://"+addr, config, tt.protocols...)
			if r.Proto != tt.proto || r.body != tt.body || !slices.Equal(r.Header[field], []string{"own-1"}) {
				t.Errorf("got %s, %d bytes, ids %q; want %s, %d bytes, own-1", r.Proto, len(r.body), r.Header[field], tt.proto, len(tt.body))
			}
		})
	}
}

// TestTLSHooks: the hooks see the *tls.Conn, as they would without us.
func TestTLSHooks(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, ok := conn.(interface{ NetConn() net.Conn }).NetConn().(*tls.Conn); !ok {
			t.Errorf("the hijacked %T has no *tls.Conn", conn)
		}
		io.WriteString(conn, switching+inner)
	}))
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%T %v", c, s))
	}
	addr, config := serveTLS(t, srv, "http/1.1")
	c := dialTLS(t, addr, config)
	c.send(getRequest)
	if r := c.next("GET"); r.StatusCode != 101 || r.id(t) != "own-1" {
		t.Errorf("got %q, want 101 with own-1", r.head)
	}
	if got := c.all(); got != inner {
		t.Errorf("got %q after the head, want %q", got, inner)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"*tls.Conn new", "*tls.Conn active", "*tls.Conn hijacked"}; !slices.Equal(seen, want) {
		t.Errorf("got states %q, want %q", seen, want)
	}
}

// TestPlainHTTPOnTLSPort, with more of a request than the handshake reads: the
// answer of ListenTLS arrives before a reset could destroy it.
func TestPlainHTTPOnTLSPort(t *testing.T) {
	for _, tt := range []struct{ method, rest string }{
		{"GET", " HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"PATCH", " HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("a", 100000)},
	} {
		var logged bytes.Buffer
		srv := newServer(stage(hello))
		srv.ErrorLog = log.New(&logged, "", 0)
		addr, _ := serveTLS(t, srv)
		c := dial(t, addr)
		c.send(tt.method + " /" + tt.rest)
		r := c.next(tt.method)
		wantAnswer(t, r, 400)
		if !strings.HasPrefix(r.head, "HTTP/1.0 400 Bad Request\r\n") {
			t.Errorf("got %q", r.head)
		}
		c.all()
		if got := logged.String(); !strings.HasPrefix(got, "http: TLS handshake error from 127.0.0.1:") || !strings.HasSuffix(got, ": client sent an HTTP request to an HTTPS server\n") {
			t.Errorf("got log %q", got)
		}
	}
}

// TestServeTLS is net/http's own TLS over Listen.
func TestServeTLS(t *testing.T) {
	server, client := certificate(t)
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	srv.TLSConfig = server
	ln := rawconn.Listen(srv, listenTCP(t), options())
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(ln, "", "") }()
	defer func() {
		srv.Close()
		<-done
	}()
	addr := ln.Addr().String()
	for _, protocol := range []func(*http.Protocols, bool){http1, http2} {
		if r := get(t, "https://"+addr, client, protocol); r.body != r.Proto || len(r.Header[field]) != 1 {
			t.Errorf("got body %q over %s with ids %q", r.body, r.Proto, r.Header[field])
		}
	}
	c := dial(t, addr)
	c.send(getRequest)
	wantAnswer(t, c.next("GET"), 400)
}

// TestBareTLSConn: net/http sees HTTP/2 only in a *tls.Conn.
func TestBareTLSConn(t *testing.T) {
	server, client := certificate(t)
	server.NextProtos = []string{"h2", "http/1.1"}
	srv := newServer(stage(hello))
	addr := run(t, srv, rawconn.Listen(srv, tls.NewListener(listenTCP(t), server), options()))
	if r := get(t, "https://"+addr, client, http2); r.Proto != "HTTP/2.0" || r.Header.Get(field) != "own-1" {
		t.Errorf("got %s with ids %q", r.Proto, r.Header[field])
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
		{"TLSNextProto", func(srv *http.Server) { srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){} }, "", "http/1.1"},
		{"GODEBUG", func(*http.Server) {}, "http2server=0", "http/1.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GODEBUG", tt.godebug)
			srv := newServer(stage(hello))
			tt.set(srv)
			addr, config := serveTLS(t, srv, "h2", "http/1.1")
			c := dialTLS(t, addr, config)
			if got := c.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != tt.want {
				t.Errorf("got protocol %q, want %q", got, tt.want)
			}
		})
	}
}

// TestTLSConfigIsCopied: a configuration that is shared with others stays.
func TestTLSConfigIsCopied(t *testing.T) {
	server, _ := certificate(t)
	server.NextProtos = make([]string, 0, 4)
	srv := newServer(stage(hello))
	srv.TLSConfig = server
	rawconn.ListenTLS(srv, listenOne(nil), options())
	if len(server.NextProtos) != 0 || server.NextProtos[:1][0] != "" || srv.TLSConfig == server {
		t.Errorf("the configuration has changed: %q", server.NextProtos[:1])
	}
}

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

// TestUnencryptedHTTP2: the connection is left alone, and many streams call Own at
// once.
func TestUnencryptedHTTP2(t *testing.T) {
	srv := newServer(stage(largeBody))
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	addr := serve(t, srv)

	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := (&http.Client{Transport: tr}).Get("http://" + addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Equal(body, likeResponse()) || len(r.Header[field]) != 1 {
				t.Errorf("got %d bytes, %v, ids %q over %s", len(body), err, r.Header[field], r.Proto)
			}
		})
	}
	wg.Wait()

	c := dial(t, addr)
	c.send("GARBAGE, longer than the preface\r\n\r\n")
	wantAnswer(t, c.next("GET"), 400)
}
