package keyed

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// connection is a writer that knows its deadlines.
type connection struct {
	http.ResponseWriter
	read, write time.Time
}

func (c *connection) SetReadDeadline(t time.Time) error  { c.read = t; return nil }
func (c *connection) SetWriteDeadline(t time.Time) error { c.write = t; return nil }

// TestDeadlines: those of a handler are the connection's, until it returns, and
// the stage does not move the write deadline any more.
func TestDeadlines(t *testing.T) {
	c := &connection{ResponseWriter: httptest.NewRecorder()}
	w := &writer{q: &Request{W: c}}
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	if w.moveDeadline(early); !c.write.Equal(early) {
		t.Errorf("the stage's write deadline is %v", c.write)
	}
	for _, row := range []struct {
		t    time.Time
		err  error
		want time.Time
	}{{late, nil, late}, {early, http.ErrHandlerTimeout, late}} {
		read, write := w.SetReadDeadline(row.t), w.SetWriteDeadline(row.t)
		if read != row.err || write != row.err || !c.read.Equal(row.want) || !c.write.Equal(row.want) {
			t.Errorf("%v, %v: the deadlines are %v and %v", read, write, c.read, c.write)
		}
		w.moveDeadline(early)
		w.closeControl()
	}
}

// short takes so many bytes, and then fails.
type short struct {
	http.ResponseWriter
	room int
}

func (s *short) Write(p []byte) (int, error) {
	n := min(len(p), s.room)
	if s.room -= n; n < len(p) {
		return n, http.ErrHandlerTimeout
	}
	return n, nil
}

// A handler learns how much of what it wrote the client's connection took.
func TestShortWrite(t *testing.T) {
	const room = 20<<10 + 1 // a piece, and a part of the next one
	q := &Request{W: &short{httptest.NewRecorder(), room}, Stage: &Stage{Timeout: time.Hour}}
	w := &writer{q: q, ctx: &Context{timeout: time.Hour, reading: direct}}
	if n, err := w.sendBody(make([]byte, 64<<10)); n != room || err != http.ErrHandlerTimeout {
		t.Errorf("got %d, %v, want %d bytes and the connection's error", n, err, room)
	}
}
