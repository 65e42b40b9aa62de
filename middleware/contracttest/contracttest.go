// Package contracttest holds any server to the contract: API keys, scopes, request ids, idempotent creates and rate limits. It
// does not ask what the server is made of.
//
//	func TestContract(t *testing.T) {
//		contracttest.Run(t, contracttest.Target{
//			Handler: newServer(),
//			Keys:    contracttest.Keys{Full: full, None: none, Other: other},
//			Create:  contracttest.Create{Path: "/api/v1/tasks", Body: `{"title":"Call the bank"}`},
//		})
//	}
//
// Each rule is a subtest, such as TestContract/idempotency/replay, whose name does not change. A server that cannot keep one
// leaves it out with go test -skip and says so. The command contractcheck says the same about a server that is running.
package contracttest

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// Target is what is checked and what with. It needs a Handler or a URL; all else makes more rules possible. A rule that lacks
// something is skipped and says what.
type Target struct {
	// Handler is served on loopback, over HTTP/1.1 and, with TLS, over HTTP/2.
	Handler http.Handler

	// Listen wraps the listener of Handler as the program does that serves it; middleware.Harden is one way. Without it the
	// rules about what no handler sees are skipped, because such answers come from net/http.
	Listen func(*http.Server, net.Listener) net.Listener

	// URL is a server that runs elsewhere, in place of Handler. What no handler sees is its own too.
	URL string
	// RootCAs verify an https URL; nil means those of the system.
	RootCAs *x509.CertPool

	Keys Keys

	// Read is the path of a GET that Keys.Full may call; "" means /api/v1/account.
	Read   string
	Create Create

	// RequestIDHeader is the header of the request id; "" means Svc-Request-Id.
	RequestIDHeader string

	// Optional makes the test fail for the optional rules too: those of RFCs, and those that this module chose where the
	// contract leaves something open. Otherwise they are skipped where they are broken, with what was found.
	Optional bool
}

// Keys are secret keys for the cases. Their rate limits are used up.
type Keys struct {
	Full    string // may call Read and Create
	None    string // live, of the same organization and environment, without any scope
	Sandbox string // as Full, in the sandbox of the same organization
	Other   string // as Full, in another organization
	Revoked string
}

// Create is a POST that creates, some 30 times. Its response has to tell one resource from another, by the body or Location.
type Create struct {
	Path string // "" leaves out all rules about creating
	Body string
	Type string // of Body; "" means application/json
}

// limit is how long all rules may take together.
const limit = 2 * time.Minute

// Run checks the target, each rule as a subtest. It takes some ten seconds, and up to two minutes behind a low rate limit.
func Run(t *testing.T, target Target) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	session, err := rules.Open(ctx, target.start(t))
	if err != nil {
		t.Fatalf("contracttest: %v", err)
	}
	defer session.Close()
	t.Log(session.Plan())
	for all := rules.All(); len(all) > 0; {
		n := 1
		for n < len(all) && all[n].Group() == all[0].Group() {
			n++
		}
		group := all[:n]
		all = all[n:]
		t.Run(group[0].Group(), func(t *testing.T) {
			for _, r := range group {
				t.Run(r.Name[len(r.Group())+1:], func(t *testing.T) { report(t, session.Check(ctx, r), target.Optional) })
			}
		})
	}
}

func report(t *testing.T, result rules.Result, optional bool) {
	t.Helper()
	r := result.Rule
	switch {
	case result.Status == rules.Held:
	case result.Status == rules.Skipped:
		t.Skip(result.Detail)
	case r.Contract() || optional:
		t.Errorf("%s: %s\nthe rule (%s): %s", result.Status, result.Detail, r.Source, r.Text)
	default:
		t.Skipf("optional, and %s: %s\nthe rule (%s): %s", result.Status, result.Detail, r.Source, r.Text)
	}
}

// start serves the handler until the test ends, and says where.
func (target Target) start(t *testing.T) rules.Target {
	to := rules.Target{
		URL: target.URL, RootCAs: target.RootCAs, Server: target.Handler == nil || target.Listen != nil,
		Full: target.Keys.Full, None: target.Keys.None, Sandbox: target.Keys.Sandbox, Other: target.Keys.Other, Revoked: target.Keys.Revoked,
		Read: target.Read, Create: target.Create.Path, CreateBody: target.Create.Body, CreateType: target.Create.Type,
		RequestIDHeader: target.RequestIDHeader,
	}
	if (target.Handler == nil) == (target.URL == "") {
		t.Fatal("contracttest: a Target has either a Handler or a URL")
	}
	if target.Handler == nil {
		return to
	}
	quiet := log.New(io.Discard, "", 0) // malformed requests are the point
	plain := httptest.NewUnstartedServer(target.Handler)
	plain.Config.ErrorLog = quiet
	if target.Listen != nil {
		plain.Listener = target.Listen(plain.Config, plain.Listener)
	}
	plain.Start()
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(target.Handler)
	secure.Config.ErrorLog = quiet
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	to.URL, to.HTTP2URL = plain.URL, secure.URL
	to.RootCAs = x509.NewCertPool()
	to.RootCAs.AddCert(secure.Certificate())
	return to
}
