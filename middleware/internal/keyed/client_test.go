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
