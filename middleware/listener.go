package middleware

import (
	"net"
	"net/http"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// Harden returns a listener for srv.Serve on which also the answers that no
// handler sees carry the request id and a problem body: net/http itself answers
// malformed requests (400), oversized headers (431), unknown transfer codings
// (501), unknown versions (505) and expectations (417). The head that a handler
// writes on a hijacked connection, as WebSocket libraries do, gets the id too.
// Responses of handlers are not touched and cost nothing more; sendfile still
// works.
//
// Call it before srv serves, give the result to srv.Serve as it is, and set
// srv.ConnContext and srv.ConnState before, not after: it composes with them. It
// sets srv.DisableGeneralOptionsHandler, so that "OPTIONS *" reaches the handler.
// The options are those of [RequestID]; Hooks.Problem is not asked, as there is no
// request to show it.
//
// Two things stay net/http's own: the automatic "100 Continue", and over HTTP/2
// the 400 for a connection-specific field and the 431. For HTTPS use [HardenTLS].
func Harden(srv *http.Server, ln net.Listener, o RequestIDOptions) net.Listener {
	return rawconn.Listen(srv, ln, o.raw())
}

// HardenTLS is [Harden] for HTTPS, with the certificates of srv.TLSConfig. Its
// result is to be given to srv.Serve, not to srv.ServeTLS.
func HardenTLS(srv *http.Server, ln net.Listener, o RequestIDOptions) net.Listener {
	return rawconn.ListenTLS(srv, ln, o.raw())
}

func (o RequestIDOptions) raw() rawconn.Options {
	errorObject := o.Hooks != nil && o.Hooks.ErrorObject
	return rawconn.Options{
		Header: o.header(),
		NewID:  func() string { return xid.New().String() },
		Body: func(status int, id string) (string, []byte) {
			p := rawProblem(status)
			p.RequestID = id
			return problemType, p.append(nil, errorObject)
		},
	}
}

// rawProblem returns the table's row for an answer that net/http gives.
func rawProblem(status int) Problem {
	code := codeBadRequest
	switch status {
	case http.StatusExpectationFailed:
		code = codeExpectation
	case http.StatusRequestHeaderFieldsTooLarge:
		code = codeHeaderTooLarge
	case http.StatusNotImplemented:
		code = codeTransferCoding
	case http.StatusHTTPVersionNotSupported:
		code = codeVersion
	}
	p := problem(code)
	p.Status = status
	return p
}
