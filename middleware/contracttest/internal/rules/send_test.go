package rules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/reference"
)

func TestUnread(t *testing.T) {
	call := func(op string, err error) error {
		return fmt.Errorf("send: %w", &net.OpError{Op: op, Err: os.NewSyscallError(op, err)})
	}
	for err, want := range map[error]bool{
		nil:                                false,
		errors.New("reset"):                false,
		call("write", syscall.EPIPE):       true,
		call("write", syscall.ECONNRESET):  true,
		call("read", syscall.ECONNRESET):   true,
		call("dial", syscall.ECONNREFUSED): false,
		call("read", net.ErrClosed):        true,
		io.ErrClosedPipe:                   true,
	} {
		if unread(err) != want {
			t.Errorf("%v: got %t, want %t", err, !want, want)
		}
	}
}

// closing is a connection that ends before the server has read a request.
type closing struct {
	net.Conn
	written chan struct{} // nil if nothing can be written
}

func (c closing) Write(p []byte) (int, error) {
	if c.written == nil {
		return 0, &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	c.written <- struct{}{}
	return len(p), nil
}

func (c closing) Read(p []byte) (int, error) {
	if c.written == nil {
		return c.Conn.Read(p)
	}
	<-c.written
	return 0, &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

// What a server has not read is sent again, until it is clear that the server
// never reads it.
func TestUnreadRequestIsSentAgain(t *testing.T) {
	for _, resets := range []bool{false, true} {
		for closes, answered := range map[int]bool{0: true, 1: true, 5: true, 6: false} {
			synctest.Test(t, func(t *testing.T) {
				network, stop := reference.Serve(func(s *http.Server) {
					s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(201) })
				})
				defer stop()
				left := closes
				s := &Session{redact: newRedactor(nil), target: Target{URL: "http://kit.test", Dial: func(ctx context.Context, name,
					address string) (net.Conn, error) {
					conn, err := network.Dial(ctx, name, address)
					if left--; left >= 0 {
						conn = closing{Conn: conn}
						if resets {
							conn = closing{conn, make(chan struct{}, 1)}
						}
					}
					return conn, err
				}}}
				s.seen.ids = make(map[string]request)
				defer s.Close()
				a, err := s.try(t.Context(), request{method: "POST", path: "/", body: "x"})
				if (err == nil) != answered || answered && a.status != 201 || !answered && !unread(err) {
					t.Errorf("%d connections closed, reset %t: got %d, %v", closes, resets, a.status, err)
				}
			})
		}
	}
}

// losing is a connection whose first response is lost.
type losing struct {
	net.Conn
	lost *bool
}

func (c losing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !*c.lost {
		*c.lost = true
		return 0, &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

// A create without an idempotency key that is sent again makes two resources,
// also on a server that is right.
func TestLostResponse(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(p *probe) creation
		most    int
	}{
		"with a key":        {func(p *probe) creation { return p.create(0, p.full()) }, 1},
		"with an empty key": {func(p *probe) creation { return p.create(0, p.full()).keyedWith("") }, 2},
		"without a key":     {func(p *probe) creation { return p.unkeyed(0, p.full()) }, 2},
		"of nobody":         {func(p *probe) creation { return p.unkeyed(0, "") }, 0},
	} {
		made := 0
		served(t, func(w http.ResponseWriter, r *http.Request) {
			made++
			w.WriteHeader(201)
		}, func(p *probe) {
			dial, lost := p.target.Dial, false
			p.target.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return losing{conn, &lost}, err
			}
			c, other := test.prepare(p), p.unkeyed(0, p.full())
			if a := p.do(c.request); a.status != 201 || made != 2 {
				t.Errorf("%s: got %d and %d creates", name, a.status, made)
			}
			if most := p.effects.ledger[c.marker].most; most != test.most || p.effects.ledger[other.marker].most != 1 {
				t.Errorf("%s: the ledger allows %d, want %d", name, most, test.most)
			}
		})
	}
}

// The report of a body that was cut says so.
func TestCutIsShown(t *testing.T) {
	served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, func(p *probe) {
		p.sendCut(p.create(0, p.full()), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
		seen := p.seen.without
		if len(seen) != 1 || !strings.HasSuffix(p.curl(seen[0].answer.to), " # with "+cutShort) {
			t.Errorf("got %+v", seen)
		}
	})
}
