package keyed

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Context is the context of a handler that runs under a claim. It does not end
// when the client leaves. It ends with the run, at its deadline, or when the
// claim is lost; in joined mode it carries the transaction. Its values are
// those of the request's context.
//
// For a response that streams, the deadline begins anew at the end of each
// write, and the client's leaving counts: it ends the context of a response that
// is not recorded, and lets one that is recorded go on for one more timeout.
//
// A handler may retain it: it holds neither the request's body nor the
// response.
type Context struct {
	Claim
	parent  context.Context
	timeout time.Duration

	mu        sync.Mutex
	deadline  time.Time
	execution *idem.Execution // nil once the run has ended
	chain     context.Context // nil until it is needed; see whole
	cancel    context.CancelFunc
	expiry    *expiry     // beside chain
	timer     *time.Timer // beside chain: it fires no later than the deadline

	streams  bool        // the response streams
	recorded bool        // what streams is kept for repeats
	busy     bool        // the response is committed or written: the deadline waits
	left     bool        // the client has left, as far as it is watched
	unwatch  func() bool // set while the client is watched
}

func (c *Context) start(parent context.Context, e *idem.Execution, timeout time.Duration) {
	c.parent, c.execution, c.Executions, c.timeout = parent, e, e.Attempt(), timeout
	c.deadline = time.Now().Add(timeout)
}

// whole returns the chain of contexts behind c. It is built when it is first
// needed: it takes a timer and some allocations, and most handlers never ask
// for Done, Err or a value.
func (c *Context) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.build()
}

// build is whole with c.mu held.
func (c *Context) build() context.Context {
	switch {
	case c.chain != nil:
	case c.execution != nil:
		c.expiry = &expiry{Context: context.WithoutCancel(c.parent), done: make(chan struct{})}
		c.chain, c.cancel = context.WithCancel(c.expiry)
		c.chain = c.execution.Context(c.chain)
		c.timer = time.AfterFunc(time.Until(c.deadline), c.expire)
	default:
		c.chain, c.cancel = context.WithCancel(context.WithoutCancel(c.parent))
		c.cancel()
	}
	return c.chain
}

// expire ends the context, unless its deadline was moved. The timer calls it.
func (c *Context) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch left := time.Until(c.deadline); {
	case c.execution == nil:
	case c.busy && !c.left:
		c.timer.Reset(c.timeout)
	case left > 0:
		c.timer.Reset(left)
	default:
		c.expiry.end()
	}
}

// stream notes that the response streams from now on, and whether it is
// recorded.
func (c *Context) stream(recorded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams, c.recorded, c.busy = true, recorded, false
	c.deadline = time.Now().Add(c.timeout)
	c.unwatch = context.AfterFunc(c.parent, c.clientLeft)
}

// write stops the deadline while the response is committed or written: the
// handler does not pay for a slow client. Then the deadline begins anew.
func (c *Context) write(begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = begins; !c.left {
		c.deadline = time.Now().Add(c.timeout)
	}
}

// unrecorded notes that what streams is not kept any more.
func (c *Context) unrecorded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded = false
	c.endWithoutReader()
}

// clientLeft notes that nobody reads what streams.
func (c *Context) clientLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		c.left, c.deadline = true, time.Now().Add(c.timeout)
	}
	c.endWithoutReader()
}

func (c *Context) endWithoutReader() {
	if c.left && !c.recorded {
		c.build()
		c.cancel()
	}
}

// lost reports whether the claim is lost, as far as is known.
func (c *Context) lost() bool { return errors.Is(context.Cause(c.whole()), idem.ErrLost) }

// end cancels the context.
func (c *Context) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execution = nil
	if c.unwatch != nil {
		c.unwatch()
	}
	if c.cancel != nil {
		c.cancel()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Deadline returns none for a response that streams, because each write moves
// it.
func (c *Context) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams {
		return time.Time{}, false
	}
	return c.deadline, true
}

func (c *Context) Done() <-chan struct{} { return c.whole().Done() }
func (c *Context) Err() error            { return c.whole().Err() }
func (c *Context) Value(key any) any     { return c.whole().Value(key) }

// expiry is the root of a chain of contexts: one that ends with
// context.DeadlineExceeded at a time that can be moved. The mutex of its
// Context guards it.
type expiry struct {
	context.Context // its values

	done  chan struct{}
	after func() // nil, or of the one context that is made of it
}

func (e *expiry) end() {
	close(e.done)
	if e.after != nil {
		e.after()
	}
}

func (e *expiry) Done() <-chan struct{} { return e.done }

func (e *expiry) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// AfterFunc lets package context watch e without a goroutine.
func (e *expiry) AfterFunc(f func()) (stop func() bool) {
	e.after = f
	return func() bool {
		e.after = nil
		return true
	}
}
