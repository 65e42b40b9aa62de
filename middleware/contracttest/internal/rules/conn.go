package rules

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// conn is a bare connection, for what a well-behaved client does not send.
type conn struct {
	net.Conn
	p  *probe
	br *bufio.Reader
}

// dial connects to the target. The connection ends with the check.
func (p *probe) dial() *conn {
	address := p.base.Host
	if p.base.Port() == "" {
		address = net.JoinHostPort(p.base.Hostname(), p.base.Scheme) // "http" and "https" are ports by name
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil && p.base.Scheme == "https" {
		secure := tls.Client(c, &tls.Config{RootCAs: p.target.RootCAs, ServerName: p.base.Hostname(), NextProtos: []string{"http/1.1"}})
		err, c = secure.HandshakeContext(ctx), secure
	}
	if err != nil {
		p.noAnswer("connecting", err)
	}
	context.AfterFunc(p.ctx, func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience)) // fails on a connection that is gone, as reading then does
	return &conn{c, p, bufio.NewReader(c)}
}

// send writes. A server that has answered and left is no reason to stop.
func (c *conn) send(text string) { _, _ = io.WriteString(c, text) }

// next reads a response, which may be an interim one.
func (c *conn) next(method string) (answer, error) {
	res, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(res)
	if err == nil {
		c.p.note(a)
	}
	return a, err
}

// roundTrip sends a request and reads the response while still sending, because a server may answer in the middle.
func (c *conn) roundTrip(method, text string) (answer, error) {
	defer c.Close()
	go c.send(text)
	return c.next(method)
}

// closeWrite says that nothing more will come.
func (c *conn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// post is the head of a create, with the lines given.
func (p *probe) post(lines ...string) string {
	r := p.create(lines...)
	return "POST " + p.base.Path + r.path + " HTTP/1.1\r\nHost: " + p.base.Host + "\r\n" + strings.Join(r.lines, "\r\n") + "\r\n\r\n"
}
