package rawconn

import (
	"crypto/tls"
	"io"
	"net"
)

// watched is what all connections of this package have in common.
type watched interface {
	net.Conn
	NetConn() net.Conn
	watched() *watch
}

type (
	halfCloser   interface{ CloseWrite() error }
	tlsConnState interface{ ConnectionState() tls.ConnectionState }
)

// tcpConn embeds the concrete type, so that sendfile, splice, CloseWrite and
// SyscallConn stay: net/http and its users find them by interface.
type tcpConn struct {
	*net.TCPConn
	w watch
}

func (c *tcpConn) Write(p []byte) (int, error)           { return c.w.write(c.TCPConn, p) }
func (c *tcpConn) ReadFrom(src io.Reader) (int64, error) { return c.w.readFrom(c.TCPConn, src) }

// NetConn returns the connection that the listener accepted.
func (c *tcpConn) NetConn() net.Conn { return c.TCPConn }

func (c *tcpConn) watched() *watch { return &c.w }

// otherConn is any other connection. It has no optional method by itself.
type otherConn struct {
	net.Conn
	w watch
}

func (c *otherConn) Write(p []byte) (int, error) { return c.w.write(c.Conn, p) }

// NetConn returns the connection that the listener accepted or, under
// [ListenTLS], the *tls.Conn.
func (c *otherConn) NetConn() net.Conn { return c.Conn }

func (c *otherConn) watched() *watch { return &c.w }

// otherReaderFrom is the ReadFrom of an otherConn whose connection has one.
type otherReaderFrom struct{ c *otherConn }

func (r otherReaderFrom) ReadFrom(src io.Reader) (int64, error) {
	return r.c.w.readFrom(r.c.Conn, src)
}

// wrap gives c a watch and exactly those optional methods that net/http looks
// for and c has: one too many would be as wrong as one too few, as net/http
// flushes early for a connection with ReadFrom.
func wrap(c net.Conn, o *Options) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		return &tcpConn{TCPConn: tcp, w: watch{o: o}}
	}
	oc := &otherConn{Conn: c, w: watch{o: o}}
	half, canHalf := c.(halfCloser)
	state, hasState := c.(tlsConnState)
	_, canRead := c.(io.ReaderFrom)
	from := otherReaderFrom{oc}
	switch {
	case canHalf && hasState && canRead:
		return struct {
			*otherConn
			halfCloser
			tlsConnState
			io.ReaderFrom
		}{oc, half, state, from}
	case canHalf && hasState:
		return struct {
			*otherConn
			halfCloser
			tlsConnState
		}{oc, half, state}
	case canHalf && canRead:
		return struct {
			*otherConn
			halfCloser
			io.ReaderFrom
		}{oc, half, from}
	case hasState && canRead:
		return struct {
			*otherConn
			tlsConnState
			io.ReaderFrom
		}{oc, state, from}
	case canHalf:
		return struct {
			*otherConn
			halfCloser
		}{oc, half}
	case hasState:
		return struct {
			*otherConn
			tlsConnState
		}{oc, state}
	case canRead:
		return struct {
			*otherConn
			io.ReaderFrom
		}{oc, from}
	}
	return oc
}
