package idemsql_test

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"testing"
)

// fault is what becomes of a COMMIT.
type fault uint8

const (
	none       fault = iota
	before           // the connection breaks before Postgres hears of it
	after            // the connection breaks before the client hears of it
	terminated       // done; the client is told that its session is terminated
	hang             // nobody hears of it
)

// proxy stands between a pool and Postgres and knows what a COMMIT looks like.
type proxy struct {
	port     uint16
	upstream string

	mu       sync.Mutex
	atCommit fault // what happens at the next COMMIT
	conns    []net.Conn
}

func newProxy(t *testing.T, host string, port uint16) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{port: uint16(l.Addr().(*net.TCPAddr).Port), upstream: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	t.Cleanup(func() {
		l.Close()
		p.heal()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// atNextCommit says what happens to the next COMMIT.
func (p *proxy) atNextCommit(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atCommit = f
}

// heal ends all connections; later ones are untroubled.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atCommit = none
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// takeCommit returns what happens to a COMMIT, once.
func (p *proxy) takeCommit(request []byte) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bytes.Contains(bytes.ToLower(request), []byte("commit\x00")) {
		return none
	}
	f := p.atCommit
	p.atCommit = none
	return f
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	defer client.Close()
	defer server.Close()

	last := make(chan string, 1) // what the client gets in place of the next answer
	go func() {
		defer client.Close()
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			select {
			case instead := <-last:
				client.Write([]byte(instead))
				return
			default:
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		switch p.takeCommit(buf[:n]) {
		case before:
			return
		case hang:
			continue
		case after:
			last <- ""
		case terminated:
			// An ErrorResponse, whose length counts itself.
			fields := "SFATAL\x00VFATAL\x00C57P01\x00Mterminating connection\x00\x00"
			last <- "E\x00\x00\x00" + string(rune(4+len(fields))) + fields
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
