package idemsql_test

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"testing"
)

// proxy stands between a pool and Postgres and knows what a COMMIT looks like.
type proxy struct {
	port     uint16
	upstream string

	mu       sync.Mutex
	atCommit byte // what happens at the next COMMIT: 0, or 'b'efore it, 'a'fter it, 'h'ang
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

func (p *proxy) breakAtCommit(after bool) {
	p.set('b')
	if after {
		p.set('a')
	}
}

func (p *proxy) hangAtCommit() { p.set('h') }

func (p *proxy) set(what byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atCommit = what
}

// heal ends all connections; later ones are untroubled.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atCommit = 0
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// takeCommit returns what happens to a COMMIT, once.
func (p *proxy) takeCommit(request []byte) byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bytes.Contains(bytes.ToLower(request), []byte("commit\x00")) {
		return 0
	}
	what := p.atCommit
	p.atCommit = 0
	return what
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

	swallow := make(chan struct{}) // closed when the client gets no more answers
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
			case <-swallow:
				return // this is the answer to COMMIT
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
		case 'b':
			return
		case 'h':
			continue
		case 'a':
			close(swallow)
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
