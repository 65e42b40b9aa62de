package retrytest

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

// fault is what happens to a create at one of its steps.
type fault string

const (
	none        fault = ""
	before      fault = "the connection broke before it took effect"
	after       fault = "the connection broke after it took effect"
	refused     fault = "the database refused it"
	crashBefore fault = "the process crashed before it took effect"
	crashAfter  fault = "the process crashed after it took effect"
	gone        fault = "the client left"
	expired     fault = "the deadline passed"
	lost        fault = "the claim was lost, and a repeat came to another process"
	two         fault = "a repeat came to another process at the same time"
	cut         fault = "the response was cut"
)

const (
	shortTimeout = 100 * time.Millisecond // of a handler whose deadline passes
	shortLease   = 300 * time.Millisecond // of a claim that is lost
	patience     = 5 * time.Second        // for what comes at once
	quietAfter   = time.Second            // for goroutines that a handler leaves behind
)

// errBroken does not say that nothing happened, as driver.ErrBadConn does.
var errBroken = fmt.Errorf("retrytest: the connection broke: %w", io.ErrUnexpectedEOF)

// place is where a step is found again in another run.
type place struct {
	site string // "file:line" of the host's code, or "" if the step is the middleware's
	text string
	nth  int // of the same in its request
}

// step is what a create does at a database or another service.
type step struct {
	place
	process, request int
	joined           bool // in the transaction of the request
	service          bool
	late             bool // the handler had returned
	prevented        bool // by the fault
}

// reading is a statement that has no effect by itself.
var reading = regexp.MustCompile(`(?i)^\s*(SELECT|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET)\b`)

// Process stands for one process of the server under test. Its databases and
// its idempotency are made by it, so that it can be cut off at each step.
type Process struct {
	t       testing.TB
	run     *run
	number  int
	handler http.Handler
	keyed   bool
	joins   atomic.Bool     // the create, not each route of the server
	hung    bool            // as of its run
	died    context.Context // done when the process has crashed
	die     context.CancelFunc
	closers []func()

	doing atomic.Int32 // steps

	// run.mu guards these.
	request           int // how many it has been sent
	serving, returned bool
	links             []*link
}

// Idempotency returns the options with a Runner that the process owns, on the
// same store. All options with which the server makes routes idempotent go
// through it.
func (p *Process) Idempotency(o middleware.IdempotencyOptions) middleware.IdempotencyOptions {
	if o.Runner == nil {
		o.Runner = idem.NewRunner(&idem.Memory{}, idem.Options{})
	}
	ro := o.Runner.Options()
	if f := p.run.fault; p.number == 1 && f == expired {
		o.Timeout = p.run.longer(shortTimeout)
	} else if p.number == 1 && f == lost {
		ro.Lease = p.run.longer(shortLease)
	}
	p.keyed = true
	o.Runner = idem.NewRunner(&store{o.Runner.Store(), p}, ro)
	return o
}

// Conn adds a connection to what has no *sql.DB: another service, of which the
// server under test has a fake, or a database. Each call is a step whose effect
// is that of do. refuse is what the database does when it refuses a statement; a
// service has none. kill ends the connection, and may be nil.
func (p *Process) Conn(kill func()) (call func(statement string, do, refuse func() error) error) {
	l := p.link(kill, kill)
	return func(statement string, do, refuse func() error) error {
		return l.step(context.Background(), statement, func(bool) error { return do() }, refuse)
	}
}

// literals are what differs between the runs, and no report shows.
var literals = regexp.MustCompile(`'(?:[^']|'')*'|([^\w$?])\d+\b`)

// link is a connection.
type link struct {
	p          *Process
	kill, shut func() // give up what it holds, and close it; nil for a service
	broken     atomic.Bool
	joined     bool // it has the transaction of a request
}

func (p *Process) link(kill, shut func()) *link {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	l := &link{p: p, kill: kill, shut: shut}
	p.links = append(p.links, l)
	return l
}

// cut breaks the connection, unless it is one to a service.
func (l *link) cut() {
	if l.kill != nil && !l.broken.Swap(true) {
		l.kill()
	}
}

// step does a step, or what the run's fault makes of it. In a process that has
// crashed it stops the goroutine. do is told whether all of its effect must have
// come when it returns.
func (l *link) step(ctx context.Context, text string, do func(whole bool) error, refuse func() error) error {
	p, r, site := l.p, l.p.run, caller(refuse == nil)
	text = strings.Trim(literals.ReplaceAllString(text, "$1?"), "; \n")
	p.doing.Add(1)
	defer p.doing.Add(-1)
	if p.died.Err() != nil {
		p.crashInStep()
	}
	r.mu.Lock()
	if !p.serving {
		r.mu.Unlock()
		return do(false)
	}
	upper := strings.ToUpper(text)
	if strings.HasPrefix(upper, "BEGIN") {
		l.joined = site == ""
	}
	s := &step{place: place{site: site, text: text}, process: p.number, request: p.request,
		joined: l.joined, service: refuse == nil, late: p.returned}
	l.joined = l.joined && !strings.HasSuffix(upper, "COMMIT") && !strings.HasSuffix(upper, "ROLLBACK")
	for _, o := range r.steps {
		if o.site == site && o.text == text && o.process == s.process && o.request == s.request {
			s.nth++
		}
	}
	r.steps = append(r.steps, s)
	f := none
	if p.number == 1 && p.request == 1 && s.place == r.at && !r.fired {
		f, r.fired = r.fault, true
		s.prevented = f == before || f == refused || f == crashBefore
	}
	r.mu.Unlock()

	switch f {
	case before:
		l.cut()
		return errBroken
	case refused:
		return refuse()
	case crashBefore:
		p.crashInStep()
	case gone:
		r.leave()
	case expired:
		if _, ends := ctx.Deadline(); !ends {
			wait(nil, p.run.longer(3*shortTimeout/2)) // pgx learns of the end by itself
		} else {
			wait(ctx.Done(), p.run.longer(patience))
		}
	case two, lost:
		r.meanwhile(ctx)
	}
	err := do(f == after || f == crashAfter)
	switch {
	case err == driver.ErrSkip, f == none && errors.Is(err, driver.ErrBadConn): // database/sql does it in another way
		r.mu.Lock()
		r.steps = slices.DeleteFunc(r.steps, func(o *step) bool { return o == s })
		r.fired = r.fired && f == none
		r.mu.Unlock()
	case f == after:
		l.cut()
		return errBroken
	case f == crashAfter:
		p.crashInStep()
	}
	return err
}

// crash stops the goroutine for ever, and all others of the process at their
// next step. What is deferred does not run.
func (p *Process) crash() {
	p.die()
	pprof.SetGoroutineLabels(context.Background()) // quiet does not wait for it
	select {}
}

func (p *Process) crashInStep() {
	p.die()
	p.doing.Add(-1)
	p.crash()
}

// end ends the process: what it held is given up.
func (p *Process) end() {
	for _, closer := range p.closers {
		if p.died.Err() != nil {
			defer func() { go closer() }() // one that has stopped may hold a lock
		} else {
			closer()
		}
	}
	for _, l := range p.links {
		if l.kill != nil {
			l.cut()
			l.shut()
		}
	}
	p.links, p.closers = nil, nil
}

// wait waits for a channel, and not for longer than d.
func wait(done <-chan struct{}, d time.Duration) {
	select {
	case <-done:
	case <-time.After(d):
	}
}

// label is that of the goroutines of a request, and of those that they start.
const label = "sallyport_retrytest"

// quiet waits until the goroutines of the host's that a request has left behind
// have ended, or have crashed, and until no step is in progress.
func (p *Process) quiet(id string) bool {
	for deadline := time.Now().Add(quietAfter); ; time.Sleep(time.Millisecond) {
		var profile bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
		busy := p.doing.Load() > 0
		for group := range strings.SplitSeq(profile.String(), "\n\n") {
			busy = busy || !p.hung && strings.Contains(group, fmt.Sprintf("%q:%q", label, id)) && hostIn(group)
		}
		if !busy || time.Now().After(deadline) {
			return !busy
		}
	}
}

// store is the store of a process's claims.
type store struct {
	idem.Store
	p *Process
}

// HonorsContext and JoinHonorsContext let the calls be made in the goroutine of
// the request: one that a crash has stopped must not be left behind.
func (s *store) HonorsContext()     {}
func (s *store) JoinHonorsContext() {}

func (s *store) Begin(ctx context.Context, c idem.Claim) (r idem.Record, err error) {
	s.p.run.asked(s.p)
	if f := s.p.run.fault; s.p.number == 1 && (f == crashBefore || f == crashAfter || f == lost) {
		c.Lease = time.Millisecond // it will have lapsed, although this process does not know
	}
	err = s.call(ctx, "claim of the key", func() error { r, err = s.Store.Begin(ctx, c); return err })
	return r, err
}

func (s *store) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if s.p.died.Err() != nil {
		s.p.crash()
	}
	err := s.Store.Extend(ctx, key, token, lease)
	if err == idem.ErrLost {
		s.p.run.tell()
	}
	return err
}

func (s *store) Settle(ctx context.Context, key idem.Key, token idem.ClaimToken, o idem.Settlement) error {
	if o.Outcome == idem.OutcomeFree {
		s.p.run.mu.Lock()
		s.p.run.freed = true
		s.p.run.mu.Unlock()
	}
	return s.call(ctx, "settlement of the key", func() error { return s.Store.Settle(ctx, key, token, o) })
}

func (s *store) call(ctx context.Context, what string, do func() error) error {
	l := &link{p: s.p}
	return l.step(ctx, what, func(bool) error { return do() }, func() error { return errBroken })
}

func (s *store) Join(ctx context.Context, c idem.Claim, d time.Duration) (idem.Record, idem.Transaction, error) {
	s.p.run.asked(s.p)
	s.p.joins.Store(true)
	return s.Store.(idem.Joiner).Join(ctx, c, d)
}
