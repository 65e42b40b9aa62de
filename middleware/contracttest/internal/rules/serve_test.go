package rules_test

import (
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// serve serves h over HTTP/1.1 and HTTP/2 until the test ends.
func serve(t *testing.T, h http.Handler, complete bool) rules.Target {
	t.Helper()
	plain, secure := httptest.NewUnstartedServer(h), httptest.NewUnstartedServer(h)
	plain.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.Config.ErrorLog = plain.Config.ErrorLog
	if complete {
		plain.Listener = bare.Listen(plain.Config, plain.Listener)
	}
	secure.EnableHTTP2 = true
	plain.Start()
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	return rules.Target{
		URL: plain.URL, HTTP2URL: secure.URL, RootCAs: roots, Server: true,
		Full: bare.Full, None: bare.None, Sandbox: bare.Sandbox, Other: bare.Other, Revoked: bare.Revoked,
		Create: bare.Create, CreateBody: `{"title":"Call the bank"}`,
	}
}

func open(t *testing.T, target rules.Target) *rules.Session {
	t.Helper()
	s, err := rules.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func rule(t *testing.T, name string) rules.Rule {
	t.Helper()
	all := rules.All()
	i := slices.IndexFunc(all, func(r rules.Rule) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no rule %q", name)
	}
	return all[i]
}

// check checks one rule on a server.
func check(t *testing.T, name string, h http.Handler, complete bool) rules.Result {
	t.Helper()
	return open(t, serve(t, h, complete)).Check(t.Context(), rule(t, name))
}
