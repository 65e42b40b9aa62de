package rawconn_test

import (
	"bytes"
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

// likeResponse is 1 MB of answers of net/http, so that most writes that begin
// at a multiple of its length begin like a response.
var likeResponse = strings.Repeat(canned, 1<<20/len(canned))

// largeBody makes the connection get the body at the beginning of a write.
func largeBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(likeResponse)))
	w.(http.Flusher).Flush()
	io.WriteString(w, likeResponse)
}

func TestBodyLikeResponse(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"one write":   func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, likeResponse) },
		"after flush": largeBody,
		"after early hints": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			largeBody(w, r)
		},
		"flushed parts": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(likeResponse)))
			w.(http.Flusher).Flush()
			for p := likeResponse; p != ""; p = p[min(len(p), 100*len(canned)):] {
				io.WriteString(w, p[:min(len(p), 100*len(canned))])
				w.(http.Flusher).Flush()
			}
		},
		"ReadFrom": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(likeResponse)))
			w.(http.Flusher).Flush()
			io.Copy(w, strings.NewReader(likeResponse))
		},
	}
	for name, h := range tests {
		t.Run(name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(stage(h))))
			for i := range 2 {
				c.send(getRequest)
				r := c.next("GET")
				if r.StatusCode == http.StatusEarlyHints {
					r = c.next("GET")
				}
				if want := fmt.Sprintf("own-%d", i+1); r.id(t) != want || r.body != likeResponse {
					t.Errorf("got id %q and %d bytes, want %q and the body unchanged", r.id(t), len(r.body), want)
				}
			}
		})
	}
}

// TestContinue: the automatic interim response goes out as it is, and the final
// head is still recognized.
func TestContinue(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }
	tests := []struct {
		name string
		h    http.Handler
		id   string
	}{
		{"owned", stage(echo), "own-1"},
		{"not owned", http.HandlerFunc(echo), "new-1"},
		{"hijacked after", stage(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			hijack(w, func(c net.Conn, _ io.Reader) {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"+string(body))
			})
		}), "own-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, serve(t, newServer(tt.h)))
			c.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
			if r := c.next("POST"); r.head != "HTTP/1.1 100 Continue\r\n\r\n" {
				t.Errorf("got %q", r.head)
			}
			c.send("body")
			if r := c.next("POST"); r.id(t) != tt.id || r.body != "body" {
				t.Errorf("got id %q, body %q; want %q, body", r.id(t), r.body, tt.id)
			}
		})
	}
}

const switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"

// hijack leaves the connection to f and then closes it. The reader has what
// net/http has read already.
func hijack(w http.ResponseWriter, f func(net.Conn, io.Reader)) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	f(c, rw)
}

// TestHijackedHead compares the whole connection, byte for byte.
func TestHijackedHead(t *testing.T) {
	const ours = "Svc-Request-Id: own-1\r\n"
	with := func(head string) string { return strings.Replace(head, "\n", "\n"+ours, 1) }
	tests := []struct {
		name   string
		writes []string
		want   string
	}{
		{"101", []string{switching}, with(switching)},
		{"body in the same write", []string{switching + canned}, with(switching) + canned},
		{"later writes", []string{switching, canned, canned}, with(switching) + canned + canned},
		{"like an answer of net/http", []string{canned}, with(canned)},
		{"no field", []string{"HTTP/1.1 200\r\n\r\nA: body"}, "HTTP/1.1 200\r\n" + ours + "\r\nA: body"},
		{"bare line feeds", []string{"HTTP/1.0 200 OK\nA: b\n\nbody\r\n"}, "HTTP/1.0 200 OK\n" + ours + "A: b\n\nbody\r\n"},
		{"lines", strings.SplitAfter(switching, "\n"), with(switching)},
		{"other ids", []string{"HTTP/1.1 200 OK\r\nsvc-request-id: a\r\nSvc-Request-Ids: b\r\nSvc-Request-Id:c\r\n\r\n" +
			"Svc-Request-Id: body\r\n"},
			"HTTP/1.1 200 OK\r\n" + ours + "Svc-Request-Ids: b\r\n\r\nSvc-Request-Id: body\r\n"},
		{"no head", []string{"\x81\x05hello", canned}, "\x81\x05hello" + canned},
		{"interim head", []string{"HTTP/1.1 103 Early Hints\r\n\r\n", canned},
			with("HTTP/1.1 103 Early Hints\r\n\r\n") + canned},
		{"no space", []string{"HTTP/1.1/200 OK\r\n\r\n", canned}, "HTTP/1.1/200 OK\r\n\r\n" + canned},
		{"no status", []string{"HTTP/1.1 2000 OK\r\n\r\n", canned}, "HTTP/1.1 2000 OK\r\n\r\n" + canned},
		{"HTTP/2", []string{"HTTP/2.0 200 OK\r\n\r\n" + canned}, "HTTP/2.0 200 OK\r\n\r\n" + canned},
	}
	for _, tt := range tests {
		for how, write := range map[string]func(net.Conn, string){
			"Write":    func(c net.Conn, s string) { io.WriteString(c, s) },
			"ReadFrom": func(c net.Conn, s string) { c.(io.ReaderFrom).ReadFrom(strings.NewReader(s)) },
		} {
			t.Run(tt.name+" by "+how, func(t *testing.T) {
				c := dial(t, serve(t, newServer(stage(func(w http.ResponseWriter, r *http.Request) {
					hijack(w, func(c net.Conn, _ io.Reader) {
						for _, s := range tt.writes {
							write(c, s)
						}
					})
				}))))
				c.send(getRequest)
				if got := c.all(); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// TestUpgrade is a conversation as WebSocket libraries have it, on a connection
// that has served a request before. One library writes its own head after the
// hijack, another calls WriteHeader before.
func TestUpgrade(t *testing.T) {
	for name, upgrade := range map[string]func(http.ResponseWriter, func(net.Conn, io.Reader)){
		"own head": func(w http.ResponseWriter, f func(net.Conn, io.Reader)) {
			hijack(w, func(c net.Conn, r io.Reader) { io.WriteString(c, switching); f(c, r) })
		},
		"WriteHeader": func(w http.ResponseWriter, f func(net.Conn, io.Reader)) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			hijack(w, f)
		},
	} {
		h := func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				hello(w, r)
				return
			}
			upgrade(w, func(c net.Conn, r io.Reader) { io.WriteString(c, canned); io.Copy(c, r) })
		}
		for _, tt := range []struct {
			h      http.Handler
			prefix string
		}{{stage(h), "own-"}, {http.HandlerFunc(h), "new-"}} {
			t.Run(name+" "+tt.prefix, func(t *testing.T) {
				c := dial(t, serve(t, newServer(tt.h)))
				c.send(getRequest)
				c.next("GET").id(t)
				c.send("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
				if r := c.next("GET"); r.StatusCode != 101 || r.id(t) != tt.prefix+"2" {
					t.Errorf("got %q, want 101 with %s2", r.head, tt.prefix)
				}
				c.send(canned)
				c.Conn.(*net.TCPConn).CloseWrite()
				if got := c.all(); got != canned+canned {
					t.Errorf("got %q in the tunnel", got)
				}
			})
		}
	}
}

// TestUnencryptedHTTP2: the connection is left alone, while many streams call
// Own at once.
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
			if err != nil || string(body) != likeResponse || len(r.Header[field]) != 1 {
				t.Errorf("got %d bytes, %v, ids %q over %s", len(body), err, r.Header[field], r.Proto)
			}
		})
	}
	wg.Wait()

	c := dial(t, addr)
	c.send("GARBAGE, longer than the preface\r\n\r\n")
	wantAnswer(t, c.next("GET"), 400)
}

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn
	out bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) { return s.out.Write(p) }

// TestStates has the turns that net/http does not take over TCP. Each row is
// what a connection sees, in order: an owner, a state of net/http, or a write.
func TestStates(t *testing.T) {
	type own string
	const head = "HTTP/1.1 200 OK\r\n\r\n"
	with := func(id string) string { return "HTTP/1.1 200 OK\r\nSvc-Request-Id: " + id + "\r\n\r\n" }
	tests := []struct {
		name   string
		events []any
		want   string
	}{
		{"idle before any answer is HTTP/2", []any{http.StateIdle, head, own("own"), http.StateHijacked, head}, head + head},
		{"no HTTP at first", []any{"\x16\x03\x01", http.StateIdle, head}, "\x16\x03\x01" + head},
		{"two heads", []any{head, head}, with("new-1") + head},
		{"an owner of one request", []any{own("own"), head, http.StateIdle, head}, head + with("new-1")},
		{"owned, even if it has no id", []any{own("own"), canned, canned}, canned + canned},
		{"owner after the head", []any{head, own("own"), http.StateHijacked, head}, with("new-1") + head},
		{"owner after the hijack", []any{http.StateHijacked, own("own"), head}, with("new-1")},
		{"idle after the hijack", []any{own("own"), http.StateHijacked, http.StateIdle, head, http.StateIdle, head},
			with("own") + head},
		{"two owners", []any{own("first"), own("own"), http.StateHijacked, head}, with("own")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv, conn := new(http.Server), new(sink)
			c := accept(t, srv, conn)
			for _, e := range tt.events {
				switch e := e.(type) {
				case own:
					rawconn.Own(srv.ConnContext(t.Context(), c), string(e))
				case http.ConnState:
					srv.ConnState(c, e)
				case string:
					io.WriteString(c, e)
				}
			}
			if got := conn.out.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestHijackedWriters is for the race detector: one of them has the first
// write.
func TestHijackedWriters(t *testing.T) {
	here, there := net.Pipe()
	srv := new(http.Server)
	c := accept(t, srv, there)
	srv.ConnState(c, http.StateHijacked)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { io.WriteString(c, switching) })
	}
	go func() { wg.Wait(); c.Close() }()
	if got := newClient(t, here).all(); strings.Count(got, switching) != 3 || strings.Count(got, field) != 1 {
		t.Errorf("got %q, want one id", got)
	}
}

// TestWriteError: an error of the connection reaches the writer.
func TestWriteError(t *testing.T) {
	here, there := net.Pipe()
	here.Close()
	for _, p := range []string{canned, "HTTP/1.1 200 OK\r\n\r\n", "other"} {
		if n, err := accept(t, new(http.Server), there).Write([]byte(p)); n != 0 || err != io.ErrClosedPipe {
			t.Errorf("Write(%.20q) = %d, %v; want 0 and %v", p, n, err, io.ErrClosedPipe)
		}
	}
}

type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error)                 { return len(p), nil }
func (discard) ReadFrom(src io.Reader) (n int64, err error) { return 0, nil }

// TestAllocations: what the wrapper adds to a request with an owner. The parts
// are called as net/http calls them, since its own allocations vary.
func TestAllocations(t *testing.T) {
	srv := new(http.Server)
	c := accept(t, srv, discard{})
	ctx, cancel := context.WithCancel(srv.ConnContext(t.Context(), c))
	defer cancel()
	head, body := []byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), []byte("hello")
	if got := testing.AllocsPerRun(100, func() {
		srv.ConnState(c, http.StateActive)
		rawconn.Own(ctx, "own")
		c.Write(head)
		c.Write(body)
		c.(io.ReaderFrom).ReadFrom(nil)
		srv.ConnState(c, http.StateIdle)
	}); got != 0 {
		t.Errorf("got %v allocations a request, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() { rawconn.Own(t.Context(), "own") }); got != 0 {
		t.Errorf("without a listener: got %v allocations, want 0", got)
	}
}
