package middleware_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
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

// sendfile counts the bytes that it gets through ReadFrom, as a server's writer
// does.
type sendfile struct {
	*httptest.ResponseRecorder
	sent int64
}

func (s *sendfile) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

func (s *sendfile) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = io.Copy(s.ResponseRecorder, r)
	s.sent += n
	return n, err
}

// TestCopyReachesTheServer: a file goes to the server's ReadFrom, from where it
// reaches the connection, but for the bytes before a status is sent.
func TestCopyReachesTheServer(t *testing.T) {
	const size = 100_000
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("a", size)), size))
	}, middleware.Options{Hooks: quiet()})
	w := &sendfile{ResponseRecorder: httptest.NewRecorder()}
	if api.ServeHTTP(w, request("GET", "/api/v1/x", token, "")); w.Body.Len() != size || w.sent < size-1024 {
		t.Errorf("%d of %d bytes went through the server's ReadFrom", w.sent, w.Body.Len())
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
