package rawconn_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

const (
	field      = "Svc-Request-Id"
	getRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	// canned is an answer of net/http. As a body it must not be changed.
	canned = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
		"400 Bad Request"
)

var idLine = regexp.MustCompile(`(?im)^svc-request-id: ([^\r\n]*)\r\n`)

// options numbers the ids of responses without an owner: new-1, new-2, …
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

// stage does what the request-id stage does. It numbers its ids own-1, own-2, …
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

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve runs srv behind Listen and returns its address.
func serve(t testing.TB, srv *http.Server) string {
	t.Helper()
	return run(t, srv, rawconn.Listen(srv, listenTCP(t), options()))
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

// client is a raw connection. It fails the test if the server hangs.
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

func newClient(t testing.TB, c net.Conn) *client {
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	t.Cleanup(func() { c.Close() })
	return &client{c, t, bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// all reads until the server closes the connection. A reset is an error.
func (c *client) all() string {
	c.t.Helper()
	b, err := io.ReadAll(c.br)
	if err != nil {
		c.t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return string(b)
}

// response is one response and its head as it was sent.
type response struct {
	*http.Response
	head, body string
}

func (c *client) next(method string) response {
	c.t.Helper()
	var head bytes.Buffer
	for !bytes.HasSuffix(head.Bytes(), []byte("\r\n\r\n")) {
		line, err := c.br.ReadBytes('\n')
		head.Write(line)
		if err != nil {
			c.t.Fatalf("head %q: %v", head.String(), err)
		}
	}
	text := head.String()
	// What the reader has taken from c.br without need goes back.
	joined := bufio.NewReader(io.MultiReader(&head, c.br))
	resp, err := http.ReadResponse(joined, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("head %q: %v", text, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("body of %q after %d bytes: %v", text, len(body), err)
	}
	rest, _ := joined.Peek(joined.Buffered())
	c.br = bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(rest)), c.br))
	return response{resp, text, string(body)}
}

// id returns the only id of a response.
func (r response) id(t testing.TB) string {
	t.Helper()
	lines := idLine.FindAllStringSubmatch(r.head, -1)
	if len(lines) != 1 {
		t.Fatalf("got %d fields %s, want 1, in %q", len(lines), field, r.head)
	}
	return lines[0][1]
}

// wantAnswer checks an answer that net/http gave by itself.
func wantAnswer(t testing.TB, r response, status int) {
	t.Helper()
	id := r.id(t)
	if r.StatusCode != status || !strings.HasPrefix(id, "new-") {
		t.Errorf("got status %d with id %q, want %d with a new one", r.StatusCode, id, status)
	}
	want := fmt.Sprintf(`{"status":%d,"request_id":%q}`, status, id)
	if r.body != want || r.ContentLength != int64(len(want)) {
		t.Errorf("got body %q of length %d, want %q", r.body, r.ContentLength, want)
	}
	if !strings.Contains(r.head, "\r\nConnection: close\r\n") ||
		r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got head %q, want a problem and Connection: close", r.head)
	}
	if _, err := http.ParseTime(r.Header.Get("Date")); err != nil || len(r.Header["Date"]) != 1 {
		t.Errorf("got Date %q", r.Header["Date"])
	}
}

// TestKeepAlive: on each of many connections at once, each response has the id of
// its own handler, and the connection is inspected again after each of them.
func TestKeepAlive(t *testing.T) {
	tellID := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, w.Header().Get(field)) }
	addr := serve(t, newServer(stage(tellID)))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			c := dial(t, addr)
			last, status := "GARBAGE\r\n\r\n", 400
			if i%2 == 1 {
				last, status = "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417
			}
			c.send(strings.Repeat(getRequest, 10) + last)
			for range 10 {
				if r := c.next("GET"); r.id(t) != r.body || !strings.HasPrefix(r.body, "own-") {
					t.Errorf("got id %q, want that of the handler, %q", r.id(t), r.body)
				}
			}
			wantAnswer(t, c.next("GET"), status)
			c.all()
		})
	}
	wg.Wait()
}
