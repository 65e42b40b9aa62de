package rawconn_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// TestAnswersOfNetHTTP has a row for each way in which net/http answers a request
// that reaches no handler.
func TestAnswersOfNetHTTP(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n"
	tests := []struct {
		name   string
		in     string
		status int
	}{
		{"garbage", "GARBAGE\r\n\r\n", 400},
		{"HTTP/0.9", "GET /\r\n\r\n", 400},
		{"TLS hello", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\n", 400},
		{"bad method", "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"bad version", "GET / HTTP/1.x\r\nHost: a\r\n\r\n", 400},
		{"bad URI", "GET :/%41 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"bad escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		{"HTTP/3.0", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", get + "Host: b\r\n\r\n", 400},
		{"bad Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"space in a name", get + "A b: c\r\n\r\n", 400},
		{"space before the colon", get + "A : b\r\n\r\n", 400},
		{"no colon", get + "abc\r\n\r\n", 400},
		{"control character", get + "A: \x01\r\n\r\n", 400},
		{"leading space", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400},
		{"long header", get + "A: " + strings.Repeat("a", 1<<16) + "\r\n\r\n", 431},
		{"long URI", "GET /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
		{"gzip", get + "Transfer-Encoding: gzip\r\n\r\n", 501},
		{"gzip, chunked", get + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
		{"chunked twice", get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 501},
		{"chunked, identity", get + "Transfer-Encoding: chunked, identity\r\n\r\n", 501},
		{"xchunked", get + "Transfer-Encoding: xchunked\r\n\r\n", 501},
		{"two lengths", get + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
		{"list of lengths", get + "Content-Length: 3, 3\r\n\r\n", 400},
		{"signed length", get + "Content-Length: +3\r\n\r\n", 400},
		{"negative length", get + "Content-Length: -1\r\n\r\n", 400},
		{"hexadecimal length", get + "Content-Length: 0x3\r\n\r\n", 400},
		{"EOF in the headers", get + "A: b", 400},
		{"Expect", get + "Expect: tea\r\n\r\n", 417},
		{"Expect of HTTP/1.0", "GET / HTTP/1.0\r\nExpect: tea\r\n\r\n", 417},
	}
	addr := serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the handler has got %s %s", r.Method, r.RequestURI)
	})))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, addr)
			c.send(tt.in)
			if tt.status != 431 {
				c.Conn.(*net.TCPConn).CloseWrite()
			}
			wantAnswer(t, c.next("GET"), tt.status)
			if rest := c.all(); rest != "" {
				t.Errorf("got %q after the answer", rest)
			}
		})
	}
}

func TestAnswerToPartialHeaderAfterTimeout(t *testing.T) {
	srv := newServer(stage(hello))
	srv.ReadHeaderTimeout = 20 * time.Millisecond
	c := dial(t, serve(t, srv))
	c.send("GET / HTTP/1.1\r\nHos")
	wantAnswer(t, c.next("GET"), 400)
}

// TestExpectOfHEAD: a response to HEAD has no body, whatever its status.
func TestExpectOfHEAD(t *testing.T) {
	c := dial(t, serve(t, newServer(stage(hello))))
	c.send("HEAD / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n")
	r := c.next("HEAD")
	if id := r.id(t); r.StatusCode != 417 || id != "new-1" {
		t.Errorf("got status %d with id %q, want 417 with new-1", r.StatusCode, id)
	}
	if rest := c.all(); rest != "" {
		t.Errorf("got %q after the head", rest)
	}
}

func TestOptionsStarReachesTheHandler(t *testing.T) {
	c := dial(t, serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Method+" "+r.RequestURI)
	}))))
	c.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
	if r := c.next("OPTIONS"); r.body != "OPTIONS *" || r.id(t) != "own-1" {
		t.Errorf("got body %q in %q", r.body, r.head)
	}
}

// TestWithoutBody: net/http's own body stays if there is nothing to take its place.
func TestWithoutBody(t *testing.T) {
	srv := newServer(stage(hello))
	o := options()
	o.Body = nil
	c := dial(t, run(t, srv, rawconn.Listen(srv, listenTCP(t), o)))
	c.send("GET / HTTP/1.1\r\n\r\n")
	got := c.all()
	want := "HTTP/1.1 400 Bad Request: missing required Host header\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\nSvc-Request-Id: new-1\r\n\r\n" +
		"400 Bad Request: missing required Host header"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWithoutContentType(t *testing.T) {
	srv := newServer(stage(hello))
	o := options()
	o.Body = func(int, string) (string, []byte) { return "", nil }
	c := dial(t, run(t, srv, rawconn.Listen(srv, listenTCP(t), o)))
	c.send("GARBAGE\r\n\r\n")
	want := "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\nSvc-Request-Id: new-1\r\n\r\n"
	if got := c.all(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestIDCannotSplitTheHead: an id is the caller's, but the head stays whole.
func TestIDCannotSplitTheHead(t *testing.T) {
	srv := newServer(stage(hello))
	o := options()
	o.NewID = func() string { return "a\r\nB: c\x00\x7f" }
	c := dial(t, run(t, srv, rawconn.Listen(srv, listenTCP(t), o)))
	c.send("GARBAGE\r\n\r\n")
	if got, want := c.next("GET").id(t), "a  B: c  "; got != want {
		t.Errorf("got id %q, want %q", got, want)
	}
}
