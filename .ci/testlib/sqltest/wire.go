package sqltest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A Fault is what becomes of a request, which is what a client writes at once.
type Fault uint8

const (
	None        Fault = iota
	FailWrite         // the connection breaks before it is written
	BreakBefore       // the connection breaks before the server hears of it
	BreakAfter        // the connection breaks before the answer
	BreakOff          // the answer breaks off
	BreakSoon         // the answer breaks off before its first row
	Lose              // nobody hears of it
	Deafen            // nor of any later one
	Terminate         // done; the client gets Wire.Answers in its place, and the connection breaks
	Refuse            // nobody hears of it; the client gets Wire.Answers, and the connection breaks
)

// A Wire is a network that makes faults. It may be used by several goroutines.
type Wire struct {
	Request func(c *Conn, request []byte) Fault // nil: no faults
	Answers map[Fault]string

	mu    sync.Mutex
	conns []*Conn
}

// Dial connects as a [net.Dialer] does.
func (w *Wire) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	below, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: below, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

// Conns returns the connections so far, in the order in which they were made.
func (w *Wire) Conns() []*Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*Conn(nil), w.conns...)
}

var wires atomic.Int64

// MySQL returns a configuration whose connections are the wire's.
func (w *Wire) MySQL(conf *mysql.Config) *mysql.Config {
	wired := conf.Clone()
	wired.Net = "wire" + strconv.FormatInt(wires.Add(1), 10)
	mysql.RegisterDialContext(wired.Net, func(ctx context.Context, address string) (net.Conn, error) {
		return w.Dial(ctx, conf.Net, address)
	})
	return wired
}

// A Conn is a connection of a Wire.
type Conn struct {
	net.Conn
	wire    *Wire
	deaf    atomic.Bool
	last    atomic.Pointer[Fault] // after which the connection breaks
	written atomic.Int64
}

// Written returns how many requests were made.
func (c *Conn) Written() int64 { return c.written.Load() }

// Deafen makes the connection half-open: it takes all that is sent, and nothing
// answers.
func (c *Conn) Deafen() { c.deaf.Store(true) }

func (c *Conn) Write(p []byte) (int, error) {
	c.written.Add(1)
	f := None
	if c.wire.Request != nil && !c.deaf.Load() {
		f = c.wire.Request(c, p)
	}
	switch f {
	case FailWrite:
		c.Close()
		return 0, io.ErrClosedPipe
	case BreakBefore:
		c.Close()
		return len(p), nil
	case Lose:
		return len(p), nil
	case Deafen:
		c.Deafen()
	case Refuse:
		c.last.Store(&f)
		c.SetReadDeadline(time.Unix(1, 0)) // for a Read that has begun
		return len(p), nil
	case BreakAfter, BreakOff, BreakSoon, Terminate:
		c.last.Store(&f)
	}
	if c.deaf.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *Conn) Read(p []byte) (n int, err error) {
	last := c.last.Load()
	if last == nil || *last != Refuse {
		n, err = c.Conn.Read(p)
		last = c.last.Load()
	}
	if last == nil || n == 0 && *last != Refuse {
		return n, err
	}
	c.Close()
	switch *last {
	case BreakOff:
		return max(n/2, 1), nil
	case BreakSoon:
		return min(n, 12), nil
	case Terminate, Refuse:
		return copy(p, c.wire.Answers[*last]), nil
	}
	return 0, io.ErrUnexpectedEOF
}
