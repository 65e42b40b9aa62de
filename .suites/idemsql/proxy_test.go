package idemsql_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// fault is what becomes of a COMMIT.
type fault uint8

const (
	none       fault = iota
	before           // the connection breaks before the server hears of it
	after            // the connection breaks before the client hears of it
	terminated       // done; the client is told that its session is terminated
	hang             // nobody hears of it
	deadlock         // the server says that it rolled the transaction back
)

// proxy stands between a pool and a server and knows what a COMMIT looks like.
type proxy struct {
	port     uint16
	upstream string
	answers  map[fault]string // what the client is told in place of the server's answer
	commits  []string         // what a COMMIT looks like, in small letters

	mu       sync.Mutex
	atCommit fault // what happens at the next COMMIT
	conns    []net.Conn
}

func newProxy(t *testing.T, d database) *proxy {
	t.Helper()
	upstream, answers := "", map[fault]string(nil)
	commits := []string{"commit\x00", "\x03commit"}
	if d.pgx && d.conf.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// It binds a statement that it has prepared.
		digest := sha256.Sum256([]byte("commit"))
		commits = []string{fmt.Sprintf("\x00stmtcache_%x\x00", digest[:24])}
	}
	if d.my != nil {
		upstream = d.my.Addr
		answers = map[fault]string{
			terminated: mysqlError(1053, "08S01", "Server shutdown in progress"),
			deadlock:   mysqlError(1213, "40001", "Deadlock found when trying to get lock"),
		}
	} else {
		upstream = net.JoinHostPort(d.conf.Host, strconv.Itoa(int(d.conf.Port)))
		answers = map[fault]string{
			terminated: postgresError("57P01", "terminating connection"),
			deadlock:   postgresError("40P01", "deadlock detected"),
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{port: uint16(l.Addr().(*net.TCPAddr).Port), upstream: upstream, answers: answers, commits: commits}
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

// willFail reports whether the fault of atNextCommit is still to come.
func (p *proxy) willFail() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atCommit != none
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
	request = bytes.ToLower(request)
	if !slices.ContainsFunc(p.commits, func(c string) bool { return bytes.Contains(request, []byte(c)) }) {
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
			last <- p.answers[terminated]
		case deadlock:
			client.Write([]byte(p.answers[deadlock]))
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

// postgresError is an ErrorResponse, whose length counts itself.
func postgresError(state, message string) string {
	fields := "SFATAL\x00VFATAL\x00C" + state + "\x00M" + message + "\x00\x00"
	return "E\x00\x00\x00" + string(rune(4+len(fields))) + fields
}

// mysqlError is an ERR packet, the first one of an answer.
func mysqlError(number uint16, state, message string) string {
	body := string([]byte{0xff, byte(number), byte(number >> 8)}) + "#" + state + message
	return string([]byte{byte(len(body)), 0, 0, 1}) + body
}
