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
