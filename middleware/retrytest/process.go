package retrytest

import (
	"context"
	"net/http"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware"
)

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

	doing   atomic.Int32         // steps, with what is in them
	inStore atomic.Pointer[step] // the store, by a call that is a step

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
	} else if p.number == 1 && f == lostClaim {
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
		return l.take(ctx, statement, func(bool) error { return do() }, refuse)
	}
}

// link is a connection.
type link struct {
	p          *Process
	kill, shut func() // give up what it holds, and close it; nil for a service
	claims     bool   // it is one of claims
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

// sever breaks the connection, unless it is one to a service.
func (l *link) sever() {
	if l.kill != nil && !l.broken.Swap(true) {
		l.kill()
	}
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

// stop ends the process: what it held is given up. A statement in progress ends
// first, which may need what another connection holds.
func (p *Process) stop() {
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
				l.sever()
				l.shut()
			})
		}
	}
	ended.Wait()
	p.closers = nil
}
