package retrytest

import (
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
	"sync"
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
	shortTimeout = 40 * time.Millisecond // of a handler whose deadline passes
	shortLease   = 90 * time.Millisecond // of a claim that is lost: renewed at each third
	patience     = 5 * time.Second       // for what comes at once
	quietAfter   = time.Second           // for goroutines that a handler leaves behind
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
	wraps            bool // statements of the store's, which are steps themselves
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
	claimed atomic.Bool     // by the last claim
	hung    bool            // as of its run
	died    context.Context // done when the process has crashed
	die     context.CancelFunc
	closers []func()

	doing  atomic.Int32         // steps, with what is in them
	asking atomic.Pointer[step] // the store, by a call that is a step

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
		ro.Lease = shortLease
	}
	p.keyed = true
	o.Runner = idem.NewRunner(&store{o.Runner.Store(), p}, ro)
	return o
}

// Conn adds a connection to what has no *sql.DB: another service, of which the
// server under test has a fake, or a database. Each call is a step whose effect
// is that of do. refuse is what the database does when it refuses a statement; a
// service has none. kill ends the connection, and may be nil.
//
// The context of a call is done when its caller gives up.
func (p *Process) Conn(kill func()) (call func(ctx context.Context, statement string, do, refuse func() error) error) {
	l := p.link(kill, kill)
	return func(ctx context.Context, statement string, do, refuse func() error) error {
		return l.step(ctx, statement, func(bool) error { return do() }, refuse)
	}
}

// literals are what differs between the runs, and no report shows.
var literals = regexp.MustCompile(`'(?:[^']|'')*'|([^\w$?])\d+\b`)

// link is a connection.
type link struct {
	p          *Process
	kill, shut func() // give up what it holds, and close it; nil for a service
	store      bool   // it is one of claims
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
	outer := p.asking.Load()
	if site != "" {
		outer = nil
	}
	if outer == nil {
		p.doing.Add(1)
		defer p.doing.Add(-1)
	}
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
	if outer != nil {
		outer.wraps = true
	} else if l.store {
		p.asking.Store(s)
		defer p.asking.Store(nil)
	}
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
		if ctx.Done() == nil {
			wait(nil, r.longer(3*shortTimeout/2))
		} else {
			wait(ctx.Done(), r.longer(patience))
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

// end ends the process: what it held is given up. A statement in progress ends
// first, which may need what another connection holds.
func (p *Process) end() {
	p.run.mu.Lock()
	links := p.links
	p.links = nil
	p.run.mu.Unlock()
	for _, closer := range p.closers {
		if p.died.Err() != nil {
			defer func() { go closer() }() // one that has stopped may hold a lock
		} else {
			closer()
		}
	}
	var ended sync.WaitGroup
	for _, l := range links {
		if l.kill != nil {
			ended.Go(func() {
				l.cut()
				l.shut()
			})
		}
	}
	ended.Wait()
	p.closers = nil
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

// quiet waits until no step is in progress, and until the goroutines of the
// host's that a request has left behind have ended, or have crashed.
func (p *Process) quiet(id string) bool {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		busy, limit := p.doing.Load() > 0, patience
		if !busy && !p.hung {
			busy, limit = left(id), quietAfter
		}
		if !busy || time.Since(began) > limit {
			return !busy
		}
		time.Sleep(pause)
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
	s.p.claimed.Store(err == nil && r.State == idem.Claimed)
	return r, err
}

func (s *store) Extend(ctx context.Context, key idem.Key, token idem.ClaimToken, lease time.Duration) error {
	if s.p.died.Err() != nil {
		s.p.crash()
	}
	if r := s.p.run; s.p.number == 1 && r.fault == lost && r.over.Err() == nil {
		return nil // not the store's answer: the claim is to lapse
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
	l := &link{p: s.p, store: true}
	pprof.SetGoroutineLabels(context.Background()) // what waits for a process that has crashed has none
	defer pprof.SetGoroutineLabels(ctx)
	return l.step(ctx, what, func(bool) error { return do() }, func() error { return errBroken })
}

func (s *store) Join(ctx context.Context, c idem.Claim, d time.Duration) (idem.Record, idem.Transaction, error) {
	s.p.run.asked(s.p)
	s.p.joins.Store(true)
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(ctx)
	return s.Store.(idem.Joiner).Join(ctx, c, d)
}
