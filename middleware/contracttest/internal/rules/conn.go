package rules

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// conn is a bare connection, for what a well-behaved client does not send.
type conn struct {
	net.Conn
	p    *probe
	br   *bufio.Reader
	last request
}

// dialer returns what connects to the target.
func (s *Session) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if s.target.Dial != nil {
		return s.target.Dial
	}
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext
}

func address(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), u.Scheme) // "http" and "https" are ports by name
	}
	return u.Host
}

// dial connects to the target. The connection ends with the check.
func (p *probe) dial() *conn {
	c, err := p.connect(p.patience())
	if err != nil {
		p.noAnswer(request{}, err)
	}
	return c
}

func (p *probe) connect(patience time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	c, err := p.dialer()(ctx, "tcp", address(p.base))
	if err == nil && p.base.Scheme == "https" {
		secure := tls.Client(c, &tls.Config{RootCAs: p.target.RootCAs, ServerName: p.base.Hostname(), NextProtos: []string{"http/1.1"}})
		err, c = secure.HandshakeContext(ctx), secure
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(p.ctx, func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(p.patience())) // fails on a connection that is gone, as reading then does
	return &conn{Conn: stopping{c, stop}, p: p, br: bufio.NewReader(c)}, nil
}

// stopping is a connection that need not be closed by its check any more.
type stopping struct {
	net.Conn
	stop func() bool
}

func (c stopping) Close() error {
	c.stop()
	return c.Conn.Close()
}

// send writes. A server that has answered and left is no reason to stop.
func (c *conn) send(text string) { _, _ = io.WriteString(c, text) }

// next reads a response. A server may send interim ones first, such as 103.
func (c *conn) next(method string) (answer, error) {
	for {
		a, err := c.any(method)
		if err != nil || a.status >= 200 || a.status == http.StatusSwitchingProtocols {
			return a, err
		}
	}
}

// any reads a response, which may be an interim one.
func (c *conn) any(method string) (answer, error) {
	res, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(res)
	a.to = c.last
	return a, err
}

// roundTrip sends a text and reads the response while still sending, because
// a server may answer in the middle.
func (c *conn) roundTrip(method, text string) (answer, error) {
	defer c.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.send(text)
	}()
	a, err := c.any(method)
	c.Close()
	<-sent
	return a, err
}

// closeWrite says that nothing more will come.
func (c *conn) closeWrite() {
	inner := c.Conn
	if s, ok := inner.(stopping); ok {
		inner = s.Conn
	}
	if half, ok := inner.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// head is a request up to its body, with the length of the body as given.
func (p *probe) head(r request, length string) string {
	lines := append([]string{"Host: " + p.base.Host, "User-Agent: contractcheck"}, r.lines...)
	if length != "" {
		lines = append(lines, length)
	}
	return r.method + " " + p.base.EscapedPath() + r.path + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// text is a whole request.
func (p *probe) text(r request) string {
	if r.body == "" && r.method != "POST" {
		return p.head(r, "")
	}
	return p.head(r, contentLength(len(r.body))) + r.body
}

func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) }
