// Package rawconn puts the request id on the responses that no handler writes.
//
// net/http answers some requests by itself, on the bare connection: a malformed
// request (400), an oversized header block (431), an unknown transfer coding
// (501), an unknown version (505), an unknown expectation (417) and plain HTTP
// on a TLS port (400). A handler that hijacks its connection writes its own
// head. [Listen] and [ListenTLS] wrap the accepted connections, so that these
// heads carry the id as well, and so that net/http's plain text becomes a body
// of the caller's choice.
//
// # What is rewritten
//
//   - An answer of net/http itself gets one header line, the caller's body with
//     its Content-Type and Content-Length, and "Connection: close".
//   - The first head that a hijacker writes gets one header line and nothing
//     else. Every other line of that name is dropped, because a proxied upgrade
//     brings the id of its upstream along. The head may be split over any number
//     of writes: no byte of it waits for a later write, but for the start of a
//     line that can still turn out to be a line of that name.
//   - An interim head (1xx, but 101) of a hijacker gets the line too, and the
//     head after it is still looked at. "100 Continue" goes out as it is.
//   - A handler that answers without [Own] gets the line if its head has none.
//
// Everything else passes through untouched: the responses of the handlers behind
// [Own], every body, whatever a hijacker writes after its head, a hijacker's
// first bytes that are no HTTP/1 head, HTTP/2 and TLS records.
//
// # What is not covered
//
// The answers that net/http gives inside TLS under [http.Server.ServeTLS], for
// which [ListenTLS] exists; the 400 and 431 of its HTTP/2 server; the automatic
// "100 Continue"; a timeout or another answer of a handler that stands outside the
// one that calls Own, if that one has run; and bytes that go around Write and
// ReadFrom, which are those of [net.Buffers], SyscallConn and NetConn. A
// hijacker that sends its head in such a way gets no line, and the first
// thing it then writes in the ordinary way is looked at in its place.
//
// # What a hijacker sees
//
// The hijacked connection is not a *net.TCPConn or a *tls.Conn itself, so a type
// assertion to these fails; its NetConn method returns the connection that the
// listener accepted. Over TCP all methods of [net.TCPConn] are there, ReadFrom
// (sendfile, splice), CloseWrite and SyscallConn among them. Over anything else
// ReadFrom, CloseWrite and ConnectionState are there if the connection has them.
package rawconn

import (
	"context"
	"net"
	"net/http"
)

// Options says what a response gets. Header and NewID are required.
type Options struct {
	// Header is the name of the header, written as it is given.
	Header string

	// NewID makes the id of a response that no handler owns. It is called on
	// the connection's goroutine, by many connections at once. A control
	// character in an id is written as a space.
	NewID func() string

	// Body makes the body that takes the place of net/http's plain text, for
	// the status and the id of the response. It is called once for each such
	// answer, which makes it the place to count or log them too, by many
	// connections at once. An empty content type sends no Content-Type. If
	// Body is nil, net/http's own body stays.
	Body func(status int, id string) (contentType string, body []byte)
}

// Listen returns a listener whose connections carry the id on every response
// head of HTTP/1. It is to be called before srv serves, its result is to be
// given to srv.Serve or srv.ServeTLS as it is (a listener around it hides the
// connections), and only to this srv.
//
// It sets srv.ConnContext and srv.ConnState, and calls those that were set
// before, with the connections as ln accepted them. Setting them anew
// afterwards takes the ids away again. It also sets
// srv.DisableGeneralOptionsHandler, so that "OPTIONS *" reaches srv.Handler.
//
// A *tls.Conn that ln accepts is handed on bare, because net/http must see that
// very type: use [ListenTLS] for HTTPS. Under srv.ServeTLS only the answer to
// plain HTTP is covered.
//
// Listen panics if an argument is nil, if Options.NewID is nil or if
// Options.Header is no header name.
func Listen(srv *http.Server, ln net.Listener, o Options) net.Listener {
	return &listener{Listener: ln, o: install(srv, ln, o)}
}

// Own says that the request of ctx is in the hands of a handler, which sets the
// header by itself: until net/http is done with the request, no byte of its
// connection is looked at. If the handler hijacks the connection before it has
// written a head, the head that it then writes gets id.
//
// ctx is the request's or one derived from it. Own is called on the goroutine of
// the handler, before anything is written; called again, the last id counts. It
// does nothing on a connection of another listener and on HTTP/2, and it does
// not allocate.
func Own(ctx context.Context, id string) {
	if w, ok := ctx.Value(watchKey{}).(*watch); ok {
		w.own(id)
	}
}
