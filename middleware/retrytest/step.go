package retrytest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// fault is what happens to a create at one of its steps.
type fault string

const (
	none        fault = ""
	breakBefore fault = "the connection broke before it took effect"
	breakAfter  fault = "the connection broke after it took effect"
	refused     fault = "the database refused it"
	crashBefore fault = "the process crashed before it took effect"
	crashAfter  fault = "the process crashed after it took effect"
	clientLeft  fault = "the client left"
	expired     fault = "the deadline passed"
	lostClaim   fault = "the claim was lost, and a repeat came to another process"
	concurrent  fault = "a repeat came to another process at the same time"
	cutResponse fault = "the response was cut"

	shortTimeout = 40 * time.Millisecond // of a handler whose deadline passes
	shortLease   = 90 * time.Millisecond // of a claim that is lost: renewed at each third
	patience     = 5 * time.Second       // for what comes at once
	grace        = 10 * shortTimeout     // for a context to end: it may not be the request's
)

var (
	// errBroken does not say that nothing happened, as driver.ErrBadConn does.
	errBroken = fmt.Errorf("retrytest: the connection broke: %w", io.ErrUnexpectedEOF)
	// literals are what differs between the runs, and no report shows.
	literals = regexp.MustCompile(`'(?:[^']|'')*'|([^\w$?])\d+\b`)
	// savepoint is what names one. An ORM makes the names up.
	savepoint = regexp.MustCompile(`(?i)((?:^|; )\s*(?:SAVEPOINT|RELEASE(?:\s+SAVEPOINT)?|` +
		`ROLLBACK(?:\s+(?:WORK|TRANSACTION))?\s+TO(?:\s+SAVEPOINT)?)\s+)("[^"]*"|[^\s;]+)`)
	// reading is a statement that has no effect by itself.
	reading = regexp.MustCompile(`(?i)^\s*(SELECT|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET)\b`)
)

// place is where a step is found again in another run.
type place struct {
	site string // "file:line" of the host's code, or "" if the step is the middleware's
	text string
	nth  int // of the same in its request
	line int // of all of its site in its request
}

// statement is the place, however often the statement is run there.
func (p place) statement() place { p.nth, p.line = 0, 0; return p }

func (p place) String() string {
	return strings.TrimPrefix(fmt.Sprintf("%s: %s", p.site, line(p.text)), ": ")
}

// is reports whether a step of another run is this one: by its text, or by its
// line if the text changes from run to run.
func (p place) is(q place, byLine bool) bool {
	if byLine && p.site != "" {
		p.text, p.nth = q.text, q.nth
	} else {
		p.line = q.line
	}
	return p == q
}

// trial is a fault, at a step or of the response, that a create is run under.
type trial struct {
	fault fault
	at    place
	limit int  // bytes of a response that is cut
	hangs bool // the handler leaves goroutines behind that do not end
	tries int  // how often it was tried before
}

// longer is a time that is longer with each try.
func (t trial) longer(d time.Duration) time.Duration { return d << (2 * t.tries) }

func (t trial) String() string { return fmt.Sprintf("%s: %s", t.at, t.fault) }

// step is what a create does at a database or another service.
type step struct {
	place
	process *Process
	request int
	joined  bool  // in the transaction of the request
	service bool  // it is a call of a service
	late    bool  // the handler had returned
	wraps   bool  // statements of the store's, which are steps themselves
	fault   fault // that it had
	err     error // what it came to
}

// faults are those that are tried at a step.
func (s *step) faults(joins bool) []fault {
	all := []fault{breakBefore, breakAfter, crashBefore, crashAfter, clientLeft}
	if s.site == "" {
		return all // what the middleware does then has tests of its own
	}
	all = append(all, concurrent)
	if !s.service {
		all = append(all, refused)
	}
	if !s.late {
		all = append(all, expired)
	}
	if !joins {
		all = append(all, lostClaim)
	}
	return all
}

// take takes a step, or what the run's fault makes of it. In a process that has
// crashed it stops the goroutine. do is told whether all of its effect must have
// come when it returns.
func (l *link) take(ctx context.Context, text string, do func(complete bool) error, refuse func() error) error {
	p := l.p
	text = strings.Trim(literals.ReplaceAllString(text, "$1?"), "; \n")
	s := &step{place: place{site: caller(refuse == nil), text: text}, process: p, service: refuse == nil}
	within := p.inStore.Load() // the store's call that this is a statement of
	if s.site != "" {
		within = nil
	}
	if within == nil {
		p.doing.Add(1)
		p.begun.Add(1)
		defer p.doing.Add(-1)
	}
	return l.attempt(ctx, s, within, do, refuse)
}

// attempt is the part of take in which the step counts as in progress.
func (l *link) attempt(ctx context.Context, s, within *step, do func(complete bool) error, refuse func() error) error {
	p, r := l.p, l.p.run
	if p.died.given() {
		p.crash(true)
	}
	if !l.note(s, within) {
		return do(false)
	}
	if within == nil && l.claims {
		p.inStore.Store(s)
		defer p.inStore.Store(nil)
	}

	switch s.fault {
	case breakBefore:
		l.sever()
		return errBroken
	case refused:
		return refuse()
	case crashBefore:
		p.crash(true)
	case clientLeft:
		p.leave()
	case expired:
		limit := grace
		if ctx.Done() == nil { // it does not see the deadline
			limit = 3 * shortTimeout / 2
		}
		wait(ctx.Done(), r.longer(limit))
	case concurrent, lostClaim:
		r.meanwhile(ctx)
	}
	err := do(s.fault == breakAfter || s.fault == crashAfter)
	r.mu.Lock()
	s.err = err
	r.mu.Unlock()
	switch {
	case err == driver.ErrSkip, s.fault == none && errors.Is(err, driver.ErrBadConn):
		r.forget(s) // database/sql does it in another way
	case s.fault == breakAfter:
		l.sever()
		return errBroken
	case s.fault == crashAfter:
		p.crash(true)
	}
	return err
}

// note notes a step, and the fault if it is the one that the run has a fault at.
// What is done while no request is served is no step.
func (l *link) note(s, within *step) (noted bool) {
	p, r := l.p, l.p.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if !p.serving {
		return false
	}
	s.request, s.late = p.request, p.returned
	s.text = savepoint.ReplaceAllStringFunc(s.text, p.numbered)
	upper := strings.ToUpper(s.text)
	if strings.HasPrefix(upper, "BEGIN") {
		l.joined = s.site == ""
	}
	s.joined = l.joined
	l.joined = l.joined && !strings.HasSuffix(upper, "COMMIT") && !strings.HasSuffix(upper, "ROLLBACK")
	for _, o := range r.steps {
		if o.site == s.site && o.process == p && o.request == s.request {
			s.line++
			if o.text == s.text {
				s.nth++
			}
		}
	}
	r.steps = append(r.steps, s)
	if within != nil {
		within.wraps = true
	}
	if p.fault != none && s.request == 1 && s.is(r.at, r.tries > 0) && !r.fired {
		s.fault, r.fired = p.fault, true
	}
	return true
}

// numbered gives a savepoint its number in the request in place of its name.
func (p *Process) numbered(naming string) string {
	parts := savepoint.FindStringSubmatch(naming)
	n := slices.Index(p.savepoints, parts[2])
	if n < 0 {
		n = len(p.savepoints)
		p.savepoints = append(p.savepoints, parts[2])
	}
	return fmt.Sprint(parts[1], n+1)
}

// forget undoes note.
func (r *run) forget(s *step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = slices.DeleteFunc(r.steps, func(o *step) bool { return o == s })
	r.fired = r.fired && s.fault == none
}

// wait waits for a channel, and not for longer than d.
func wait(done <-chan struct{}, d time.Duration) {
	select {
	case <-done:
	case <-time.After(d):
	}
}
