package rawconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// listenTLS is [Listen] for HTTPS with the certificates of srv.TLSConfig, which it
// replaces by a copy. HTTP/2 is offered if srv serves it and NextProtos is empty
// or contains "h2". A handshake may take as long as srv.ReadHeaderTimeout or else
// srv.ReadTimeout says, ten seconds by default. The first Accept starts
// goroutines; Close ends them.
func listenTLS(srv *http.Server, ln net.Listener, o Options) net.Listener {
	config := srv.TLSConfig.Clone()
	if len(config.NextProtos) == 0 {
		// Serve sets up HTTP/2 only if it finds "h2" here.
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	srv.TLSConfig = config
	l := &tlsListener{Listener: ln, o: &o, srv: srv, conns: make(chan net.Conn), errs: make(chan error)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// tlsListener does the handshake before net/http gets the connection: HTTP/2
// needs a bare *tls.Conn, HTTP/1 the watch.
type tlsListener struct {
	net.Listener
	o      *Options
	srv    *http.Server
	start  sync.Once
	conns  chan net.Conn
	errs   chan error
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

func (l *tlsListener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.acceptAll(l.config()) })
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.errs:
		return nil, err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *tlsListener) Close() error {
	l.cancel()
	return l.Listener.Close()
}

// config offers HTTP/2 only if Serve has set it up before it called Accept.
// Protocols, TLSNextProto and GODEBUG can disable it.
func (l *tlsListener) config() *tls.Config {
	config := l.srv.TLSConfig.Clone()
	if l.srv.TLSNextProto["h2"] == nil || l.srv.Protocols != nil && !l.srv.Protocols.HTTP2() {
		config.NextProtos = slices.DeleteFunc(slices.Clone(config.NextProtos), func(p string) bool { return p == "h2" })
	}
	return config
}

// acceptAll passes errors on and continues: Serve decides which are final.
func (l *tlsListener) acceptAll(config *tls.Config) {
	for l.ctx.Err() == nil {
		c, err := l.Listener.Accept()
		if err == nil {
			go l.handshake(c, config)
			continue
		}
		select {
		case l.errs <- err:
		case <-l.ctx.Done():
		}
	}
}

// handshake runs on a goroutine of its own: a slow client delays nobody. If it
// fails, the connection is passed on too: net/http gets the same error from it,
// logs it, and answers plain HTTP.
func (l *tlsListener) handshake(raw net.Conn, config *tls.Config) {
	defer func() {
		if v := recover(); v != nil { // from a callback of the configuration
			raw.Close()
			cmp.Or(l.srv.ErrorLog, log.Default()).Printf("http: panic serving %v: %v\n%s", raw.RemoteAddr(), v, debug.Stack())
		}
	}()
	timeout := cmp.Or(l.srv.ReadHeaderTimeout, l.srv.ReadTimeout)
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	raw.SetDeadline(time.Now().Add(timeout))
	// net/http writes its answer to plain HTTP below TLS.
	c := tls.Server(wrap(raw, l.o), config)
	err := c.HandshakeContext(l.ctx)
	raw.SetDeadline(time.Time{})

	conn := net.Conn(c)
	if proto := c.ConnectionState().NegotiatedProtocol; err == nil && (proto == "" || proto == "http/1.1") {
		conn = &tlsConn{c, watch{o: l.o}}
	}
	select {
	case l.conns <- conn:
	case <-l.ctx.Done():
		raw.Close()
	}
}
