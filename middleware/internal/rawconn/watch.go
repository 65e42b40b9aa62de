package rawconn

import (
	"io"
	"sync"
	"sync/atomic"
)

// The states of a connection. Only armed and hijacked look at what is written.
//
//	armed ──Own──▶ owned ──final head──▶ answered ──StateIdle──▶ armed
//	  └──────── head written by net/http ───▲
//	armed, owned ──StateHijacked──▶ hijacked ──head, or other bytes──▶ off
const (
	armed    uint32 = iota // no handler has the request: a head is net/http's own
	owned                  // a handler has it, and no final head was written
	answered               // the final head is out: what follows is its body
	hijacked               // the hijacker's first head is awaited
	off                    // not HTTP/1, or not any more: never looked at again
)

// watch decides what happens to the bytes that are written to one connection.
type watch struct {
	o     *Options
	state atomic.Uint32

	// id is what the owner left, empty if there is none. It is written before
	// state becomes owned and cleared before state becomes armed.
	id string

	mu   sync.Mutex
	head *head // non-nil in the middle of a head; guarded by mu
}

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
	case answered, owned:
		w.id = ""
		w.state.Store(armed)
	case armed:
		// Nobody has answered, so this is the HTTP/2 server, which declares
		// the connection idle before its first request. Handlers of many
		// streams are about to call Own at once.
		w.state.Store(off)
	}
}

// hijack is called before the hijacker gets the connection.
func (w *watch) hijack() {
	switch w.state.Load() {
	case armed, owned:
		w.state.Store(hijacked)
	default:
		// net/http has sent the head of the handler already, so that the bytes
		// that come now are a tunnel's, even if they look like a head.
		w.state.Store(off)
	}
}

// write writes p to conn. Behind Own it costs one atomic load a write, and one
// store a response.
func (w *watch) write(conn io.Writer, p []byte) (int, error) {
	switch w.state.Load() {
	case owned:
		if !interim(p) {
			w.state.CompareAndSwap(owned, answered)
		}
	case armed, hijacked:
		return w.inspect(conn, p)
	}
	return conn.Write(p)
}

// interim reports whether net/http's write of p is a 1xx head after which
// another head follows. net/http flushes each of them by itself.
func interim(p []byte) bool {
	return len(p) > 11 && string(p[:7]) == "HTTP/1." && p[9] == '1' && string(p[9:12]) != "101"
}

func (w *watch) inspect(conn io.Writer, p []byte) (int, error) {
	// A hijacker may write from several goroutines.
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.state.Load()
	if state != armed && state != hijacked {
		return conn.Write(p)
	}

	out, rest := w.rewrite(state, p)
	if rest == 0 {
		// Not a head: no copy of it is needed.
		return conn.Write(p)
	}
	if out = append(out, p[rest:]...); len(out) == 0 {
		return len(p), nil
	}
	// After an error nobody can tell which of the caller's bytes are out.
	if _, err := conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// rewrite returns what is to be written instead of the first n bytes of p. The
// rest is to follow as it is.
func (w *watch) rewrite(state uint32, p []byte) (out []byte, n int) {
	if w.head == nil {
		if state == armed {
			if answer, ok := w.o.replace(p); ok {
				w.state.CompareAndSwap(armed, answered)
				return answer, len(p)
			}
		}
		w.head = &head{name: w.o.Header, id: w.id, newID: w.o.NewID}
	}
	out, n = w.head.feed(nil, p)
	switch {
	case w.head.at == headEnded && state == armed:
		w.state.CompareAndSwap(armed, answered)
	case w.head.at == headEnded, w.head.at == notHead:
		w.state.CompareAndSwap(state, off)
	case !w.head.begun():
		// An interim head is complete: a handler may still come to own the
		// final one, or hijack the connection.
	default:
		return out, n
	}
	w.head = nil
	return out, n
}

// readFrom is write for ReadFrom: while a head may come it reads and writes by
// itself, then it leaves the rest, or all, to the connection's own ReadFrom.
func (w *watch) readFrom(conn io.Writer, src io.Reader) (int64, error) {
	var n int64
	for buf := []byte(nil); ; {
		if s := w.state.Load(); s != armed && s != hijacked {
			break
		}
		if buf == nil {
			buf = make([]byte, 4<<10)
		}
		nr, rerr := src.Read(buf)
		nw, werr := w.write(conn, buf[:nr])
		n += int64(nw)
		switch {
		case werr != nil:
			return n, werr
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
	rest, err := conn.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}
