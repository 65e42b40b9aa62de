// Package pgxretrytest lets package retrytest cut off the statements of handlers
// that use pgx, on the wire. Nothing of it is in the server's own code.
//
//	retrytest.Suite{
//		Server: func(p *retrytest.Process) http.Handler {
//			pool := pgxretrytest.Pool(p, config)
//			runner := idem.NewRunner(idempgx.New(pool, idempgx.Options{}), idem.Options{Join: true})
//			return newServer(pool, p.Idempotency(middleware.IdempotencyOptions{Runner: runner, Required: true}))
//		},
//		…
//
// A step is a round trip, so a batch is one. What only prepares a statement is
// none, and so is the Sync of a pipeline that was flushed before it.
package pgxretrytest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sallyport-go/sallyport/middleware/retrytest"
)

// Pool returns a pool for a process of the server under test, which is closed
// after each run. Its connections have no TLS, whose records hide the
// statements. It panics where pgxpool.NewWithConfig fails.
func Pool(p *retrytest.Process, config *pgxpool.Config) *pgxpool.Pool {
	config = config.Copy()
	config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, statements: map[string]string{}}
		c.changed.L = &c.mu
		c.used, c.giveUp = context.WithCancel(context.Background())
		c.call = p.Conn(func() { c.Close() })
		go c.receive()
		return c, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic("pgxretrytest: " + err.Error())
	}
	p.Conn(func() { go pool.Close() }) // which waits for what a crash has left
	return pool
}

// conn is a connection to Postgres. It knows where messages begin
// (https://www.postgresql.org/docs/current/protocol-message-formats.html).
type conn struct {
	net.Conn
	call       func(ctx context.Context, statement string, do, refuse func() error) error
	statements map[string]string // prepared, by name

	mu       sync.Mutex
	used     context.Context // until pgx gives the exchange up
	giveUp   context.CancelFunc
	changed  sync.Cond
	received bytes.Buffer
	err      error // of the last read, until it is taken
	closed   bool
	sent     int // what the server has to answer
	answered int
	copies   bool // the server takes the rows of a COPY
}

// receive reads for as long as the connection is open. pgx may read in several
// goroutines, and call waits for an answer beside them.
func (c *conn) receive() {
	var rest []byte // of a message that is not whole
	for buf := make([]byte, 16<<10); ; {
		n, err := c.Conn.Read(buf)
		c.mu.Lock()
		c.received.Write(buf[:n])
		rest = append(rest, buf[:n]...)
		for size := length(rest); size <= len(rest); size = length(rest) {
			if rest[0] == 'Z' || rest[0] == 'G' { // ReadyForQuery, CopyInResponse
				c.answered++
				c.copies = rest[0] == 'G'
			}
			rest = rest[size:]
		}
		c.err = err
		c.changed.Broadcast()
		for c.err != nil && !c.closed {
			c.changed.Wait()
		}
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return
		}
	}
}

// length returns how long the first message is. A part of one is longer than
// what there is.
func length(b []byte) int {
	if len(b) < 5 {
		return 5
	}
	return 1 + int(binary.BigEndian.Uint32(b[1:]))
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.received.Reset()
	c.changed.Broadcast()
	c.mu.Unlock()
	return c.Conn.Close()
}

func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.received.Len() == 0 && c.err == nil && !c.closed {
		c.changed.Wait()
	}
	switch err := c.err; {
	case c.closed:
		return 0, net.ErrClosed
	case c.received.Len() == 0:
		c.err = nil
		c.changed.Broadcast()
		return 0, err
	}
	return c.received.Read(b)
}

// Write is a step if it makes the server do something. pgx writes whole
// messages.
func (c *conn) Write(b []byte) (int, error) {
	if len(b) == 0 || b[0] == 0 { // the startup, which has no type
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	used, copies := c.used, c.copies
	c.mu.Unlock()
	texts, answers := c.parse(b, copies)
	if texts == nil {
		return len(b), c.exchange(b, answers, false)
	}
	return len(b), c.call(used, strings.Join(texts, "; "),
		func() error { return c.exchange(b, answers, true) },
		func() error {
			const invalid = "a statement that retrytest made invalid\x00"
			query := binary.BigEndian.AppendUint32([]byte{'Q'}, 4+uint32(len(invalid)))
			return c.exchange(bytes.Repeat(append(query, invalid...), answers), answers, true)
		})
}

// parse returns what messages make the server do, and how often it answers.
func (c *conn) parse(b []byte, copies bool) (texts []string, answers int) {
	for ; len(b) >= 5 && length(b) <= len(b); b = b[length(b):] {
		fields := strings.Split(string(b[5:length(b)]), "\x00")
		switch b[0] {
		case 'Q':
			texts, answers = append(texts, fields[0]), answers+1
		case 'P':
			c.statements[fields[0]] = fields[1]
		case 'B':
			texts = append(texts, c.statements[fields[1]])
		case 'S':
			answers++
		case 'c', 'f': // the end of a COPY, also of one that was refused
			if copies {
				texts, answers = append(texts, "COPY"), answers+1
			}
		}
	}
	return texts, answers
}

// SetDeadline tells of the end of a context, with a time that has come, and
// that it is over with.
func (c *conn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.giveUp(); at.IsZero() {
		c.used, c.giveUp = context.WithCancel(context.Background())
	}
	return c.Conn.SetDeadline(at)
}

// exchange sends messages, and waits for the last answer if that is wanted.
func (c *conn) exchange(b []byte, answers int, await bool) error {
	c.mu.Lock()
	c.sent = max(c.sent, c.answered-1) + answers // a COPY that fails is answered twice
	c.mu.Unlock()
	if _, err := c.Conn.Write(b); err != nil || !await {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.answered <= c.sent && c.err == nil && !c.closed { // the first is that to the startup
		c.changed.Wait()
	}
	return nil
}
