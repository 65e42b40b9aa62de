package middleware_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
