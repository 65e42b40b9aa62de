package rules

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// conn is a bare connection, for what a well-behaved client does not send.
type conn struct {
	net.Conn
	br   *bufio.Reader
	last request     // what was sent
	stop func() bool // ends the watch on the check's context
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

// dial connects to the target, for the request. The connection ends with the
// check.
func (p *probe) dial(r request) *conn {
	c, err := p.connect(r, p.patience())
	if err != nil {
		p.noAnswer(r, err)
	}
	return c
}

func (p *probe) connect(r request, patience time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	c, err := p.dialer()(ctx, "tcp", address(p.base))
	if err == nil && p.base.Scheme == "https" {
		config := &tls.Config{RootCAs: p.target.RootCAs, ServerName: p.base.Hostname(), NextProtos: []string{"http/1.1"}}
		secure := tls.Client(c, config)
		err, c = secure.HandshakeContext(ctx), secure
	}
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(p.patience())) // fails on a connection that is gone, as reading then does
	return &conn{c, bufio.NewReader(c), r, context.AfterFunc(p.ctx, func() { c.Close() })}, nil
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// send writes. A server that has answered and left is no reason to stop.
func (c *conn) send(text string) { _, _ = io.WriteString(c, text) }

// closeWrite says that nothing more will come.
func (c *conn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// next reads a response. A server may send interim ones first, such as 103.
func (c *conn) next() (answer, error) {
	for {
		a, err := c.any()
		if err != nil || a.class() != 1 || a.status == http.StatusSwitchingProtocols {
			return a, err
		}
	}
}

// any reads a response, which may be an interim one.
func (c *conn) any() (answer, error) {
	res, err := http.ReadResponse(c.br, &http.Request{Method: c.last.method})
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(res)
	a.to = c.last
	return a, err
}

// roundTrip sends a text and reads the response while still sending, because
// a server may answer in the middle.
func (c *conn) roundTrip(text string, read func(*conn) (answer, error)) (answer, error) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		c.send(text)
	}()
	a, err := read(c)
	c.Close()
	<-sent
	return a, err
}

// head is a request up to its body, with the length of the body as given.
func (s *Session) head(r request, length string) string {
	s.sends(r)
	var lines []string
	for _, line := range append([]string{"Host: " + s.base.Host, "User-Agent: contractcheck"}, r.lines...) {
		name, value, _ := strings.Cut(line, ":")
		if r.wire == lowerNames {
			line = strings.ToLower(name) + ":" + value
		}
		lines = append(lines, line)
	}
	if length != "" {
		lines = append(lines, length)
	}
	target, version := s.base.EscapedPath()+r.path, "HTTP/1.1"
	if r.wire == absoluteTarget {
		target = s.base.Scheme + "://" + s.base.Host + target
	}
	if r.wire == asHTTP10 {
		version = r.wire
	}
	return r.method + " " + target + " " + version + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// text is a whole request.
func (s *Session) text(r request) string {
	if r.body == "" && r.method != "POST" {
		return s.head(r, "")
	}
	return s.head(r, contentLength(len(r.body))) + r.body
}

func contentLength(n int) string { return "Content-Length: " + strconv.Itoa(n) }

// sequence sends requests one after the other on one connection, and all of
// them again when one was rate-limited.
func (p *probe) sequence(requests ...request) []answer {
	var answers []answer
	var err error
	for range 3 {
		p.patiently(func() answer {
			answers, err = p.onOneConnection(requests)
			if i := slices.IndexFunc(answers, tooBusy); i >= 0 {
				return answers[i]
			}
			return append([]answer{{}}, answers...)[len(answers)] // the last one, if there is one
		})
		if len(answers) == len(requests) {
			return answers
		}
	}
	if len(answers) == 0 {
		p.noAnswer(requests[0], err)
	}
	p.vacuousf("the server closes its connections after a response")
	panic("not reached")
}

// onOneConnection sends requests until one is rate-limited or not answered.
func (p *probe) onOneConnection(requests []request) (answers []answer, err error) {
	c := p.dial(requests[0])
	defer c.Close()
	for _, r := range requests {
		c.last = r
		c.send(p.text(r))
		a, err := c.next()
		if err != nil {
			return answers, err
		}
		p.note(a)
		answers = append(answers, a)
		if p.denies(a) {
			return answers, nil
		}
	}
	return answers, nil
}
