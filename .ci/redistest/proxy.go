package redistest

import (
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Proxy is a network between clients and a server. It can keep what goes one
// way for as long as a test wants.
type Proxy struct {
	listener          net.Listener
	Requests, Answers Gate
}

// Gate lets bytes through while it is open. What comes to a closed gate waits,
// even if its sender has gone.
type Gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open
}

func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *Gate) wait() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// StartProxy returns a proxy in front of the server, with both ways open.
func StartProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener}
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
			go func() {
				far, err := net.Dial("unix", s.Addr)
				if err != nil {
					near.Close()
					return
				}
				go carry(near, far, &p.Requests)
				carry(far, near, &p.Answers)
			}()
		}
	}()
	return p
}

func carry(from, to net.Conn, g *Gate) {
	bytes := make([]byte, 16<<10)
	for {
		n, err := from.Read(bytes)
		if n > 0 {
			g.wait()
			to.Write(bytes[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (p *Proxy) Options() *redis.Options {
	return &redis.Options{Addr: p.listener.Addr().String()}
}
