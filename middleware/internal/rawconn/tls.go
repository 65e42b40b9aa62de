package rawconn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// ListenTLS is [Listen] for HTTPS. Its result is to be given to srv.Serve, not
// to srv.ServeTLS: the connections that it accepts have done their handshake.
//
// The certificates are those of srv.TLSConfig; ListenTLS panics if it has none.
// It replaces srv.TLSConfig by a copy that offers HTTP/2, unless srv.Protocols or
// srv.TLSNextProto exclude it. A connection that has negotiated HTTP/2, or
// another protocol of srv.TLSNextProto, is handed on as the bare *tls.Conn, and no
// byte of it is looked at.
//
// As with net/http, a handshake has as long as the shortest of
// srv.ReadHeaderTimeout, srv.ReadTimeout and srv.WriteTimeout allows, but ten
// seconds if none of them is set, and its failure goes to srv.ErrorLog. Other than
// with net/http, srv.ConnContext and srv.ConnState see a connection only after the
// handshake, and a plain HTTP request gets an answer whose end the client sees.
//
// The goroutines that accept and shake hands begin with the first Accept and
// end with Close, which also ends the handshakes that are under way.
func ListenTLS(srv *http.Server, ln net.Listener, o Options) net.Listener {
	l := &tlsListener{
		Listener: ln,
		o:        install(srv, ln, o),
		srv:      srv,
		ready:    make(chan accepted),
	}
	c := srv.TLSConfig
	if c == nil || len(c.Certificates) == 0 && c.GetCertificate == nil && c.GetConfigForClient == nil {
		panic("rawconn: Server.TLSConfig has no certificate")
	}
	srv.TLSConfig = c.Clone()
	srv.TLSConfig.NextProtos = slices.Clone(c.NextProtos)
	// Without this, Serve does not set up its HTTP/2 server.
	if wantsHTTP2(srv) && !slices.Contains(c.NextProtos, "h2") {
		srv.TLSConfig.NextProtos = append(srv.TLSConfig.NextProtos, "h2")
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

type tlsListener struct {
	net.Listener
	o      *Options
	srv    *http.Server
	config *tls.Config // set by the first Accept
	start  sync.Once
	ready  chan accepted
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

type accepted struct {
	conn net.Conn
	err  error
}

func (l *tlsListener) Accept() (net.Conn, error) {
	l.start.Do(func() {
		// Not before Serve has decided about HTTP/2.
		l.config = serverConfig(l.srv)
		go l.acceptAll()
	})
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l *tlsListener) Close() error {
	l.cancel()
	return l.Listener.Close()
}

func (l *tlsListener) acceptAll() {
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			go l.handshake(c)
			continue
		}
		// The caller decides whether err is a reason to stop, and it may wait
		// before it asks again.
		if !l.hand(accepted{err: err}) {
			return
		}
	}
}

// hand gives a to Accept, or reports that the listener is closed.
func (l *tlsListener) hand(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// handshake runs on a goroutine of its own, so that a slow client holds up
// nobody.
func (l *tlsListener) handshake(raw net.Conn) {
	defer func() {
		if v := recover(); v != nil { // from a callback of the tls.Config
			raw.Close()
			l.logf("http: panic serving %v: %v\n%s", raw.RemoteAddr(), v, debug.Stack())
		}
	}()
	raw.SetDeadline(time.Now().Add(handshakeTimeout(l.srv)))
	c := tls.Server(raw, l.config)
	if err := c.HandshakeContext(l.ctx); err != nil {
		if l.ctx.Err() == nil {
			l.refuse(raw, err)
		}
		raw.Close()
		return
	}
	raw.SetDeadline(time.Time{})
	conn := net.Conn(c)
	switch c.ConnectionState().NegotiatedProtocol {
	case "", "http/1.1", "http/1.0":
		conn = wrap(c, l.o)
	}
	if !l.hand(accepted{conn: conn}) {
		raw.Close()
	}
}

// refuse logs why the handshake failed and answers a client that speaks plain
// HTTP.
func (l *tlsListener) refuse(raw net.Conn, err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil || !looksLikeHTTP(header.RecordHeader) {
		l.logf("http: TLS handshake error from %s: %v", raw.RemoteAddr(), err)
		return
	}
	l.logf("http: TLS handshake error from %s: client sent an HTTP request to an HTTPS server", raw.RemoteAddr())
	io.WriteString(wrap(raw, l.o), plainOnTLS)
	// To close while there is something left to read would reset the
	// connection, and the client might lose the answer.
	if half, ok := raw.(halfCloser); ok && half.CloseWrite() == nil {
		raw.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		io.Copy(io.Discard, io.LimitReader(raw, 256<<10))
	}
}

func (l *tlsListener) logf(format string, args ...any) {
	if l.srv.ErrorLog != nil {
		l.srv.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...)
}

func looksLikeHTTP(start [5]byte) bool {
	switch string(start[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

func handshakeTimeout(srv *http.Server) time.Duration {
	shortest := time.Duration(0)
	for _, d := range []time.Duration{srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout} {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	if shortest == 0 {
		return 10 * time.Second
	}
	return shortest
}

// wantsHTTP2 says what net/http is about to decide, as far as fields tell.
func wantsHTTP2(srv *http.Server) bool {
	if srv.Protocols != nil {
		return srv.Protocols.HTTP2()
	}
	return srv.TLSNextProto == nil || srv.TLSNextProto["h2"] != nil
}

// serverConfig offers what srv has turned out to serve. To offer HTTP/2 to a
// client when net/http has it disabled, by GODEBUG for example, would have net/http
// close the connection without an answer.
func serverConfig(srv *http.Server) *tls.Config {
	config := srv.TLSConfig.Clone()
	config.NextProtos = offer(config.NextProtos, "h2", wantsHTTP2(srv) && srv.TLSNextProto["h2"] != nil)
	config.NextProtos = offer(config.NextProtos, "http/1.1", srv.Protocols == nil || srv.Protocols.HTTP1())
	return config
}

// offer returns a copy of protos, which are in the order of preference, with or
// without name.
func offer(protos []string, name string, want bool) []string {
	protos = slices.Clone(protos)
	if want && !slices.Contains(protos, name) {
		return append(protos, name)
	}
	return slices.DeleteFunc(protos, func(p string) bool { return p == name && !want })
}
