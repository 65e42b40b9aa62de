package keyed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// Context is the context of a handler that runs under a claim. It does not end
// when the client leaves. It ends with the run, at its deadline, or when the
// claim is lost; in joined mode it carries the transaction. Its values are
// those of the request's context.
//
// A handler may retain it: it holds neither the request's body nor the
// response.
type Context struct {
	parent   context.Context
	deadline time.Time
	attempt  int

	notStarted atomic.Bool

	mu        sync.Mutex
	execution *idem.Execution // nil once the run has ended
	chain     context.Context // nil until it is needed; see whole
	cancel    context.CancelFunc
}

// NotStarted notes that the handler did nothing.
func (c *Context) NotStarted() { c.notStarted.Store(true) }

// Attempt returns how often the operation was begun, this time included.
func (c *Context) Attempt() int { return c.attempt }

func (c *Context) start(parent context.Context, e *idem.Execution, timeout time.Duration) {
	c.parent, c.execution, c.attempt, c.deadline = parent, e, e.Attempt(), time.Now().Add(timeout)
}

// whole returns the chain of contexts behind c. It is built when it is first
// needed: it takes a timer and five allocations, and most handlers never ask
// for Done, Err or a value.
func (c *Context) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.chain != nil:
	case c.execution != nil:
		c.chain, c.cancel = context.WithDeadline(c.execution.Context(context.WithoutCancel(c.parent)), c.deadline)
	default:
		c.chain, c.cancel = context.WithCancel(context.WithoutCancel(c.parent))
		c.cancel()
	}
	return c.chain
}

// end cancels the context.
func (c *Context) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execution = nil
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *Context) Done() <-chan struct{}       { return c.whole().Done() }
func (c *Context) Err() error                  { return c.whole().Err() }
func (c *Context) Value(key any) any           { return c.whole().Value(key) }
