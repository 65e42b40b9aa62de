package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Proxy is a network between clients and a server. It can keep what goes one
// way for as long as a test wants.
type Proxy struct {
	addr              string
	Requests, Answers Gate
}

// Gate lets bytes through while it is open. What comes to a closed gate waits,
// even if its sender has gone.
type Gate struct {
	way    sync.RWMutex // locked while closed
	closed atomic.Bool
}

func (g *Gate) Close() {
	if g.closed.CompareAndSwap(false, true) {
		g.way.Lock()
	}
}

func (g *Gate) Open() {
	if g.closed.CompareAndSwap(true, false) {
		g.way.Unlock()
	}
}

// StartProxy returns a proxy in front of the server, with both ways open.
func StartProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{addr: listener.Addr().String()}
	t.Cleanup(func() {
		listener.Close()
		p.Requests.Open()
		p.Answers.Open()
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", s.Addr)
			if err != nil {
				near.Close()
				continue
			}
			go carry(near, far, &p.Requests)
			go carry(far, near, &p.Answers)
		}
	}()
	return p
}

func carry(from, to net.Conn, g *Gate) {
	bytes := make([]byte, 16<<10)
	for {
		n, err := from.Read(bytes)
		if n > 0 {
			g.way.RLock()
			to.Write(bytes[:n])
			g.way.RUnlock()
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (p *Proxy) Options() *redis.Options { return &redis.Options{Addr: p.addr} }
