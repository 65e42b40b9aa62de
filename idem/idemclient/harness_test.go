package idemclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport-go/sallyport/idem/idemclient"
)

// onBoth runs a test in a bubble for each protocol.
func onBoth(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, protocol) }) })
	}
}

// network is connections in memory, since a bubble waits for no other.
type network struct {
	*http.Transport
	conns  chan net.Conn
	closed chan struct{}

	mu    sync.Mutex
	open  int
	dials int
	down  int // dials that fail from now on
}

// serve serves h until the test ends, and returns a Base that reaches it under
// any name.
func serve(t *testing.T, protocol string, h http.Handler) *network {
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	n := &network{conns: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(n)
	}()
	n.Transport = &http.Transport{DialContext: n.dial, Protocols: new(http.Protocols), MaxIdleConnsPerHost: 100}
	n.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	n.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	t.Cleanup(func() {
		synctest.Wait()
		n.CloseIdleConnections()
		synctest.Wait()
		if n.mu.Lock(); n.open > 0 {
			t.Errorf("%d connections were not given back", n.open)
		}
		n.mu.Unlock()
		_ = srv.Close()
		<-served
	})
	return n
}

var errDown = errors.New("the network is down")

func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	if n.down > 0 {
		n.down--
		return nil, errDown
	}
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		n.open++
		return &conn{here, n, sync.Once{}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error { close(n.closed); return nil }

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

type conn struct {
	net.Conn
	n    *network
	once sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.n.mu.Lock()
		c.n.open--
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}

// script answers the tries of one operation one after the other. The last
// answer is that of all further tries.
type script struct {
	answers []http.HandlerFunc

	mu   sync.Mutex
	seen []try
}

type try struct {
	method, target, key, body string
	at                        time.Time
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	key := strings.Join(r.Header["Idempotency-Key"], "|")
	s.seen = append(s.seen, try{r.Method, r.URL.Path, key, string(body), time.Now()})
	answer := s.answers[min(len(s.seen), len(s.answers))-1]
	s.mu.Unlock()
	answer(w, r)
}

func (s *script) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// status answers with a status and header fields.
func status(code int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(code)
		if code != 204 {
			fmt.Fprint(w, "answer ", code)
		}
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// half breaks off in a body whose length was declared.
func half(w http.ResponseWriter, r *http.Request) { declared(12)(w, r) }

func declared(length int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(length))
		w.WriteHeader(201)
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// stream breaks off in a body whose length was not.
func stream(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(201)
	io.WriteString(w, "half")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// post is a POST that has GetBody.
func post(t *testing.T, ctx context.Context, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", "http://api.example/tasks", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read sends a request and reads the answer. A status that is not there is 0.
func read(rt http.RoundTripper, r *http.Request) (int, string, error) {
	res, err := (&http.Client{Transport: rt}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// kind says what became of a request.
func kind(status int, err error) string {
	if unknown, ok := errors.AsType[*idemclient.UnknownError](err); ok {
		text := err.Error()
		if !strings.Contains(text, "do not repeat this under another key") || !strings.Contains(text, unknown.Key) {
			return "an UnknownError without its advice: " + err.Error()
		}
		return "unknown"
	}
	if err != nil {
		return "error"
	}
	return fmt.Sprint(status)
}
