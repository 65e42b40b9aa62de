package rawconn_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

const getRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func TestPipelinedRequests(t *testing.T) {
	c := dial(t, serve(t, newServer(stage(hello))))
	c.send(strings.Repeat(getRequest, 10))
	for i := range 10 {
		r := c.next("GET")
		if got, want := r.id(t), fmt.Sprintf("own-%d", i+1); got != want || r.body != "hello" {
			t.Errorf("response %d: got id %q, body %q; want %q, hello", i, got, r.body, want)
		}
	}
}

func TestGarbagePipelinedAfterGoodRequest(t *testing.T) {
	c := dial(t, serve(t, newServer(stage(hello))))
	c.send(getRequest + "GARBAGE\r\n\r\n")
	if r := c.next("GET"); r.id(t) != "own-1" || r.body != "hello" {
		t.Errorf("got body %q in %q", r.body, r.head)
	}
	wantAnswer(t, c.next("GET"), 400)
	c.all()
}

func TestKeepAliveAfterIdle(t *testing.T) {
	idle := make(chan struct{}, 10)
	srv := newServer(stage(hello))
	srv.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			idle <- struct{}{}
		}
	}
	c := dial(t, serve(t, srv))
	for i := range 3 {
		c.send(getRequest)
		if got, want := c.next("GET").id(t), fmt.Sprintf("own-%d", i+1); got != want {
			t.Errorf("got id %q, want %q", got, want)
		}
		<-idle
	}
	c.send("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n")
	wantAnswer(t, c.next("GET"), 417)
}

// TestHooksSetBefore: they are called with the connections as they were accepted.
func TestHooksSetBefore(t *testing.T) {
	type key struct{}
	var mu sync.Mutex
	var states []string
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Context().Value(key{}).(string))
	}))
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, key{}, fmt.Sprintf("%T", c))
	}
	closed := make(chan struct{})
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, fmt.Sprintf("%T %v", c, s))
		if s == http.StateClosed {
			close(closed)
		}
	}
	c := dial(t, serve(t, srv))
	c.send(getRequest)
	if r := c.next("GET"); r.body != "*net.TCPConn" || r.id(t) != "own-1" {
		t.Errorf("ConnContext has got a %s", r.body)
	}
	c.Close()
	<-closed
	mu.Lock()
	defer mu.Unlock()
	const want = "*net.TCPConn new, *net.TCPConn active, *net.TCPConn idle, *net.TCPConn closed"
	if got := strings.Join(states, ", "); got != want {
		t.Errorf("got states %s, want %s", got, want)
	}
}

// TestTwoListeners: the hooks of one listener leave the connections of the other
// alone. Two hooks for one connection would take it for HTTP/2.
func TestTwoListeners(t *testing.T) {
	srv := newServer(stage(hello))
	listeners := []net.Listener{
		rawconn.Listen(srv, listenTCP(t), options()),
		rawconn.Listen(srv, listenTCP(t), options()),
	}
	for _, ln := range listeners {
		c := dial(t, run(t, srv, ln))
		c.send(getRequest + "GARBAGE\r\n\r\n")
		c.next("GET").id(t)
		wantAnswer(t, c.next("GET"), 400)
	}
}

func TestShutdown(t *testing.T) {
	entered, release, shutdown := make(chan struct{}), make(chan struct{}), make(chan struct{})
	srv := newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-release
		}
		hello(w, r)
	}))
	srv.RegisterOnShutdown(func() { close(shutdown) })
	addr := serve(t, srv)

	idle := dial(t, addr)
	idle.send(getRequest)
	idle.next("GET")
	slow := dial(t, addr)
	slow.send(strings.Replace(getRequest, "/", "/slow", 1))
	<-entered

	done := make(chan error)
	go func() { done <- srv.Shutdown(context.Background()) }()
	<-shutdown
	if got := idle.all(); got != "" {
		t.Errorf("the idle connection got %q", got)
	}
	close(release)
	r := slow.next("GET")
	if r.id(t) != "own-2" || !r.Close || r.body != "hello" {
		t.Errorf("got body %q in %q, want hello with own-2 and Connection: close", r.body, r.head)
	}
	slow.all()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestManyConnections is for the race detector.
func TestManyConnections(t *testing.T) {
	addr := serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hijack" {
			hello(w, r)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	})))
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			c := dial(t, addr)
			var ids []string
			for range 20 {
				c.send(getRequest + getRequest)
				ids = append(ids, c.next("GET").id(t), c.next("GET").id(t))
			}
			c.send(getRequest + "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n")
			ids = append(ids, c.next("GET").id(t), c.next("GET").id(t))
			c.all()

			c = dial(t, addr)
			c.send(getRequest + "GARBAGE\r\n\r\n")
			ids = append(ids, c.next("GET").id(t), c.next("GET").id(t))
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				if seen[id] {
					t.Errorf("id %s came twice", id)
				}
				seen[id] = true
			}
		})
	}
	wg.Wait()
	if want := 16 * 44; len(seen) != want {
		t.Errorf("got %d ids, want %d", len(seen), want)
	}
}
