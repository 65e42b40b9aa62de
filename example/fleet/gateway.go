package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

// serveGateway answers a proxy on this machine that asks whether a request to
// another service may pass, with the keys and limits of the API. It prints the
// secret for that service.
func serveGateway(ln net.Listener, api middleware.Options, keys keystore.Store, stdout io.Writer) *http.Server {
	secret := []byte(rand.Text() + rand.Text())
	fmt.Fprintf(stdout, "export GATEWAY_SECRET=%x\n", secret)
	guard := middleware.New(keys, middleware.Options{
		Uses: api.Uses, RateLimit: api.RateLimit, Hooks: api.Hooks,
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	})
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: guard.Gateway(middleware.GatewayOptions{
		Secrets: [][]byte{secret}, AuthRequest: true,
		Requirements: map[string]middleware.Requirement{
			"tasks-read":  middleware.Require(scope.TasksRead),
			"tasks-write": middleware.Require(scope.TasksWrite),
		},
	})}
	go func() { _ = srv.Serve(ln) }()
	return srv
}
