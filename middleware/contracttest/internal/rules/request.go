package rules

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	patience   = 10 * time.Second // for one response, and the longest wait that a 429 may ask for
	maxBody    = 1 << 20
	maxRetries = 30
)

// request is what is sent. Header lines are "Name: value".
type request struct {
	method, path, body string
	lines              []string
}

// answer is a response that was read to its end.
type answer struct {
	proto, status int
	header        http.Header
	body          string
}

func bearer(key string) string { return "Authorization: Bearer " + key }

// read asks the route that reads.
func (p *probe) read(lines ...string) request {
	return request{method: "GET", path: p.target.Read, lines: lines}
}

// create asks the route that creates.
func (p *probe) create(lines ...string) request {
	lines = append(lines[:len(lines):len(lines)], "Content-Type: "+p.target.CreateType)
	return request{method: "POST", path: p.target.Create, body: p.target.CreateBody, lines: lines}
}

// keyed returns a header line with a new idempotency key.
func keyed() string { return "Idempotency-Key: contract-" + rand.Text() }

// do sends a request, and again after the wait when it is rate-limited.
func (p *probe) do(r request) answer { return p.patiently(func() answer { return p.once(r) }) }

// patiently repeats what is answered with 429, after the wait.
func (p *probe) patiently(send func() answer) answer {
	for range maxRetries {
		a := send()
		if a.status != http.StatusTooManyRequests {
			return a
		}
		p.wait(a)
	}
	p.unclearf("the server went on answering 429 after %d waits", maxRetries)
	panic("not reached")
}

// wait waits as long as the response asks for.
func (p *probe) wait(a answer) {
	d, ok := retryAfter(a.header)
	if !ok {
		d = time.Second
	}
	if d > patience {
		p.unclearf("the server asks to wait for %v, which is longer than the %v that a check may wait", d, patience)
	}
	p.sleep(d + 20*time.Millisecond)
}

// once sends a request and takes a 429 for its answer.
func (p *probe) once(r request) answer { return p.over(p.client, p.target.URL, r) }

func (p *probe) over(client *http.Client, base string, r request) answer {
	a, err := p.exchange(p.ctx, client, base, r)
	if err != nil {
		// A URL may have a key in its query, and the error of a client the URL.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		path, _, _ := strings.Cut(r.path, "?")
		p.noAnswer(r.method+" "+path, err)
	}
	return a
}

func (s *Session) exchange(ctx context.Context, client *http.Client, base string, r request) (answer, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("User-Agent", "contractcheck")
	for _, line := range r.lines {
		name, value, _ := strings.Cut(line, ": ")
		name = textproto.CanonicalMIMEHeaderKey(name)
		req.Header[name] = append(req.Header[name], value)
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	a, err := readAnswer(res)
	if err == nil && req.Header["Idempotency-Key"] == nil {
		s.note(a)
	}
	return a, err
}

func readAnswer(res *http.Response) (answer, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	return answer{res.ProtoMajor, res.StatusCode, res.Header, string(body)}, err
}

// note remembers the request id, to find out whether one comes twice.
func (s *Session) note(a answer) {
	if ids := a.header.Values(s.target.RequestIDHeader); len(ids) == 1 {
		s.seen(ids[0])
	}
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// same reports whether two responses are the same to a client: status, body, and what the body is and where.
func (a answer) same(b answer) bool {
	return a.status == b.status && a.body == b.body && a.header.Get("Content-Type") == b.header.Get("Content-Type") && a.location() == b.location()
}

func (a answer) location() string { return a.header.Get("Location") }

// String shows enough of a response to recognise it.
func (a answer) String() string {
	text := fmt.Sprintf("%d %.200q", a.status, a.body)
	if a.location() != "" {
		text += " at " + a.location()
	}
	return text
}

func (p *probe) want(what string, a answer, status int) answer {
	if a.status != status {
		p.failf("%s: got %v, want %d", what, a, status)
	}
	return a
}

func (p *probe) wantOK(what string, a answer) answer {
	if !a.ok() {
		p.failf("%s: got %v, want a 2xx", what, a)
	}
	return a
}

// oneID fails unless the response carries exactly one request id, and returns it.
func (p *probe) oneID(what string, a answer) string {
	ids := a.header.Values(p.target.RequestIDHeader)
	if len(ids) != 1 || strings.TrimSpace(ids[0]) == "" {
		p.failf("%s: the %d carries %s %q, want one value", what, a.status, p.target.RequestIDHeader, ids)
	}
	return ids[0]
}

var wholeSeconds = regexp.MustCompile(`^[0-9]{1,9}$`)

// retryAfter reads the header in either of the forms of RFC 9110, section 10.2.3.
func retryAfter(h http.Header) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if wholeSeconds.MatchString(value) {
		n, _ := strconv.Atoi(value)
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}
