// Package rawconn puts the request id on the responses that no handler writes.
//
// [Listen] wraps the accepted connections and rewrites, over HTTP/1, and nothing
// else:
//
//   - What net/http answers by itself, as middleware.RequestIDListener lists it,
//     and plain HTTP on a TLS port (400): it gets the id, and the caller's body in
//     place of net/http's plain text.
//   - The first write after a hijack, if it begins with a status line: it gets
//     the id and loses other fields of that name, which reverse proxies copy.
//   - The head of a handler that never calls [Own], if it has no id.
//
// Not covered are the 400 and 431 of net/http's HTTP/2 server; the automatic
// "100 Continue"; what is written outside the handler that called Own; a hijacker
// that writes its status line in pieces, with [net.Buffers] or through NetConn.
package rawconn

import (
	"context"
	"net"
	"net/http"
)

// Options are all required. Many connections call the functions at once.
type Options struct {
	Header string        // a valid field name, written as given
	NewID  func() string // the id of a response that no handler owns

	// Body returns what replaces net/http's plain text.
	Body func(status int, id string) (contentType string, body []byte)
}

// Listen returns a listener whose connections put the id on every response. The
// caller of middleware.RequestIDListener is told what it must do, and what Listen
// changes in srv. Connections that speak TLS already are not wrapped.
func Listen(srv *http.Server, ln net.Listener, o Options) net.Listener {
	setHooks(srv)
	if c := srv.TLSConfig; c != nil &&
		(len(c.Certificates) > 0 || c.GetCertificate != nil || c.GetConfigForClient != nil) {
		return listenTLS(srv, ln, o)
	}
	return &listener{ln, &o}
}

type listener struct {
	net.Listener
	o *Options
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c = wrap(c, l.o)
	}
	return c, err
}

// Own tells the connection that a handler has the request of ctx and sets the
// id by itself. Until net/http is done with the request, nothing is inspected
// but a hijacker's first write, which gets this id. Call it on the handler's
// goroutine before anything is written; the last call counts. Over HTTP/2 and on
// other connections it does nothing.
func Own(ctx context.Context, id string) {
	if w, ok := ctx.Value(watchKey{}).(*watch); ok {
		w.own(id)
	}
}
