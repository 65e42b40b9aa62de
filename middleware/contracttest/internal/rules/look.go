package rules

import (
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
func (s *Session) look(ctx context.Context) (err error) {
	p := &probe{Session: s, ctx: ctx}
	defer func() {
		if v := recover(); v != nil {
			end, ok := v.(verdict)
			if !ok {
				panic(v)
			}
			err = errors.New(end.detail)
		}
	}()
	if err := s.reach(ctx); err != nil {
		return err
	}
	if err := p.lookAtKeys(); err != nil {
		return err
	}
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
		if err := p.lookAtCreate(route); err != nil {
			return err
		}
	}
	return nil
}

// reach sends the first request.
func (s *Session) reach(ctx context.Context) error {
	r := s.read(s.full())
	var times []time.Duration
	for len(times) < 3 {
		start := time.Now()
		a, err := s.try(ctx, r)
		secure := s.base.Scheme == "http" && (err != nil || a.status == http.StatusBadRequest) && s.speaksTLS(ctx)
		switch {
		case secure:
			return fmt.Errorf("%s speaks TLS: its URL begins with https://", s.target.URL)
		case err != nil:
			return s.unreachable(err)
		case a.status >= 300 && a.status < 400:
			return fmt.Errorf("GET %s is redirected (%d) to %s: give the URL of the server itself", s.target.URL+s.target.Read, a.status, withoutQuery(a.location()))
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	s.latency = times[0]
	return nil
}

func withoutQuery(location string) string {
	location, _, _ = strings.Cut(location, "?")
	return location
}

func (s *Session) unreachable(err error) error {
	host := s.base.Host
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: is the server running?", host)
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is from an unknown authority: name it with -cacert or Target.RootCAs", host)
	case errors.As(err, &name), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not valid: %w", host, err)
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Errorf("%s does not speak TLS: its URL begins with http://", host)
	case errors.As(err, &dns):
		return fmt.Errorf("the name %s is not known: is the URL right?", s.base.Hostname())
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s did not answer within %v", host, s.patience())
	}
	return fmt.Errorf("%s cannot be reached or does not speak HTTP: %w", host, err)
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

// speaksHTTP2 finds out whether the server speaks HTTP/2.
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
func (p *probe) lookAtKeys() error {
	status := make(map[string]int)
	a := p.do(p.read(p.full()))
	status["full"] = a.status
	p.sample = a
	for _, name := range []string{"other", "sandbox", "second"} {
		if p.has(name) {
			status[name] = p.do(p.read(p.key(name))).status
		}
	}
	url := p.target.URL + p.target.Read
	switch {
	case a.status == 401 && !slices.ContainsFunc([]string{"other", "sandbox", "second"}, func(name string) bool { return status[name] >= 200 && status[name] < 300 }):
		return fmt.Errorf("GET %s refuses every key (401): are these keys of this server?", url)
	case a.status == 401:
		return fmt.Errorf("GET %s refuses the key full (401) and takes others: is it swapped or revoked?", url)
	case a.status == 403:
		return fmt.Errorf("GET %s refuses the key full (403): is it swapped with one that lacks scopes?", url)
	case a.status == 404:
		return fmt.Errorf("GET %s is 404: is the URL, the base path or the path to read right?", url)
	case !a.ok():
		return fmt.Errorf("GET %s with the key full is answered %v, want a 2xx", url, a)
	}
	for _, name := range []string{"other", "sandbox", "second"} {
		if p.has(name) && (status[name] < 200 || status[name] >= 300) {
			return fmt.Errorf("GET %s refuses the key %s (%d), which may do what full may: is it swapped or revoked?", url, name, status[name])
		}
	}
	if p.has("reader") {
		path := p.target.Read
		if len(p.target.Creates) > 0 && p.target.Creates[0].List != "" {
			path = p.target.Creates[0].List
		}
		if a := p.do(get(path, p.key("reader"))); a.status == 401 || a.status == 403 {
			return fmt.Errorf("GET %s refuses the key reader (%d), which may read: is it swapped?", p.target.URL+path, a.status)
		}
	}
	return nil
}

// lookAtCreate creates twice and finds out how the list shows it.
func (p *probe) lookAtCreate(route int) error {
	to := p.target.Creates[route]
	where := "POST " + p.target.URL + to.Path
	effect := routeEffects{list: to.List}
	var lists []string
	list := func() error {
		if to.List == "" {
			return nil
		}
		a := p.do(get(to.List, p.full()))
		if !a.ok() {
			return fmt.Errorf("GET %s with the key full is answered %v: is the path of the list right?", p.target.URL+to.List, a)
		}
		lists = append(lists, a.body)
		return nil
	}
	if err := list(); err != nil {
		return err
	}
	var made []creation
	var answers []answer
	for range 2 {
		c := p.create(route, p.full())
		a := p.do(c.request)
		switch {
		case !a.ok() && len(made) == 0 && a.status == 403:
			return fmt.Errorf("%s refuses the key full (403): it has to have the scopes of this route", where)
		case !a.ok() && len(made) == 0:
			return fmt.Errorf("%s with the key full and the body %s is answered %v, want a 2xx: are path, body and type right?", where, c.body, a)
		case !a.ok() && c.marker == "":
			return fmt.Errorf("%s took the body once and then answered %v: write {{random}} for what must be unique", where, a)
		case !a.ok():
			return fmt.Errorf("%s took the first body and answered the second one %v: write {{random}} for all that must be unique", where, a)
		}
		made, answers = append(made, c), append(answers, a)
		if err := list(); err != nil {
			return err
		}
	}
	alike := func(text func(a answer) string) bool {
		return made[0].blank(text(answers[0])) == made[1].blank(text(answers[1]))
	}
	p.echoes = p.echoes || alike(func(a answer) string { return a.body }) && alike(answer.location)
	if answers[0].body == answers[1].body && answers[0].location() == answers[1].location() {
		p.silent = true
		if to.List == "" {
			return fmt.Errorf("%s answers two creates alike, %v: without a list nobody can tell whether one or two were made", where, answers[1])
		}
	}
	if to.List == "" {
		p.effects.routes = append(p.effects.routes, effect)
		return nil
	}
	last := lists[len(lists)-1]
	if m := made[1].marker; m != "" {
		effect.perItem = strings.Count(last, m[:markerPrefix])
	}
	both := func(list string) bool {
		return strings.Contains(list, made[0].marker[:markerPrefix])
	}
	if effect.perItem > 0 && !both(last) {
		p.sleep(time.Second) // the first one may be behind
		if !both(p.do(get(to.List, p.full())).body) {
			return fmt.Errorf("GET %s shows one of two resources that %s created: duplicates need a page with room for several", p.target.URL+to.List, where)
		}
	}
	if effect.perItem == 0 {
		// The list may be behind; look again.
		for range 10 {
			name, ok := length(lists)
			if ok {
				effect.measure = name
				p.effects.counted = true
				break
			}
			p.sleep(200 * time.Millisecond)
			a := p.do(get(to.List, p.full()))
			if m := made[1].marker; m != "" && strings.Contains(a.body, m[:markerPrefix]) {
				effect.perItem = strings.Count(a.body, m[:markerPrefix])
				break
			}
			lists[len(lists)-1] = a.body
		}
		if effect.measure == "" && effect.perItem == 0 {
			return fmt.Errorf("GET %s does not show what %s creates: it neither holds the {{random}} of the body nor grows by one; a paged list needs its newest first, or a larger page", p.target.URL+to.List, where)
		}
	}
	p.effects.routes = append(p.effects.routes, effect)
	p.effects.looked = len(p.effects.ledger)
	return nil
}
