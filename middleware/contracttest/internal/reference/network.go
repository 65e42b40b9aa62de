package reference

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network is a network in memory. In a synctest bubble no real time passes on
// it. Unlike net.Pipe it has buffers and connections that close one way.
type Network struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var quiet = log.New(io.Discard, "", 0) // malformed requests are the point

// Serve serves on a new network what configure puts into the server, until
// stop is called. Stop waits for the handlers, as a synctest bubble has to.
func Serve(configure func(*http.Server)) (n *Network, stop func()) {
	n = &Network{accept: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Protocols: new(http.Protocols), ErrorLog: quiet}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	configure(srv)
	var handlers sync.WaitGroup
	handler := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		handler.ServeHTTP(w, r)
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(n)
	}()
	return n, func() {
		_ = srv.Close()
		<-done
		handlers.Wait()
	}
}

// Dial connects to the network.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	up, down := newStream(), newStream()
	client, server := &pipe{in: down, out: up}, &pipe{in: up, out: down}
	select {
	case n.accept <- server:
		return client, nil
	case <-n.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept is net.Listener's.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accept:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (n *Network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr is net.Listener's.
func (n *Network) Addr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "127.0.0.1:80" }

// stream is one direction of a connection.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte
	ended    bool // the writer has closed
	broken   bool // the reader has closed
	deadline time.Time
	timer    *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// pipe is one end of a connection.
type pipe struct{ in, out *stream }

func (c *pipe) Read(p []byte) (int, error) {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (c *pipe) Write(p []byte) (int, error) {
	s := c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.broken {
		return 0, syscall.EPIPE
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

// CloseWrite says that nothing more will come.
func (c *pipe) CloseWrite() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.ended = true
	c.out.changed.Broadcast()
	return nil
}

func (c *pipe) Close() error {
	_ = c.CloseWrite()
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.broken = true
	if c.in.timer != nil {
		c.in.timer.Stop()
	}
	c.in.changed.Broadcast()
	return nil
}

func (c *pipe) SetReadDeadline(t time.Time) error {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
	}
	// None for a deadline that has passed: under the race detector the timers
	// of a synctest bubble crash when they are due at once.
	if d := time.Until(t); !t.IsZero() && d > 0 {
		s.timer = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
	return nil
}

func (c *pipe) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *pipe) SetWriteDeadline(time.Time) error { return nil } // writing never waits
func (c *pipe) LocalAddr() net.Addr              { return address{} }
func (c *pipe) RemoteAddr() net.Addr             { return address{} }
