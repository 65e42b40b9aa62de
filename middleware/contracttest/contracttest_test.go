package contracttest_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/contracttest"
	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/bare"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

var create = contracttest.Create{Path: bare.Create, Body: `{"title":"Call the bank"}`}

var bareKeys = contracttest.Keys{Full: bare.Full, None: bare.None, Sandbox: bare.Sandbox, Other: bare.Other, Revoked: bare.Revoked}

// A server that has nothing of this module keeps every rule.
func TestBareServer(t *testing.T) {
	server := bare.New(bare.DemoKeys())
	server.Limit = 60
	contracttest.Run(t, contracttest.Target{Handler: server.Handler(), Listen: bare.Listen, Keys: bareKeys, Create: create, Optional: true})
}

// So does an API of package middleware, under names of its own.
func TestAPI(t *testing.T) {
	format, requestID := keystore.Format{Prefix: "acme"}, middleware.RequestIDOptions{Header: "Acme-Request-Id"}
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	issuer := keystore.NewIssuer(keys, format)
	issue := func(organization string, environment keystore.Environment, scopes ...scope.Name) (string, *keystore.Key) {
		secret, key, err := issuer.Issue(t.Context(), keystore.Grant{Organization: organization, Actor: "test", Name: "test", Environment: environment, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return secret.Reveal(), key
	}
	all := []scope.Name{scope.AccountRead, scope.TasksWrite}
	full, _ := issue("org_1", keystore.Production, all...)
	none, _ := issue("org_1", keystore.Production)
	sandbox, _ := issue("org_1", keystore.Sandbox, all...)
	other, _ := issue("org_2", keystore.Production, all...)
	revoked, key := issue("org_1", keystore.Production, all...)
	if _, err := issuer.Revoke(t.Context(), "org_1", key.ID); err != nil {
		t.Fatal(err)
	}

	api := middleware.NewAPI(keys, middleware.Options{
		Format: format, RequestID: requestID, Replies: idem.NewMemory(idem.MemoryOptions{}),
		Limits: middleware.PerOrganization(ratelimit.NewMemory(), ratelimit.MustParse("60-S")),
	})
	api.HandleFunc("GET /api/v1/account", middleware.Require(scope.AccountRead), func(http.ResponseWriter, *http.Request) {})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", bare.Create+"/"+middleware.RequestIDFrom(r.Context()))
		w.WriteHeader(http.StatusCreated)
	})
	contracttest.Run(t, contracttest.Target{
		Handler:         api,
		Listen:          func(srv *http.Server, ln net.Listener) net.Listener { return middleware.Harden(srv, ln, requestID) },
		Keys:            contracttest.Keys{Full: full, None: none, Sandbox: sandbox, Other: other, Revoked: revoked},
		Create:          create,
		RequestIDHeader: "Acme-Request-Id",
		Optional:        true,
	})
}

// inChild tells a test that it is the one that [TestReport] runs and that fails.
const inChild = "SALLYPORT_CONTRACTTEST_CHILD"

// TestChild runs the rules on servers that break some; its failures are what TestReport looks at.
func TestChild(t *testing.T) {
	kind := os.Getenv(inChild)
	if kind == "" {
		return
	}
	broken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Svc-Request-Id", "1")
		w.WriteHeader(http.StatusUnauthorized)
	})
	target := contracttest.Target{Handler: broken, Optional: kind == "optional"}
	switch kind {
	case "url":
		srv := httptest.NewServer(broken)
		defer srv.Close()
		target = contracttest.Target{URL: srv.URL}
	case "neither":
		target = contracttest.Target{}
	}
	contracttest.Run(t, target)
}

func TestReport(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		kind string
		want []string
	}{
		{"contract", []string{
			"--- FAIL: TestChild/request-id/unique",
			"the rule (contract, section 4): No two responses have the same request id.",
			"--- PASS: TestChild/auth/missing-key",
			"--- SKIP: TestChild/auth/live-key",
			"it needs a key with all scopes",
			"--- SKIP: TestChild/wire/version",
			"--- SKIP: TestChild/auth/challenge",
			"optional, and broken",
		}},
		{"optional", []string{"--- FAIL: TestChild/auth/challenge"}},
		{"url", []string{"--- FAIL: TestChild/wire/version", "--- SKIP: TestChild/http2/request-id"}},
		{"neither", []string{"either a Handler or a URL"}},
	} {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestChild$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"="+tt.kind)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: the test passed", tt.kind)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in\n%s", tt.kind, want, out)
			}
		}
	}
}
