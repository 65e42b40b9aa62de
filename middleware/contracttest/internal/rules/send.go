package rules

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	maxBody     = 4 << 20
	maxRetries  = 200
	maxBusy     = 5 // answers of 503 to one request
	maxRefused  = 3 // requests that are answered 503 to the last
	maxUnusable = 5 // answers of a limiter that do not say how long to wait
)

// request is what is sent. Header lines are "Name: value".
type request struct {
	method, path string
	lines        []string
	body         string
	chunked      bool
	fresh        bool // on a connection of its own
	http2        bool
	shared       bool   // on a connection that all such requests share, of HTTP/2
	wire         string // the guise of a request that net/http does not send
}

// answer is a response that was read to its end, and what it answers.
type answer struct {
	to            request
	proto, status int
	header        http.Header
	body          string
}

func bearer(key string) string { return "Authorization: Bearer " + key }

func (r request) with(lines ...string) request {
	r.lines = append(r.lines[:len(r.lines):len(r.lines)], lines...)
	return r
}

func (r request) at(path string) request {
	r.path = path
	return r
}

func (r request) over2() request {
	r.http2 = true
	return r
}

// anew returns the request on a connection of its own.
func (r request) anew() request {
	r.fresh = true
	return r
}

func (r request) by(method string) request {
	r.method = method
	return r
}

func (r request) header(name string) string {
	for _, line := range r.lines {
		if n, value, _ := strings.Cut(line, ": "); strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

var plainPath = regexp.MustCompile(`^(/[\w.~:@!$&'()*+,=-]+)*/?(\?([^%]|%[0-9A-Fa-f]{2})*)?$`)

// odd reports whether HTTP servers and proxies may answer a request without the
// program, for the way it is written.
func (r request) odd() bool {
	return r.wire == asHTTP10 || r.wire == absoluteTarget || !plainPath.MatchString(r.path) ||
		r.header("Host") != "" || r.header("Upgrade") != "" || slices.Contains([]string{"TRACE", "JEFF", "post"}, r.method)
}

// get asks for a path with a key; "" means none.
func get(path, key string) request {
	r := request{method: "GET", path: path}
	if key != "" {
		r.lines = []string{bearer(key)}
	}
	return r
}

// read asks for the route that reads.
func (s *Session) read(key string) request { return get(s.target.Read, key) }

// preflight is what a browser asks before a request with a key.
func (s *Session) preflight() request { return s.read("").by("OPTIONS").guised(asPreflight) }

// tryPatiently is do for a request that may get no answer.
func (p *probe) tryPatiently(r request) (a answer, err error) {
	a = p.patiently(func() answer {
		var a answer
		if a, err = p.exchange(p.ctx, r); err == nil {
			p.noteOwn(a)
		}
		return a
	})
	return a, err
}

// do sends a request, and again after the wait when it is rate-limited.
func (p *probe) do(r request) answer { return p.patiently(func() answer { return p.once(r) }) }

// patiently repeats what the limiter refuses, after the wait, and a few times
// what a server is too busy for.
func (p *probe) patiently(send func() answer) answer {
	if p.limit.stuck {
		p.unclearf("the server stays rate-limited, whatever it says to wait")
	}
	busy := 0
	for try := range maxRetries {
		p.pause()
		a := send()
		switch {
		case p.denies(a):
		case !tooBusy(a), p.refused.Load() >= maxRefused:
			return a
		case busy == maxBusy:
			p.refused.Add(1)
			return a
		default:
			busy++
		}
		if _, err := retryAfter(a.header); err != nil && !p.limit.found && try > maxUnusable {
			p.unclearf("the server goes on answering %d and does not say how long to wait", a.status)
		}
		p.limited(a)
	}
	p.unclearf("the server went on answering 429 after %d waits", maxRetries)
	panic("not reached")
}

// tooBusy reports whether a response is a 503 that asks to come again soon. The
// contract is silent on it: a server that starts, or has too much to do, says so.
func tooBusy(a answer) bool {
	after, err := retryAfter(a.header)
	return a.status == http.StatusServiceUnavailable && err == nil && after <= 5*time.Second
}

// limited makes everybody wait as long as a 429 asks for, or as it has turned
// out to be enough.
func (p *probe) limited(a answer) {
	d := time.Second
	if after, err := retryAfter(a.header); err == nil {
		d = max(after, d/10)
	}
	if l := p.limit.longer(); l.after > 0 {
		d = min(d, max(p.limit.wait, time.Second))
	}
	if left, ok := p.timeLeft(); ok && d > left {
		p.unclearf("the server asks to wait for %v, and the check has %v left", d.Round(time.Second), left.Round(time.Second))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d + 20*time.Millisecond); until.After(p.pausedUntil) {
		p.pausedUntil = until
	}
}

// pause waits until the last 429 is over.
func (p *probe) pause() {
	p.mu.Lock()
	d := time.Until(p.pausedUntil)
	p.mu.Unlock()
	p.sleep(d)
}

// once sends a request and takes a 429 for its answer.
func (p *probe) once(r request) answer {
	a, err := p.try(p.ctx, r)
	if err != nil {
		p.noAnswer(r, err)
	}
	p.saw(a)
	return a
}

// try sends a request and looks at what every response has to have.
func (s *Session) try(ctx context.Context, r request) (answer, error) {
	a, err := s.exchange(ctx, r)
	for range 5 {
		if !unread(err) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		s.sendsAgain(r)
		a, err = s.exchange(ctx, r)
	}
	if err == nil {
		s.note(a)
	}
	return a, err
}

// unread reports whether the connection ended when the server may not have read
// the request. It may have answered, such as with 429, and the client has lost
// the answer; or its queue of new connections was full, and the system has reset
// one of them. No server is accused of that at once. A client that cannot write
// closes the connection itself, and may read from it after that.
func unread(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

func (s *Session) exchange(ctx context.Context, r request) (answer, error) {
	s.sends(r)
	if r.wire != "" {
		c, err := (&probe{Session: s, ctx: ctx}).connect(r, s.patience())
		if err != nil {
			return answer{}, err
		}
		return c.roundTrip(s.text(r), (*conn).next)
	}
	var body io.Reader
	switch {
	case r.chunked:
		body = io.MultiReader(strings.NewReader(r.body)) // of unknown length
	case r.body != "":
		body = strings.NewReader(r.body)
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, s.target.URL+r.path, body)
	if err != nil {
		return answer{}, err
	}
	req.Close = r.fresh && !r.http2
	for _, line := range r.lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header[name] = append(req.Header[name], value)
		if name == "Host" {
			req.Host = value
		}
	}
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", "contractcheck")
	}
	res, err := s.client(r).Do(req)
	if err != nil {
		// The error of a client holds the URL, and a URL may hold a key.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return answer{}, err
	}
	a, err := readAnswer(res)
	a.to = r
	return a, err
}

func readAnswer(res *http.Response) (answer, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if res.Header.Get("Content-Encoding") == "gzip" && len(body) > 0 {
		packed, bad := gzip.NewReader(bytes.NewReader(body))
		if bad == nil {
			body, err = io.ReadAll(io.LimitReader(packed, maxBody))
		} else {
			body = append([]byte("no gzip, but "), body...)
		}
	}
	return answer{proto: res.ProtoMajor, status: res.StatusCode, header: res.Header, body: string(body)}, err
}

func (a answer) ok() bool { return a.class() == 2 }

func (a answer) class() int { return a.status / 100 }

// short returns the answer with no more than a report shows.
func (a answer) short() answer {
	header := make(http.Header)
	for _, name := range shown {
		if values := a.header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	a.header = header
	a.body = strings.Clone(a.body[:min(len(a.body), 1000)])
	return a
}

func (a answer) location() string { return a.header.Get("Location") }

func (a answer) mediaType() string {
	text, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(text))
}

// difference says in what two responses differ for a client; "" means that
// they are the same.
func (a answer) difference(b answer) string {
	switch {
	case a.status != b.status:
		return fmt.Sprintf("the status is %d and was %d", a.status, b.status)
	case a.body != b.body:
		return fmt.Sprintf("the body is %.200q and was %.200q", a.body, b.body)
	case a.mediaType() != b.mediaType():
		return fmt.Sprintf("the Content-Type is %q and was %q", a.header.Get("Content-Type"), b.header.Get("Content-Type"))
	case !slices.Equal(a.header.Values("Location"), b.header.Values("Location")):
		return fmt.Sprintf("the Location is %q and was %q", a.header.Values("Location"), b.header.Values("Location"))
	}
	return ""
}

// shown are the headers that a report shows.
var shown = []string{"Location", "Retry-After"}

// String shows enough of a response to recognise it.
func (a answer) String() string {
	text := fmt.Sprintf("%d", a.status)
	for _, name := range shown {
		if values := a.header.Values(name); len(values) > 0 {
			text += fmt.Sprintf(", %s %q", name, strings.Join(values, ", "))
		}
	}
	return text + fmt.Sprintf(", body %.200q", a.body)
}

// shortened leaves out the middle of what is too long for a report.
func shortened(text string) string {
	const most = 240
	if len(text) <= most {
		return text
	}
	left := len(text) - most
	return fmt.Sprintf("%s[%d bytes left out]%s", text[:most-20], left, text[len(text)-20:])
}

// curl writes the request as a line for a shell. Keys are still in it.
func (s *Session) curl(r request) string {
	if r.method == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString("curl -i")
	if r.http2 {
		b.WriteString(" --http2")
		if s.base.Scheme == "http" {
			b.WriteString("-prior-knowledge")
		}
	}
	switch r.method {
	case "GET":
	case "HEAD":
		b.WriteString(" --head")
	default:
		b.WriteString(" -X " + r.method)
	}
	if strings.Contains(r.path, "/.") || strings.Contains(r.path, "//") {
		b.WriteString(" --path-as-is")
	}
	for _, line := range r.lines {
		// In double quotes, so that a shell puts the keys in.
		b.WriteString(` -H "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`").Replace(shortened(line)) + `"`)
	}
	if r.chunked {
		b.WriteString(` -H "Transfer-Encoding: chunked"`)
	}
	if r.body != "" {
		b.WriteString(" -d '" + strings.ReplaceAll(shortened(r.body), "'", `'\''`) + "'")
	}
	b.WriteString(` "` + s.target.URL + r.path + `"`)
	if r.wire != "" {
		b.WriteString(" # with " + r.wire)
	}
	return b.String()
}
