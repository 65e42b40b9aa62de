package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware"
)

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
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }, middleware.Options{Hooks: quiet()})
	for _, tt := range []struct {
		name  string
		outer func(srv *httptest.Server)
	}{
		{"plain", func(*httptest.Server) {}},
		{"hardened", hardened},
	} {
		var sent atomic.Int64
		srv := start(t, api, func(srv *httptest.Server) { srv.Listener = countedListener{srv.Listener, &sent} }, tt.outer)
		res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
		wantID(t, res.Response)
		// net/http copies the first 512 bytes itself, to find the type.
		if got := sent.Load(); len(res.body) != size || got < size-512 {
			t.Errorf("%s: %d of %d bytes went through the connection's ReadFrom", tt.name, got, len(res.body))
		}
	}
}

// zeros is n zero bytes, and notes how large the heap becomes while it is read.
type zeros struct {
	left, sampled int64
	heap          uint64
}

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	if z.sampled -= n; z.sampled <= 0 {
		z.sampled = 8 << 20
		z.heap = max(z.heap, heap())
	}
	return int(n), nil
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestStreamIsNotHeldBack(t *testing.T) {
	src := &zeros{left: streamSize}
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, src) }, middleware.Options{Hooks: quiet()})
	srv := start(t, api)
	runtime.GC()
	before := heap()
	res, err := srv.Client().Do(get(t, srv, "/api/v1/x", token))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	// The connection has no room for the whole, so the handler is still at it.
	first := make([]byte, 1)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if n+1 != streamSize || err != nil {
		t.Errorf("got %d bytes, %v; want %d", n+1, err, streamSize)
	}
	if src.heap > before+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, src.heap)
	}
}

// TestEventsArriveOneByOne: each event reaches the client before the next one is
// made.
func TestEventsArriveOneByOne(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		received := make(chan struct{})
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("Flush: %v", err)
				}
				select {
				case <-received:
				case <-time.After(hangs):
					t.Errorf("event %d was held back", i)
				}
			}
		}, middleware.Options{Hooks: quiet()})
		srv := serve(api)
		res, err := srv.Client().Do(get(t, srv, "/api/v1/x", token))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		for i := range 5 {
			line, _ := lines.ReadString('\n')
			lines.ReadString('\n')
			if want := fmt.Sprintf("data: %d\n", i); line != want {
				t.Errorf("got %q, want %q", line, want)
			}
			received <- struct{}{}
		}
	})
}

func TestTrailers(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "Declared")
			io.WriteString(w, "body")
			w.Header().Set("Declared", "1")
			w.Header().Set(http.TrailerPrefix+"Undeclared", "2")
		}, middleware.Options{Hooks: quiet()})
		srv := serve(api)
		res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
		if res.body != "body" || res.Trailer.Get("Declared") != "1" || res.Trailer.Get("Undeclared") != "2" {
			t.Errorf("got %q with trailers %v", res.body, res.Trailer)
		}
	})
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		result := make(chan error, 1)
		past := time.Unix(1, 0)
		api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			var err error
			switch r.Header.Get("Test") {
			case "read":
				err = c.SetReadDeadline(past)
				if err == nil {
					_, err = r.Body.Read(make([]byte, 1))
				}
			case "write":
				err = c.SetWriteDeadline(past)
				for err == nil { // until what the server buffers is full
					_, err = w.Write(make([]byte, 1<<16))
				}
			}
			result <- err
		}, middleware.Options{Hooks: quiet()})
		srv := serve(api)
		unfinished, w := io.Pipe()
		defer w.Close()
		for which, r := range map[string]*http.Request{
			"read":  newRequest(t, "PUT", srv.URL+"/api/v1/x", token, unfinished),
			"write": get(t, srv, "/api/v1/x", token),
		} {
			r.Header.Set("Test", which)
			go func() {
				if res, err := srv.Client().Do(r); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}()
			select {
			case err := <-result:
				if err == nil {
					t.Errorf("%s: worked after its deadline", which)
				}
			case <-time.After(hangs):
				t.Errorf("%s: went on after its deadline", which)
			}
		}
	})
}

func TestFullDuplex(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.EnableFullDuplex(), c.Flush()); err != nil {
			t.Error(err)
		}
		io.Copy(w, r.Body)
	}, middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api))
	c.send("PUT /api/v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	res := c.head("PUT")
	wantID(t, res)
	c.send("body")
	if body, err := io.ReadAll(res.Body); string(body) != "body" || err != nil {
		t.Errorf("got %q, %v", body, err)
	}
}

// TestUpgrade takes the connection over as the two best-known WebSocket libraries
// do: one writes its own head after the hijack, the other calls WriteHeader
// before.
func TestUpgrade(t *testing.T) {
	const head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
	ours, servers, recovered := newLogged(), newLogged(), make(chan struct{}, 4)
	watched := func(srv *httptest.Server) { srv.Config.ErrorLog = log.New(servers, "", 0) }
	hooks := ours.hooks()
	hooks.Observe = func(_ context.Context, e middleware.Event) {
		if e.Stage == middleware.StageRecover {
			recovered <- struct{}{}
		}
	}
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade-Style") == "WriteHeader" {
			w.Header().Set("Upgrade", "echo")
			w.Header().Set("Connection", "Upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		if r.Header.Get("Upgrade-Style") == "own head" {
			io.WriteString(conn, head)
		}
		if _, err := w.Write([]byte("late")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("Write after Hijack: got %v, want %v", err, http.ErrHijacked)
		}
		io.CopyN(conn, rw, 5)
		if r.Header.Get("Panic") != "" {
			panic("after hijack")
		}
	}, middleware.Options{Hooks: hooks})
	for _, tt := range []struct {
		style string
		srv   *httptest.Server
		ids   int
	}{
		{"WriteHeader", start(t, api, watched), 1},
		{"WriteHeader", start(t, api, watched, hardened), 1},
		{"own head", start(t, api, watched), 0}, // nobody sees these bytes
		{"own head", start(t, api, watched, hardened), 1},
	} {
		for _, extra := range []string{"", "Panic: 1\r\n"} {
			c := dial(t, tt.srv)
			c.send("GET /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\nUpgrade-Style: " + tt.style + "\r\n" + extra + "Authorization: Bearer " + token + "\r\n\r\n")
			res := c.head("GET")
			if ids := res.Header.Values(idHeader); res.StatusCode != 101 || len(ids) != tt.ids {
				t.Errorf("%s: got %d with ids %q, want 101 with %d", tt.style, res.StatusCode, ids, tt.ids)
			}
			c.send("hello")
			if got := c.rest(); got != "hello" {
				t.Errorf("%s: got %q, want the echo alone", tt.style, got)
			}
		}
	}
	for range 4 {
		<-recovered
	}
	if got := ours.String(); strings.Contains(got, "superfluous") || strings.Count(got, `panic="after hijack"`) != 4 {
		t.Errorf("got the log %s", got)
	}
	if got := servers.String(); strings.Contains(got, "WriteHeader") { // of a 500 on a connection that is not ours
		t.Errorf("got the server's log %s", got)
	}
}

// TestProxiedUpgrade: httputil.ReverseProxy writes the upstream's head on the
// connection it has taken over, and behind Harden that head has our id alone.
func TestProxiedUpgrade(t *testing.T) {
	upstream := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"+idHeader+": upstream\r\n\r\n")
		io.CopyN(conn, rw, 5)
	}))
	target, _ := url.Parse(upstream.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}
	api, token := oneRoute(t, proxy.ServeHTTP, middleware.Options{Hooks: quiet()})
	c := dial(t, start(t, api, hardened))
	c.send("GET /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	if res := c.head("GET"); res.StatusCode != 101 || wantID(t, res) == "" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	c.send("hello")
	if got := c.rest(); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// TestSwitchingProtocols: over HTTP/1.1, 101 is final. Over HTTP/2 it is
// informational, and a final status follows.
func TestSwitchingProtocols(t *testing.T) {
	ours := newLogged()
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		w.WriteHeader(http.StatusTeapot)
	}, middleware.Options{Hooks: ours.hooks()})
	c := dial(t, start(t, api))
	c.send("GET /api/v1/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	if res := c.head("GET"); res.StatusCode != 101 || c.rest() != "" || !strings.Contains(ours.String(), "status=418 sent=101") {
		t.Errorf("got %d and the log %q", res.StatusCode, ours)
	}
	for name, h := range map[string]func(http.Handler) http.Handler{"net/http": middleware.Chain(), "RequestID": stage()} {
		srv := startTLS(t, h(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			w.WriteHeader(http.StatusTeapot)
		})))
		if res := do(t, srv.Client(), get(t, srv, "/", "")); res.StatusCode != http.StatusTeapot {
			t.Errorf("%s: got %d, want %d", name, res.StatusCode, http.StatusTeapot)
		}
	}
}

func superfluous(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusAccepted)
	http.Error(w, "second", http.StatusTeapot)
}

// TestSuperfluousWriteHeader: the first status counts, and the log names the
// function that was wrong, not one of ours or of net/http.
func TestSuperfluousWriteHeader(t *testing.T) {
	overBoth(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		log := newLogged()
		api, token := oneRoute(t, superfluous, middleware.Options{Hooks: log.hooks()})
		srv := serve(api)
		res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
		if res.StatusCode != http.StatusAccepted {
			t.Errorf("got %d, want the first status", res.StatusCode)
		}
		got := log.String()
		if !strings.Contains(got, "caller=github.com/sallyport-go/sallyport/middleware_test.superfluous ") ||
			!strings.Contains(got, "request_id="+wantID(t, res.Response)) || strings.Count(got, "\n") != 1 {
			t.Errorf("got the log %q", got)
		}
	})
}

func TestInvalidStatus(t *testing.T) {
	log := newLogged()
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(42) }, middleware.Options{Hooks: log.hooks()})
	srv := start(t, api)
	res := do(t, srv.Client(), get(t, srv, "/api/v1/x", token))
	if wantID(t, res.Response); res.StatusCode != 500 || !strings.Contains(log.String(), "invalid WriteHeader code 42") {
		t.Errorf("got %d and the log %s", res.StatusCode, log)
	}
}

// TestWriterAfterTheClientLeft: errors of the connection reach the handler.
func TestWriterAfterTheClientLeft(t *testing.T) {
	entered, failed := make(chan struct{}), make(chan error, 1)
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		var err error
		for err == nil {
			_, err = io.WriteString(w, strings.Repeat("x", 1<<16))
		}
		failed <- err
	}, middleware.Options{Hooks: quiet()})
	srv := start(t, api)
	ctx, cancel := context.WithCancel(t.Context())
	r := get(t, srv, "/api/v1/x", token).WithContext(ctx)
	go srv.Client().Do(r)
	<-entered
	cancel()
	select {
	case <-failed:
	case <-time.After(hangs):
		t.Error("the handler was not told that the client has left")
	}
}
