package rawconn_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

const field = "Svc-Request-Id"

var idLine = regexp.MustCompile(`(?im)^svc-request-id: ([^\r\n]*)\r\n`)

// options numbers the ids that no owner gave: new-1, new-2, …
func options() rawconn.Options {
	var n atomic.Int64
	return rawconn.Options{
		Header: field,
		NewID:  func() string { return fmt.Sprintf("new-%d", n.Add(1)) },
		Body: func(status int, id string) (string, []byte) {
			return "application/problem+json", fmt.Appendf(nil, `{"status":%d,"request_id":%q}`, status, id)
		},
	}
}

// stage stands in for the request-id stage. It numbers its ids own-1, own-2, …
func stage(next http.HandlerFunc) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := fmt.Sprintf("own-%d", n.Add(1))
		rawconn.Own(r.Context(), id)
		w.Header().Set(field, id)
		next(w, r)
	})
}

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }

func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: 1 << 10}
}

// serve runs srv behind Listen, over TCP, and returns its address.
func serve(t testing.TB, srv *http.Server) string {
	t.Helper()
	ln := listenTCP(t)
	return run(t, srv, rawconn.Listen(srv, ln, options()))
}

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func run(t testing.TB, srv *http.Server, ln net.Listener) string {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// client is a raw connection that fails the test when it hangs.
type client struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

func dialTLS(t testing.TB, addr string, config *tls.Config) *client {
	t.Helper()
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

func newClient(t testing.TB, c net.Conn) *client {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { c.Close() })
	return &client{Conn: c, t: t, br: bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// all reads until the server's FIN. A reset is an error.
func (c *client) all() string {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	if err != nil {
		c.t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return string(b)
}

// response is one response as it was on the wire.
type response struct {
	*http.Response
	head string
	body string
}

// next reads one response with its framing.
func (c *client) next(method string) response {
	c.t.Helper()
	var head bytes.Buffer
	for {
		line, err := c.br.ReadBytes('\n')
		head.Write(line)
		if err != nil {
			c.t.Fatalf("head %q: %v", head.String(), err)
		}
		if string(line) == "\r\n" {
			break
		}
	}
	text := head.String()
	joined := bufio.NewReader(io.MultiReader(&head, c.br))
	resp, err := http.ReadResponse(joined, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("head %q: %v", text, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("body of %q after %d bytes: %v", text, len(body), err)
	}
	if n := joined.Buffered(); n > 0 {
		rest, _ := joined.Peek(n)
		c.br = bufio.NewReader(io.MultiReader(strings.NewReader(string(rest)), c.br))
	}
	return response{resp, text, string(body)}
}

// id returns the only id of a response.
func (r response) id(t testing.TB) string {
	t.Helper()
	lines := idLine.FindAllStringSubmatch(r.head, -1)
	if len(lines) != 1 {
		t.Fatalf("got %d lines of %s, want 1, in %q", len(lines), field, r.head)
	}
	return lines[0][1]
}

// wantAnswer checks an answer that net/http gave by itself.
func wantAnswer(t *testing.T, r response, status int) {
	t.Helper()
	id := r.id(t)
	if r.StatusCode != status || !strings.HasPrefix(id, "new-") {
		t.Errorf("got status %d with id %q, want %d with a new one", r.StatusCode, id, status)
	}
	if want := fmt.Sprintf(`{"status":%d,"request_id":%q}`, status, id); r.body != want {
		t.Errorf("got body %q, want %q", r.body, want)
	}
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("got Content-Type %q", got)
	}
	if got := r.ContentLength; got != int64(len(r.body)) {
		t.Errorf("got Content-Length %d, want %d", got, len(r.body))
	}
	if !strings.Contains(r.head, "\r\nConnection: close\r\n") {
		t.Errorf("no Connection: close in %q", r.head)
	}
}

// connContext is the context of a request on c, for tests without a server.
func connContext(srv *http.Server, c net.Conn) context.Context {
	return srv.ConnContext(context.Background(), c)
}
