package bare

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/http"
)

// Listen puts an id into what net/http answers by itself. Each such answer is one write of a whole response.
func Listen(srv *http.Server, ln net.Listener) net.Listener {
	srv.DisableGeneralOptionsHandler = true
	return listener{ln}
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c.(*net.TCPConn)}, nil
}

type conn struct{ *net.TCPConn }

func (c conn) Write(p []byte) (int, error) {
	head, rest, whole := bytes.Cut(p, []byte("\r\n"))
	interim := bytes.HasPrefix(p, []byte("HTTP/1.1 1"))
	if !whole || interim || !bytes.HasPrefix(p, []byte("HTTP/1.")) || bytes.Contains(p, []byte("Svc-Request-Id:")) {
		return c.TCPConn.Write(p)
	}
	text := string(head) + "\r\nSvc-Request-Id: " + rand.Text() + "\r\n" + string(rest)
	if _, err := c.TCPConn.Write([]byte(text)); err != nil {
		return 0, err
	}
	return len(p), nil
}
