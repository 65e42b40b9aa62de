package reference

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Network is a network in memory, where no real time passes in a synctest
// bubble. A connection is a net.Pipe each way, so that one way can close.
type Network struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

var quiet = log.New(io.Discard, "", 0) // malformed requests are the point

// Serve serves on a new network what configure puts into the server, until
// stop is called. Stop gives the handlers ten seconds to end, which cost nothing
// in a synctest bubble.
func Serve(configure func(*http.Server)) (n *Network, stop func()) {
	n = &Network{accept: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Protocols: new(http.Protocols), ErrorLog: quiet}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	configure(srv)
	go func() { _ = srv.Serve(n) }()
	return n, func() {
		_ = srv.Close()
		time.Sleep(10 * time.Second)
	}
}

// Dial connects to the network.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	up, fromClient := net.Pipe()
	fromServer, down := net.Pipe()
	select {
	case n.accept <- conn{fromClient, down}:
		return conn{fromServer, up}, nil
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
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// conn is one end of a connection: it reads from the embedded pipe, and writes
// to another.
type conn struct {
	net.Conn
	out net.Conn
}

func (c conn) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = syscall.EPIPE
	}
	return n, err
}

// CloseWrite says that nothing more will come.
func (c conn) CloseWrite() error { return c.out.Close() }

func (c conn) Close() error { return errors.Join(c.out.Close(), c.Conn.Close()) }

func (c conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

func (c conn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.out.SetWriteDeadline(t))
}
