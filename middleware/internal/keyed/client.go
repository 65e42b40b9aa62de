package keyed

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// client is the response below a writer, and the deadlines of its connection,
// which are not held back.
type client struct {
	q     *Request
	ctx   *Context
	moved time.Time // when the write deadline was moved for a write

	// mu is not held during a write, which a deadline may have to end.
	mu       sync.Mutex
	deadline bool // the handler has set the write deadline
	closed   bool // the handler has returned
}

// control calls f, unless the handler has returned.
func (c *client) control(f func(*http.ResponseController) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return http.ErrHandlerTimeout
	}
	return f(http.NewResponseController(c.q.W))
}

// setDeadline sets the write deadline, unless the handler has set its own.
func (c *client) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.deadline {
		// An error says that a foreign writer has no deadlines.
		_ = http.NewResponseController(c.q.W).SetWriteDeadline(t)
	}
}

func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// send sends p, in pieces: each must be taken before the write deadline.
func (c *client) send(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, 16<<10) {
		sent, err := c.move(func() (int, error) { return c.q.W.Write(piece) })
		if n += sent; err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (c *client) flush() error {
	_, err := c.move(func() (int, error) { return 0, http.NewResponseController(c.q.W).Flush() })
	return err
}

// move writes or flushes, and moves the deadlines.
func (c *client) move(write func() (int, error)) (int, error) {
	c.ctx.pause()
	if now, timeout := time.Now(), c.q.Stage.Timeout; now.Sub(c.moved) > timeout/8 {
		c.moved = now
		// A server of HTTP/2 resets a stream at its write deadline, also while
		// nothing is written. So it comes after the deadline of the context.
		c.setDeadline(now.Add(timeout + timeout/4))
	}
	n, err := write()
	if errors.Is(err, http.ErrNotSupported) {
		_ = c.ctx.resume(nil) // to flush; it says nothing of the client
		return 0, err
	}
	return n, c.ctx.resume(err)
}
