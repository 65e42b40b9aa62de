package ratelimitredis_test

import (
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// proxy is a network between clients and a server. It can keep what goes one
// way for as long as a test wants.
type proxy struct {
	listener          net.Listener
	requests, answers gate
}

// gate lets bytes through while it is open. What comes to a closed gate waits,
// even if its sender has gone.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) wait() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// startProxy returns a proxy in front of the server, with both ways open.
func startProxy(t testing.TB, s *server) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener}
	t.Cleanup(func() {
		listener.Close()
		p.requests.open()
		p.answers.open()
	})
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				far, err := net.Dial("unix", s.addr)
				if err != nil {
					near.Close()
					return
				}
				go carry(near, far, &p.requests)
				carry(far, near, &p.answers)
			}()
		}
	}()
	return p
}

func carry(from, to net.Conn, g *gate) {
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

func (p *proxy) options() *redis.Options {
	return &redis.Options{Addr: p.listener.Addr().String()}
}
