package keyed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/idem"
)

// A Claim is what a handler is told of its claim, and says about it. A test of a
// handler may put one into the context by [WithClaim].
type Claim struct {
	Executions int // how often the operation was begun, this time included

	Freed       atomic.Bool // the handler did nothing
	NotRetained atomic.Bool // the response must not be kept
}

type claimKey struct{}

// WithClaim returns a context whose request runs under c, and not in the stage.
func WithClaim(ctx context.Context, c *Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimOf returns the claim of WithClaim, or nil.
func ClaimOf(ctx context.Context) *Claim {
	c, _ := ctx.Value(claimKey{}).(*Claim)
	return c
}

// Context is the context of a handler that runs under a claim. It does not end
// when the client leaves. It ends with the run, at its deadline, or when the
// claim is lost; in joined mode it carries the transaction. Its values are
// those of the request's context. For a response that streams, the deadline
// begins anew at the end of each write, and the client's leaving counts.
//
// A handler may retain it: it holds neither the request's body nor the
// response.
type Context struct {
	Claim
	parent  context.Context
	timeout time.Duration
	room    room // of the response's header, which may live as long

	mu        sync.Mutex
	deadline  time.Time       // zero while the response is committed or written: it waits
	execution *idem.Execution // nil once the run has ended
	chain     context.Context // nil until it is needed; see whole
	cancel    context.CancelFunc
	expiry    *expiry     // beside chain
	timer     *time.Timer // beside chain: it fires no later than the deadline
	unwatch   func() bool // of the client's leaving, once the response streams
	reading   reading
}

// reading says who reads the response, and so what the client's leaving does.
//
//	later ──→ recorded ──client leaves──→ unread
//	  │           │                         │
//	  └───────→ direct ──client leaves──→ (the context ends)
type reading uint8

const (
	later    reading = iota // nothing is sent: the client gets a response, if need be by a repeat
	recorded                // it streams, and repeats get it too
	unread                  // the same, and the client has left: the deadline is final
	direct                  // it streams to this client alone
)

func (c *Context) start(q *Request) {
	c.parent, c.execution, c.Executions, c.timeout = q.R.Context(), q.Execution, q.Attempt, q.Stage.Timeout
	c.deadline = time.Now().Add(c.timeout)
}

// whole returns the chain of contexts behind c, which is built when it is first
// needed: most handlers never ask for Done, Err or a value.
func (c *Context) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	case c.deadline.IsZero():
		c.timer.Reset(c.timeout)
	case left > 0:
		c.timer.Reset(left)
	default:
		close(c.expiry.done)
	}
}

// stream notes that the response streams from now on. The run has asked for the
// chain before.
func (c *Context) stream(as reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.deadline = as, time.Now().Add(c.timeout)
	c.unwatch = context.AfterFunc(c.parent, c.clientLeft)
}

// pause stops the deadline while the response is committed or written: the
// handler does not pay for a slow client.
func (c *Context) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading != unread {
		c.deadline = time.Time{}
	}
}

// resume begins the deadline anew after a write, and returns the error that the
// handler gets for err. If the client has left, the handler of a response that
// is recorded does not see it until its context ends: a repeat gets all of it.
func (c *Context) resume(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading != unread {
		c.deadline = time.Now().Add(c.timeout)
	}
	if err != nil && c.reading == recorded {
		c.reading = unread
	}
	if c.reading == unread && c.chain.Err() == nil {
		return nil
	}
	return err
}

// unrecorded notes that what streams is not kept any more.
func (c *Context) unrecorded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading == unread {
		c.cancel()
	}
	c.reading = direct
}

// clientLeft notes that nobody reads what streams.
func (c *Context) clientLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.reading {
	case recorded:
		c.reading, c.deadline = unread, time.Now().Add(c.timeout)
	case direct:
		c.cancel()
	}
}

var (
	errTimeout    = errors.New("IdempotencyOptions.Timeout has passed")
	errClientLeft = errors.New("the client of a response that is not recorded has left")
)

// ended returns why c has ended, or nil. It builds no chain, because only a
// handler that asks stops for a lost claim; any may stop at the deadline.
func (c *Context) ended() (cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chain != nil {
		cause = context.Cause(c.chain)
	}
	passed := cause == nil && !c.deadline.IsZero() && time.Until(c.deadline) <= 0
	switch {
	case passed || cause == context.DeadlineExceeded:
		return errTimeout
	case cause == context.Canceled:
		return errClientLeft
	}
	return cause
}

// lost reports whether the claim is lost, as far as is known.
func (c *Context) lost() bool { return errors.Is(context.Cause(c.whole()), idem.ErrLost) }

// end cancels the context.
func (c *Context) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.execution = nil
	if c.cancel != nil {
		c.cancel()
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.unwatch != nil {
		c.unwatch()
	}
}

// Deadline returns none for a response that streams, because each write moves
// it.
func (c *Context) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading != later || c.deadline.IsZero() {
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

	done chan struct{}
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
