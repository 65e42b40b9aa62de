package keyed

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// deadlines are those of the client's connection, which are not held back.
type deadlines struct {
	// mu is not held during a write, which a deadline may have to end.
	mu     sync.Mutex
	set    bool // the handler has set the write deadline
	closed bool // the handler has returned
}

// control calls f with the client's connection, unless the handler has
// returned.
func (w *writer) control(f func(*http.ResponseController) error) error {
	w.deadlines.mu.Lock()
	defer w.deadlines.mu.Unlock()
	if w.deadlines.closed {
		return http.ErrHandlerTimeout
	}
	return f(http.NewResponseController(w.q.W))
}

func (w *writer) SetReadDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error { return c.SetReadDeadline(t) })
}

func (w *writer) SetWriteDeadline(t time.Time) error {
	return w.control(func(c *http.ResponseController) error {
		w.deadlines.set = true
		return c.SetWriteDeadline(t)
	})
}

func (w *writer) EnableFullDuplex() error {
	return w.control((*http.ResponseController).EnableFullDuplex)
}

// closeControl ends the handler's use of the connection.
func (w *writer) closeControl() {
	w.deadlines.mu.Lock()
	defer w.deadlines.mu.Unlock()
	w.deadlines.closed = true
}

// moveDeadline sets the write deadline, unless the handler has set its own.
func (w *writer) moveDeadline(t time.Time) {
	w.deadlines.mu.Lock()
	defer w.deadlines.mu.Unlock()
	if !w.deadlines.set {
		// An error says that a foreign writer has no deadlines.
		_ = http.NewResponseController(w.q.W).SetWriteDeadline(t)
	}
}

// sendBody sends p, in pieces: each must be taken before the write deadline.
func (w *writer) sendBody(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, 16<<10) {
		sent, err := w.inTime(func() (int, error) { return w.q.W.Write(piece) })
		if n += sent; err != nil {
			return n, err
		}
	}
	return len(p), nil
}

// inTime writes or flushes, and moves the deadlines.
func (w *writer) inTime(write func() (int, error)) (int, error) {
	w.ctx.pause()
	// A server of HTTP/2 resets a stream at its write deadline, also while nothing
	// is written. So it comes after the deadline of the context.
	timeout := w.q.Stage.Timeout
	w.moveDeadline(time.Now().Add(timeout).Add(timeout / 4)) // the sum of the two may be too large
	n, err := write()
	if errors.Is(err, http.ErrNotSupported) {
		_ = w.ctx.resume(nil) // to flush; it says nothing of the client
		return n, err
	}
	return n, w.ctx.resume(err)
}
