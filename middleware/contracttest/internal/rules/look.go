package rules

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
)

// look makes sure that the target is what it is said to be, so that no rule is
// broken by a mistake in the description. Its error is one sentence.
func (s *Session) look(ctx context.Context) error {
	p := &probe{Session: s, ctx: ctx}
	mistake := ended(func() {
		p.reach()
		p.lookAtKeys()
		s.speaksHTTP2(ctx)
		if !slices.Contains(s.target.Without, "rate-limit") {
			p.findLimit()
			if s.limit.found || len(s.limit.odd) > 0 {
				s.have = append(s.have, "rate-limit")
			}
		}
		for route := range s.target.Creates {
			if s.limit.stuck {
				break // the rules will say so
			}
			p.lookAtCreate(route)
		}
	})
	if mistake == nil {
		return nil
	}
	return errors.New(s.redact.text(mistake.detail))
}

func (p *probe) mistake(format string, args ...any) { p.end(Broken, format, args) }

// reach sends the first requests.
func (p *probe) reach() {
	r := p.read(p.full())
	for range 3 {
		start := time.Now()
		a, err := p.try(p.ctx, r)
		secure := p.base.Scheme == "http" && (err != nil || a.status == http.StatusBadRequest) && p.speaksTLS(p.ctx)
		switch {
		case secure:
			p.mistake("%s speaks TLS: its URL begins with https://", p.target.URL)
		case err != nil:
			p.unreachable(err)
		case a.class() == 3:
			to, _, _ := strings.Cut(a.location(), "?")
			p.mistake("GET %s is redirected (%d) to %s: give the URL of the server itself", p.readURL(), a.status, to)
		}
		if d := time.Since(start); p.latency == 0 || d < p.latency {
			p.latency = d
		}
	}
}

func (s *Session) readURL() string { return s.target.URL + s.target.Read }

// unreachable says why a request got no response.
func (p *probe) unreachable(err error) {
	host := p.base.Host
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		p.mistake("nothing listens on %s: is the server running?", host)
	case errors.As(err, &unknown):
		p.mistake("the certificate of %s is from an unknown authority: name it with -cacert or Target.RootCAs", host)
	case errors.As(err, &name), errors.As(err, &invalid):
		p.mistake("the certificate of %s is not valid: %v", host, err)
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		p.mistake("%s does not speak TLS: its URL begins with http://", host)
	case errors.As(err, &dns):
		p.mistake("the name %s is not known: is the URL right?", p.base.Hostname())
	case errors.As(err, &timeout) && timeout.Timeout():
		p.mistake("%s did not answer within %v", host, p.patience())
	}
	p.mistake("%s cannot be reached or does not speak HTTP: %v", host, err)
}

// speaksTLS tries a handshake and does not look at the certificate.
func (s *Session) speaksTLS(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := s.dialer()(ctx, "tcp", address(s.base))
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	var seen bool
	config := &tls.Config{
		InsecureSkipVerify: true, // nothing is sent
		VerifyConnection:   func(tls.ConnectionState) error { seen = true; return nil },
	}
	_ = tls.Client(c, config).HandshakeContext(ctx)
	return seen
}

func (s *Session) speaksHTTP2(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second+3*s.latency)
	defer cancel()
	// A server that does not speak it answers with a refusal of its own, which
	// is no response to a request.
	a, err := s.exchange(ctx, s.read(s.full()).over2())
	s.http2 = err == nil && a.proto == 2
	if s.http2 {
		s.note(a)
	}
}

// lookAtKeys makes sure that the keys are live that should be.
func (p *probe) lookAtKeys() {
	url := p.readURL()
	a := p.do(p.read(p.full()))
	p.sample = a
	taken, refused, got := false, "", answer{}
	for _, name := range []string{"other", "sandbox", "second"} {
		if !p.has(name) {
			continue
		}
		if like := p.do(p.read(p.key(name))); like.ok() {
			taken = true
		} else if refused == "" {
			refused, got = fmt.Sprintf("%s (%d)", name, like.status), like
		}
	}
	switch {
	case a.status == 401 && !taken:
		p.mistake("GET %s refuses every key (401): are these keys of this server?", url)
	case a.status == 401:
		p.mistake("GET %s refuses the key full (401) and takes others: is it swapped or revoked?", url)
	case a.status == 403:
		p.mistake("GET %s refuses the key full (403): is it swapped with one that lacks scopes?", url)
	case a.status == 404:
		p.mistake("GET %s is 404: is the URL, the base path or the path to read right?", url)
	case !a.ok():
		p.mistake("GET %s with the key full is answered %v, want a 2xx", url, a)
	case refused != "":
		p.mistake("GET %s refuses the key %s, which may do what full may: either it is swapped or revoked, "+
			"or the server refuses a key that it has to accept; the response is %v", url, refused, got)
	}
	if p.has("reader") {
		path := p.target.Read
		if len(p.target.Creates) > 0 {
			path = cmp.Or(p.target.Creates[0].List, path)
		}
		if a := p.do(get(path, p.key("reader"))); a.status == 401 || a.status == 403 {
			p.mistake("GET %s refuses the key reader (%d), which may read: is it swapped?", p.target.URL+path, a.status)
		}
	}
}

// lookAtCreate creates twice and finds out what the response and the list show
// of it.
func (p *probe) lookAtCreate(route int) {
	to := p.target.Creates[route]
	var made []creation
	var answers []answer
	lists := []string{p.lookAtList(to)}
	slowest, took := p.creates, time.Minute
	p.creates = 5 * time.Second // for some patience, until it is known
	for range 2 {
		c, start := p.create(route, p.full()), time.Time{}
		a := p.patiently(func() answer { start = time.Now(); return p.once(c.request) })
		took = min(took, time.Since(start))
		answers = append(answers, p.lookAtFirst(c, a, len(made) == 0))
		made, lists = append(made, c), append(lists, p.lookAtList(to))
	}
	p.creates = max(slowest, took)
	alike := func(text func(a answer) string) bool {
		return made[0].blank(text(answers[0])) == made[1].blank(text(answers[1]))
	}
	p.echoes = p.echoes || alike(func(a answer) string { return a.body }) && alike(answer.location)
	if answers[0].body == answers[1].body && answers[0].location() == answers[1].location() {
		p.silent = true
		if to.List == "" {
			p.mistake("POST %s answers two creates alike, %v: without a list nobody can tell whether one or two were made",
				p.target.URL+to.Path, answers[1])
		}
	}
	p.effects.routes = append(p.effects.routes, p.lookAtLists(to, lists, made))
	p.effects.looked = len(p.effects.ledger)
}

// lookAtFirst makes sure that a create is a success.
func (p *probe) lookAtFirst(c creation, a answer, first bool) answer {
	where := "POST " + p.target.URL + c.path
	switch {
	case a.ok():
	case first && a.status == 403:
		p.mistake("%s refuses the key full (403): it has to have the scopes of this route", where)
	case first:
		p.mistake("%s with the key full and the body %s is answered %v, want a 2xx: are path, body and type right?",
			where, c.body, a)
	case c.marker == "":
		p.mistake("%s took the body once and then answered %v: write {{random}} for what must be unique", where, a)
	default:
		p.mistake("%s took the first body and answered the second one %v: write {{random}} for all that must be unique",
			where, a)
	}
	return a
}

// lookAtList returns the list of a route, "" when it has none.
func (p *probe) lookAtList(to Create) string {
	if to.List == "" {
		return ""
	}
	a := p.do(get(to.List, p.full()))
	if !a.ok() {
		p.mistake("GET %s with the key full is answered %v: is the path of the list right?", p.target.URL+to.List, a)
	}
	return a.body
}

// lookAtLists finds out how the list shows what was made: by its marker, or by
// a number that rises. The list may be behind, so it looks again.
func (p *probe) lookAtLists(to Create, lists []string, made []creation) routeEffects {
	found := routeEffects{list: to.List}
	if to.List == "" {
		return found
	}
	where := "GET " + p.target.URL + to.List
	times := func(c creation) int {
		if c.marker == "" {
			return 0
		}
		return strings.Count(lists[2], c.marker[:markerPrefix])
	}
	for try := range 11 {
		if try > 0 {
			p.sleep(200 * time.Millisecond)
			lists[2] = p.lookAtList(to)
		}
		found.perItem = times(made[1])
		if found.perItem > 0 && times(made[0]) > 0 {
			return found
		}
		if name, ok := length(lists); ok && found.perItem == 0 {
			found.measure = name
			p.effects.counted = true
			return found
		}
	}
	create := "POST " + p.target.URL + to.Path
	if found.perItem > 0 {
		p.mistake("%s shows one of two resources that %s created: duplicates need a page with room for several",
			where, create)
	}
	p.mistake("%s does not show what %s creates: it neither holds the {{random}} of the body nor grows by one; "+
		"a paged list needs its newest first, or a larger page", where, create)
	panic("not reached")
}
