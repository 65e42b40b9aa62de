package rawconn

import (
	"io"
	"sync/atomic"
)

// The states of a connection. Writes are inspected in armed and hijacked only,
// so that a body which looks like a response is never changed.
//
//	armed ──Own──▶ owned ──head──▶ answered ──StateIdle──▶ armed
//	  └────────── head ──────────────▲
//	armed, owned ──StateHijacked──▶ hijacked ──first write──▶ off
const (
	armed    uint32 = iota // no handler has the request
	owned                  // a handler has it; its head is not written yet
	answered               // the head is out: the rest is the body
	hijacked               // nothing was written since the hijack
	off                    // a tunnel, HTTP/2 or TLS: never inspected again
)

// watch decides what happens to the writes of one connection. It needs no lock:
// net/http's goroutine, its hooks and the handler act one after the other. Only
// after a hijack may several goroutines write at once; the one whose
// compare-and-swap succeeds has the first write.
type watch struct {
	o     *Options
	state atomic.Uint32
	id    string // the owner's; changed before state becomes owned or armed
}

func (w *watch) self() *watch { return w }

func (w *watch) own(id string) {
	switch w.state.Load() {
	case armed, owned:
		w.id = id
		w.state.Store(owned)
	}
}

// idle is called when net/http is done with a request and keeps the connection.
func (w *watch) idle() {
	switch w.state.Load() {
	case owned, answered:
		w.id = ""
		w.state.Store(armed)
	case armed:
		// This is the HTTP/2 server, which calls the hook before its first request.
		// Own must do nothing: streams are concurrent.
		w.state.Store(off)
	}
}

// hijack is called before the handler gets the connection.
func (w *watch) hijack() {
	switch w.state.Load() {
	case armed, owned:
		w.state.Store(hijacked)
	default: // the head went out through the ResponseWriter: a tunnel follows
		w.state.Store(off)
	}
}

// write writes p to conn, or what replaces it.
func (w *watch) write(conn io.Writer, p []byte) (int, error) {
	state := w.state.Load()
	if state == answered || state == off {
		return conn.Write(p)
	}
	status := statusOf(p)
	if state != hijacked && status/100 == 1 && status != 101 {
		// net/http writes each interim head by itself. The final one follows.
		return conn.Write(p)
	}
	next := answered
	if state == hijacked || status == 0 {
		next = off
	}

	out := p
	switch {
	case !w.state.CompareAndSwap(state, next), state == owned, status == 0:
		return conn.Write(p)
	case state == armed && isOwnAnswer(status, p):
		out = w.o.replace(status, p)
	default:
		out = w.o.stamp(p, w.id)
	}
	// After an error nobody can tell how much of p is out.
	if _, err := conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// readFrom is the ReadFrom of c, which wraps conn. While the next write may be
// a head to rewrite, it uses the Write of c.
func (w *watch) readFrom(c, conn io.Writer, src io.Reader) (int64, error) {
	if state := w.state.Load(); state == armed || state == hijacked {
		return io.Copy(struct{ io.Writer }{c}, src)
	}
	return conn.(io.ReaderFrom).ReadFrom(src)
}
