package middleware

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// handlerContext is the context of a handler under a claim. It does not end when
// the client leaves, but with the execution, at its deadline, or when the claim is
// lost; in joined mode it carries the transaction.
//
// All that takes a chain of contexts and a timer, more than the rest of a short
// create costs, so the chain is made when somebody first asks for more than the
// stages know by themselves.
type handlerContext struct {
	parent   context.Context // whose values it has
	state    *state
	attempt  int
	deadline time.Time

	mu     sync.Mutex
	claim  *idem.Execution // nil once ended: a context that somebody keeps must not keep the response
	chain  context.Context // nil until it is asked for
	cancel context.CancelFunc
}

func (c *handlerContext) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.chain != nil:
	case c.claim != nil:
		c.chain, c.cancel = context.WithDeadline(c.claim.Context(context.WithoutCancel(c.parent)), c.deadline)
	default:
		c.chain, c.cancel = context.WithCancel(context.WithoutCancel(c.parent))
		c.cancel()
	}
	return c.chain
}

// end cancels the context.
func (c *handlerContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claim = nil
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *handlerContext) Done() <-chan struct{}       { return c.whole().Done() }
func (c *handlerContext) Err() error                  { return c.whole().Err() }

func (c *handlerContext) Value(key any) any {
	switch key {
	case stateKey{}:
		return c.state
	case attemptKey{}:
		return c.attempt
	}
	return c.whole().Value(key)
}

// As with state: what is printed of a context must not be the request in it.
func (c *handlerContext) String() string             { return c.state.String() + ".handler" }
func (c *handlerContext) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }
