package rawconn

import (
	"context"
	"net"
	"net/http"
)

type watchKey struct{} // the context key of a *watch

// setHooks makes srv tell each watch what happens to its connection. With two
// listeners, the last hooks serve both; earlier hooks get bare connections.
func setHooks(srv *http.Server) {
	srv.DisableGeneralOptionsHandler = true

	connContext := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		w, unwrapped := find(c)
		if connContext != nil {
			ctx = connContext(ctx, unwrapped)
		}
		if w == nil {
			return ctx
		}
		return context.WithValue(ctx, watchKey{}, w)
	}

	connState := srv.ConnState
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		w, unwrapped := find(c)
		switch {
		case w != nil && s == http.StateIdle:
			w.idle()
		case w != nil && s == http.StateHijacked:
			w.hijack()
		}
		if connState != nil {
			connState(unwrapped, s)
		}
	}
}

// find returns the watch of c, or nil, and the connection without it.
func find(c net.Conn) (*watch, net.Conn) {
	if wc, ok := c.(interface {
		self() *watch
		NetConn() net.Conn
	}); ok {
		return wc.self(), wc.NetConn()
	}
	return nil, c
}
