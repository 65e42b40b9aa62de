package middleware_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

func TestRequestIDListenerSharesTheTable(t *testing.T) {
	o := middleware.Options{RequestIDHeader: "Acme-Id"}
	srv := start(t, middleware.New(nil, o).RequestID(sayOK), func(srv *httptest.Server) {
		srv.Listener = middleware.RequestIDListener(srv.Config, srv.Listener, o)
	})
	c := dial(t, srv)
	c.send("GARBAGE\r\n\r\n")
	res := c.next("GET")
	p := res.problem(t)
	if len(res.Header.Values("Acme-Id")) != 1 || p.Code != "bad_request" || p.RequestID != res.Header.Get("Acme-Id") {
		t.Errorf("got %v %s", res.Header, res.body)
	}
	wantPanic(t, "not a header field name", func() {
		middleware.RequestIDListener(&http.Server{}, srv.Listener, middleware.Options{RequestIDHeader: "a b"})
	})
}

// TestRequestIDListenerOptionsStar: the chain answers it, so it needs a key
// like anything else.
func TestRequestIDListenerOptionsStar(t *testing.T) {
	api, token := oneRoute(t, sayOK, middleware.Options{Hooks: quiet()})
	srv := start(t, api, withRequestIDs)
	for auth, want := range map[string]int{"": 401, "Authorization: Bearer " + token + "\r\n": 400} {
		c := dial(t, srv)
		c.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n" + auth + "\r\n")
		res := c.next("OPTIONS")
		wantID(t, res.Response)
		if res.StatusCode != want || res.problem(t).Status != want {
			t.Errorf("got %d %s, want %d", res.StatusCode, res.body, want)
		}
	}
}

// countedListener counts the bytes that its connections are given through
// ReadFrom, where sendfile happens.
type countedListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{c.(*net.TCPConn), l.sent}, nil
}

type countedConn struct {
	*net.TCPConn
	sent *atomic.Int64
}

func (c *countedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.sent.Add(n)
	return n, err
}

func TestServeFileReachesTheConnection(t *testing.T) {
	const size = 5 << 20
	file := filepath.Join(t.TempDir(), "file.bin")
	if err := os.WriteFile(file, bytes.Repeat([]byte("5 MiB..."), size/8), 0o600); err != nil {
		t.Fatal(err)
	}
	serveFile := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }
	copyFile := func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		w.Header().Set("Content-Length", strconv.Itoa(size)) // without it the body is chunked
		io.Copy(w, f)
	}
	for _, tt := range []struct {
		name  string
		serve http.HandlerFunc
		outer func(srv *httptest.Server)
	}{
		{"plain", serveFile, func(*httptest.Server) {}},
		{"with request ids", serveFile, withRequestIDs},
		{"io.Copy", copyFile, func(*httptest.Server) {}},
		{"io.Copy with request ids", copyFile, withRequestIDs},
	} {
		api, token := oneRoute(t, tt.serve, middleware.Options{Hooks: quiet()})
		var sent atomic.Int64
		srv := start(t, api, func(srv *httptest.Server) { srv.Listener = countedListener{srv.Listener, &sent} }, tt.outer)
		res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
		wantID(t, res.Response)
		srv.Close() // waits for the handler, whose last ReadFrom may end behind the client
		// net/http copies the first 512 bytes itself, to find the type. Before a
		// status is sent, the response does.
		if got := sent.Load(); len(res.body) != size || got < size-512 {
			t.Errorf("%s: %d of %d bytes went through the connection's ReadFrom", tt.name, got, len(res.body))
		}
	}
}

// TestCopyOfMore: of a source that is longer than the declared Content-Length,
// such as a file that grows, the client gets that much, as from net/http.
func TestCopyOfMore(t *testing.T) {
	for _, length := range []int{512, 513, 600, 1024, 1500} {
		api, token := oneRoute(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(length))
			w.(io.ReaderFrom).ReadFrom(strings.NewReader(strings.Repeat("a", 2000)))
		}, middleware.Options{Hooks: quiet()})
		srv := start(t, api)
		res, err := srv.Client().Do(get(t, srv, "/api/v1/x", token))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); len(body) != length || err != nil {
			t.Errorf("got %d bytes of %d, %v", len(body), length, err)
		}
	}
}

// TestRefusalsKeepHTTP2Connections: what closes an HTTP/1.1 connection, because
// a body is still to come, would end all streams of this one.
func TestRefusalsKeepHTTP2Connections(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}, middleware.Options{Hooks: quiet()})
	srv := startTLS(t, api)
	for i, row := range []struct {
		token string
		want  int
	}{{"", 401}, {token, 413}, {"", 401}, {token, 413}} {
		body, w := io.Pipe()
		r := newRequest(t, "PUT", srv.URL+"/api/v1/x", row.token, body)
		reused := false
		r = r.WithContext(httptrace.WithClientTrace(r.Context(),
			&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}))
		res := do(t, srv.Client(), r)
		w.Close()
		if res.StatusCode != row.want || res.Header.Get("Connection") != "" || reused != (i > 0) {
			t.Errorf("request %d: got %d, Connection %q, on the same connection: %v", i, res.StatusCode,
				res.Header.Get("Connection"), reused)
		}
	}
}
