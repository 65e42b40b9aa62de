package rawconn

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
)

type listener struct {
	net.Listener
	o *Options
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.(*tls.Conn); ok {
		return c, nil
	}
	return wrap(c, l.o), nil
}

type watchKey struct{}

// install checks the arguments and puts the hooks into srv. A server may have
// several listeners: the hooks of the last one serve the connections of all, and
// the earlier ones get to see the connections below.
func install(srv *http.Server, ln net.Listener, o Options) *Options {
	switch {
	case srv == nil:
		panic("rawconn: nil server")
	case ln == nil:
		panic("rawconn: nil listener")
	case o.NewID == nil:
		panic("rawconn: Options.NewID is nil")
	case !validName(o.Header):
		panic("rawconn: Options.Header is not a header name: " + o.Header)
	}
	srv.DisableGeneralOptionsHandler = true

	connContext := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		w, below := find(c)
		if connContext != nil {
			ctx = connContext(ctx, below)
		}
		if w == nil {
			return ctx
		}
		return context.WithValue(ctx, watchKey{}, w)
	}

	connState := srv.ConnState
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		w, below := find(c)
		if w != nil {
			switch s {
			case http.StateIdle:
				w.idle()
			case http.StateHijacked:
				w.hijack()
			}
		}
		if connState != nil {
			connState(below, s)
		}
	}
	return &o
}

// find returns the watch of c, if it has one, and the connection that the
// server's other hooks are to see. To hide c from these also keeps the hooks of
// another listener from declaring it idle twice.
func find(c net.Conn) (*watch, net.Conn) {
	if wc, ok := c.(watched); ok {
		return wc.watched(), wc.NetConn()
	}
	return nil, c
}

// validName reports whether s is a token (RFC 9110, section 5.6.2).
func validName(s string) bool {
	for _, c := range []byte(s) {
		alnum := '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
