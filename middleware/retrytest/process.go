package retrytest

import (
	"context"
	"database/sql"
	"net/http"
	"runtime/pprof"
	"sync"
	"sync/atomic"
)

// Process stands for one process of the server under test. Its databases and
// its idempotency are made by it, so that it can be cut off at each step.
type Process struct {
	run     *run
	fault   fault // of its run; a second process has none
	handler http.Handler
	keyed   bool        // Idempotency was called
	claimed atomic.Bool // the last claim was given to it
	hangs   bool        // as in its trial, or as seen since
	pools   []*sql.DB

	died     signal // it has crashed
	asks     signal // it has asked for a claim
	told     signal // it knows that its claim is lost
	answered signal // it has answered while the first process was at a step

	doing   atomic.Int32         // steps in progress; one that wraps others counts once
	begun   atomic.Int32         // steps so far, likewise
	inStore atomic.Pointer[step] // the call of the store that is in progress

	// run.mu guards these.
	request           int    // how many it has been sent
	serving, returned bool   // a request is served; its handler has returned
	leave             func() // ends the context of its request, as a client that leaves does
	links             []*link
	savepoints        []string // their names in the request
}

// Conn adds a connection to what has no *sql.DB: another service, of which the
// server under test has a fake, or a database. Each call is a step whose effect
// is that of do. refuse is what the database does when it refuses a statement; a
// service has none. kill ends the connection, and may be nil.
//
// The context of a call is done when its caller gives up.
func (p *Process) Conn(kill func()) (call func(ctx context.Context, statement string, do, refuse func() error) error) {
	l := p.link(kill)
	return func(ctx context.Context, statement string, do, refuse func() error) error {
		return l.take(ctx, statement, func(bool) error { return do() }, refuse)
	}
}

// link is a connection, or the calls of a store.
type link struct {
	p      *Process
	kill   func() // gives up what it holds, and closes it the second time; nil for a service
	claims bool   // it is a store's
	broken atomic.Bool
	joined bool // it is in the transaction of a request
}

func (p *Process) link(kill func()) *link {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	l := &link{p: p, kill: kill}
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
// next step. What is deferred does not run, so the step that it is in is over.
func (p *Process) crash(inStep bool) {
	p.died.give()
	if inStep {
		p.doing.Add(-1)
	}
	pprof.SetGoroutineLabels(context.Background()) // quiet does not wait for it
	select {}
}

// stop ends the process: what it held is given up. A statement in progress ends
// first, which may need what another connection holds.
func (p *Process) stop() {
	p.run.mu.Lock()
	links := p.links
	p.links = nil
	p.run.mu.Unlock()
	for _, pool := range p.pools {
		if pool.Stats().WaitCount > 0 {
			p.run.waited.Store(true)
		}
		if p.died.given() {
			defer func() { go pool.Close() }() // a goroutine that has stopped may hold its lock
		} else {
			pool.Close()
		}
	}
	p.pools = nil
	var severed sync.WaitGroup
	for _, l := range links {
		if l.kill != nil {
			severed.Go(func() {
				l.sever()
				l.kill()
			})
		}
	}
	severed.Wait()
}
