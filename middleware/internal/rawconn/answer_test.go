package rawconn_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// TestAnswersOfNetHTTP has a row for each kind of request that net/http refuses
// by itself.
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
		{"bad URI", "GET :/%41 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", get + "Host: b\r\n\r\n", 400},
		{"space in a name", get + "A b: c\r\n\r\n", 400},
		{"long header", get + "A: " + strings.Repeat("a", 1<<16) + "\r\n\r\n", 431},
		{"long URI", "GET /" + strings.Repeat("a", 1<<16) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431},
		{"gzip", get + "Transfer-Encoding: gzip\r\n\r\n", 501},
		{"two lengths", get + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
		{"EOF in the header", get + "A: b", 400},
		{"Expect", get + "Expect: tea\r\n\r\n", 417},
		{"Expect of HTTP/1.0", "GET / HTTP/1.0\r\nExpect: tea\r\n\r\n", 417},
	}
	addr := serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the handler got %s %s", r.Method, r.RequestURI)
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

func TestAnswerAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		srv := newServer(stage(hello))
		srv.ReadHeaderTimeout = time.Second
		run(t, srv, rawconn.Listen(srv, listenOne(there), options()))
		c := newClient(t, here)
		c.send("GET / HTTP/1.1\r\nHos")
		wantAnswer(t, c.next("GET"), 400)
	})
}

// TestExpectOfHEAD: a response to HEAD has no body.
func TestExpectOfHEAD(t *testing.T) {
	c := dial(t, serve(t, newServer(stage(hello))))
	c.send("HEAD / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n")
	if r := c.next("HEAD"); r.StatusCode != 417 || r.id(t) != "new-1" {
		t.Errorf("got head %q, want 417 with new-1", r.head)
	}
	if rest := c.all(); rest != "" {
		t.Errorf("got %q after the head", rest)
	}
}

// TestHandlerWithoutOwner: a response gets an id if it has none, and keeps its
// own id and its body.
func TestHandlerWithoutOwner(t *testing.T) {
	tests := []struct {
		name   string
		h      http.HandlerFunc
		id     string
		status int
		body   string
	}{
		{"none", hello, "new-1", 200, "hello"},
		{"its own", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(field, "mine")
			hello(w, r)
		}, "mine", 200, "hello"},
		{"text 400", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, "no", 400)
		}, "new-1", 400, "no\n"},
		{"417 with a body", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(417)
			hello(w, r)
		}, "new-1", 417, "hello"},
		{"417 that keeps the connection",
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(417) }, "new-1", 417, ""},
		{"head of 24 KB", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", strings.Repeat("a", 3<<12))
			w.Header().Set("Z", strings.Repeat("z", 3<<12))
			hello(w, r)
		}, "new-1", 200, "hello"},
		{"early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			hello(w, r)
		}, "new-1", 200, "hello"},
		{"owner after early hints", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			stage(hello).ServeHTTP(w, r)
		}, "own-1", 200, "hello"},
		{"body like a response", largeBody, "new-1", 200, likeResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(tt.h)))
			c.send(getRequest)
			r := c.next("GET")
			if r.StatusCode == http.StatusEarlyHints {
				r = c.next("GET")
			}
			if r.StatusCode != tt.status || r.id(t) != tt.id || r.body != tt.body {
				t.Errorf("got %d, id %q, %d bytes; want %d, %q, %d bytes",
					r.StatusCode, r.id(t), len(r.body), tt.status, tt.id, len(tt.body))
			}
		})
	}
}
