package rawconn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// wrap returns c with a watch. A connection that speaks TLS by itself stays as
// it is: net/http serves HTTP/2 only on the very type *tls.Conn.
func wrap(c net.Conn, o *Options) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		return &tcpConn{c, watch{o: o}}
	case interface{ ConnectionState() tls.ConnectionState }:
		return c.(net.Conn)
	case io.ReaderFrom:
		return &readerFromConn{otherConn{c.(net.Conn), watch{o: o}}}
	}
	return &otherConn{c, watch{o: o}}
}

// tcpConn embeds the concrete type to keep all its methods: net/http and
// hijackers look for ReadFrom (sendfile), CloseWrite and SyscallConn.
type tcpConn struct {
	*net.TCPConn
	watch
}

func (c *tcpConn) NetConn() net.Conn                     { return c.TCPConn }
func (c *tcpConn) Write(p []byte) (int, error)           { return c.write(c.TCPConn, p) }
func (c *tcpConn) ReadFrom(src io.Reader) (int64, error) { return c.readFrom(c, c.TCPConn, src) }

// tlsConn is HTTP/1 inside TLS. net/http takes Request.TLS from it.
type tlsConn struct {
	*tls.Conn
	watch
}

func (c *tlsConn) NetConn() net.Conn           { return c.Conn }
func (c *tlsConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }

// otherConn is any other connection, such as a Unix socket.
type otherConn struct {
	net.Conn
	watch
}

func (c *otherConn) NetConn() net.Conn           { return c.Conn }
func (c *otherConn) Write(p []byte) (int, error) { return c.write(c.Conn, p) }

// CloseWrite lets a client read a 431 before net/http closes the connection.
func (c *otherConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// readerFromConn has ReadFrom, such as a *net.TCPConn that another listener has
// wrapped. The others must not have it: net/http would send heads too early.
type readerFromConn struct{ otherConn }

func (c *readerFromConn) ReadFrom(src io.Reader) (int64, error) { return c.readFrom(c, c.Conn, src) }
