package rawconn_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

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
