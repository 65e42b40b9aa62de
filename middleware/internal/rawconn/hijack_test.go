package rawconn_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

const (
	switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
	inner     = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
)

// hijacker returns a handler that leaves its connection to f and then closes it.
func hijacker(t *testing.T, f func(net.Conn, *bufio.ReadWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, brw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		f(conn, brw)
	}
}

// TestHijackedHead: the whole connection, byte for byte.
func TestHijackedHead(t *testing.T) {
	const ours = "Svc-Request-Id: own-1\r\n"
	with := strings.Replace(switching, "\r\n\r\n", "\r\n"+ours+"\r\n", 1)
	tests := []struct {
		name string
		f    func(net.Conn, *bufio.ReadWriter)
		want string
	}{
		{"101", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, switching) }, with},
		{"buffered", func(_ net.Conn, b *bufio.ReadWriter) {
			b.WriteString(switching + inner)
			b.Flush()
		}, with + inner},
		{"body in the same write", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, switching+inner) }, with + inner},
		{"later writes", func(c net.Conn, _ *bufio.ReadWriter) {
			io.WriteString(c, switching)
			io.WriteString(c, inner)
			io.WriteString(c, inner)
		}, with + inner + inner},
		{"what net/http would write", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, inner) },
			strings.Replace(inner, "\r\n\r\n", "\r\n"+ours+"\r\n", 1)},
		{"no header line", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, "HTTP/1.1 200\r\n\r\nbody") },
			"HTTP/1.1 200\r\n" + ours + "\r\nbody"},
		{"bare line feeds", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, "HTTP/1.0 200 OK\nA: b\n\nbody") },
			"HTTP/1.0 200 OK\nA: b\n" + ours + "\nbody"},
		{"lines", func(c net.Conn, _ *bufio.ReadWriter) {
			for line := range strings.SplitAfterSeq(switching+inner, "\n") {
				io.WriteString(c, line)
			}
		}, with + inner},
		{"bytes", func(c net.Conn, _ *bufio.ReadWriter) {
			for _, b := range []byte(switching + inner) {
				c.Write([]byte{b})
			}
		}, with + inner},
		{"empty write first", func(c net.Conn, _ *bufio.ReadWriter) {
			c.Write(nil)
			io.WriteString(c, switching)
		}, with},
		{"other ids", func(c net.Conn, _ *bufio.ReadWriter) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nsvc-request-id: a\r\nSvc-Request-Ids: b\r\nSvc-Request-Id:c\r\n d\r\n\te\r\nSvc-Request: f\r\n\r\n")
		}, "HTTP/1.1 200 OK\r\nSvc-Request-Ids: b\r\nSvc-Request: f\r\n" + ours + "\r\n"},
		{"other id in bytes", func(c net.Conn, _ *bufio.ReadWriter) {
			for _, b := range []byte("HTTP/1.1 200 OK\r\nSvc-Request-Id: a\r\nSvc\r\n\r\n") {
				c.Write([]byte{b})
			}
		}, "HTTP/1.1 200 OK\r\nSvc\r\n" + ours + "\r\n"},
		{"interim heads", func(c net.Conn, _ *bufio.ReadWriter) {
			io.WriteString(c, "HTTP/1.1 100 Continue\r\nSvc-Request-Id: a\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n")
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+inner)
		}, "HTTP/1.1 100 Continue\r\nSvc-Request-Id: a\r\n\r\nHTTP/1.1 103 Early Hints\r\n" + ours + "\r\nHTTP/1.1 200 OK\r\n" + ours + "\r\n" + inner},
		{"ReadFrom", func(c net.Conn, _ *bufio.ReadWriter) {
			io.Copy(c, struct{ io.Reader }{strings.NewReader(switching + inner)})
			io.Copy(c, struct{ io.Reader }{strings.NewReader(inner)})
		}, with + inner + inner},
		{"long body by ReadFrom", func(c net.Conn, _ *bufio.ReadWriter) {
			io.Copy(c, struct{ io.Reader }{strings.NewReader(switching + string(likeResponse()))})
		}, with + string(likeResponse())},
		{"no head", func(c net.Conn, _ *bufio.ReadWriter) {
			io.WriteString(c, "\x81\x05hello")
			io.WriteString(c, inner)
		}, "\x81\x05hello" + inner},
		{"almost a head", func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, "HTTP/1.1 2000 OK\r\n\r\n"+inner) },
			"HTTP/1.1 2000 OK\r\n\r\n" + inner},
		{"almost a head in bytes", func(c net.Conn, _ *bufio.ReadWriter) {
			for _, b := range []byte("HTTP/2.0 200 OK\r\n\r\n" + inner) {
				c.Write([]byte{b})
			}
		}, "HTTP/2.0 200 OK\r\n\r\n" + inner},
		{"writev", func(c net.Conn, _ *bufio.ReadWriter) {
			io.WriteString(c, switching)
			(&net.Buffers{[]byte("a"), []byte(inner)}).WriteTo(c)
		}, with + "a" + inner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(stage(hijacker(t, tt.f)))))
			c.send(getRequest)
			if got := c.all(); got != tt.want {
				t.Errorf("got %.300q, want %.300q", got, tt.want)
			}
		})
	}
}

// TestHijackAfterHead: a handler that answers through its ResponseWriter and
// then hijacks has sent its head, so that what follows is a tunnel's.
func TestHijackAfterHead(t *testing.T) {
	for _, owned := range []bool{true, false} {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			hijacker(t, func(c net.Conn, _ *bufio.ReadWriter) { io.WriteString(c, inner) })(w, r)
		}))
		want := "new-1"
		if owned {
			h, want = stage(h.ServeHTTP), "own-1"
		}
		c := dial(t, serve(t, newServer(h)))
		c.send(getRequest)
		r := c.next("GET")
		if r.StatusCode != 101 || r.id(t) != want {
			t.Errorf("got status %d, id %q; want 101, %q", r.StatusCode, r.id(t), want)
		}
		if got := c.all(); got != inner {
			t.Errorf("got %q in the tunnel, want %q", got, inner)
		}
	}
}

func TestHijackWithoutOwner(t *testing.T) {
	c := dial(t, serve(t, newServer(hijacker(t, func(c net.Conn, _ *bufio.ReadWriter) {
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"+inner)
	}))))
	c.send(getRequest)
	want := "HTTP/1.1 103 Early Hints\r\n\r\n" + strings.Replace(inner, "\r\n\r\n", "\r\nSvc-Request-Id: new-1\r\n\r\n", 1)
	if got := c.all(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestHijackEcho is a conversation as WebSocket has it, on a connection that has
// served a request before.
func TestHijackEcho(t *testing.T) {
	addr := serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			hello(w, r)
			return
		}
		hijacker(t, func(c net.Conn, b *bufio.ReadWriter) {
			io.WriteString(c, switching)
			io.Copy(c, b)
		})(w, r)
	})))
	c := dial(t, addr)
	c.send(getRequest)
	c.next("GET").id(t)
	c.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
	if r := c.next("GET"); r.StatusCode != 101 || r.id(t) != "own-2" {
		t.Errorf("got %q, want 101 with own-2", r.head)
	}
	for range 3 {
		c.send(inner)
		got := make([]byte, len(inner))
		if _, err := io.ReadFull(c.br, got); err != nil || string(got) != inner {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	c.Conn.(*net.TCPConn).CloseWrite()
	c.all()
}

// TestHijackFromTwoGoroutines: a write that comes during the first one waits for
// it, and is not looked at any more.
func TestHijackFromTwoGoroutines(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n\r\n"
	srv, conn, done := new(http.Server), new(sink), make(chan struct{})
	var c net.Conn
	o := options()
	o.NewID = func() string {
		go func() {
			defer close(done)
			io.WriteString(c, head)
		}()
		for range 10000 {
			select {
			case <-done:
				t.Error("the second write has not waited")
				return "new"
			default:
				runtime.Gosched()
			}
		}
		return "new"
	}
	c, err := rawconn.Listen(srv, listenOne(conn), o).Accept()
	if err != nil {
		t.Fatal(err)
	}
	srv.ConnState(c, http.StateHijacked)
	io.WriteString(c, head)
	<-done
	if got, want := conn.out.String(), "HTTP/1.1 200 OK\r\nSvc-Request-Id: new\r\n\r\n"+head; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProxiedUpgrade: ReverseProxy adds the id of its upstream to ours.
func TestProxiedUpgrade(t *testing.T) {
	upstream := httptest.NewServer(hijacker(t, func(c net.Conn, b *bufio.ReadWriter) {
		io.WriteString(c, strings.Replace(switching, "\r\n\r\n", "\r\nSvc-Request-Id: upstream\r\n\r\n", 1))
		io.Copy(c, b)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, serve(t, newServer(stage(httputil.NewSingleHostReverseProxy(target).ServeHTTP))))
	c.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
	if r := c.next("GET"); r.StatusCode != 101 || r.id(t) != "own-1" {
		t.Errorf("got %q, want 101 with own-1", r.head)
	}
	c.send(inner)
	got := make([]byte, len(inner))
	if _, err := io.ReadFull(c.br, got); err != nil || string(got) != inner {
		t.Fatalf("got %q, %v", got, err)
	}
}
