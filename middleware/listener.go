package middleware

import (
	"cmp"
	"net"
	"net/http"

	"github.com/rs/xid"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/middleware/internal/rawconn"
)

// RequestIDListener returns a listener for srv.Serve. On it, the answers that
// net/http itself writes also carry the request id and a problem body: it
// answers malformed requests (400), oversized headers (431), unknown transfer
// codings (501), unknown versions (505) and expectations (417). The head that a
// handler writes on a hijacked connection, as WebSocket libraries do, gets the
// id. Responses of handlers are not touched and cost nothing more; sendfile
// still works.
//
// Call it before srv serves, give the result to srv.Serve as it is, and set
// srv.ConnContext and srv.ConnState before, not after: it composes with them.
// It sets srv.DisableGeneralOptionsHandler, so that "OPTIONS *" reaches the
// handler. Of the options it uses RequestIDHeader alone: there is no request
// to show to Hooks.ProblemBody. It panics on a RequestIDHeader that
// [Options.Validate] refuses.
//
// Two things stay net/http's own: the automatic "100 Continue", and over HTTP/2
// the 400 for a connection-specific field and the 431.
//
// For HTTPS, let srv.TLSConfig have the certificates before the call, and give
// the result to srv.Serve too, not to srv.ServeTLS.
func RequestIDListener(srv *http.Server, ln net.Listener, o Options) net.Listener {
	o = o.withDefaults()
	if err := validHeader(o.RequestIDHeader); err != nil {
		panic("middleware: RequestIDListener: Options.RequestIDHeader: " + err.Error())
	}
	return rawconn.Listen(srv, ln, rawconn.Options{
		Header: o.RequestIDHeader,
		NewID:  func() string { return xid.New().String() },
		Body: func(status int, id string) (string, []byte) {
			p := refusal(cmp.Or(rawCodes[status], codes.BadRequest))
			p.Status, p.requestID = status, id
			return problemType, p.append(nil)
		},
	})
}

// rawCodes has the codes of the statuses that net/http alone answers with.
var rawCodes = map[int]string{
	http.StatusExpectationFailed:           codes.Expectation,
	http.StatusRequestHeaderFieldsTooLarge: codes.HeaderTooLarge,
	http.StatusNotImplemented:              codes.TransferCoding,
	http.StatusHTTPVersionNotSupported:     codes.Version,
}
