// Package contracttest checks whether a server keeps the contract: API keys,
// scopes, request ids, idempotent creates and rate limits. It and its command
// contractcheck know nothing of Sallyport and check any server, in any
// language, by what it answers.
//
//	func TestContract(t *testing.T) {
//		contracttest.Run(t, contracttest.Target{
//			Handler: newServer(),
//			Keys:    contracttest.Keys{Full: full, None: none},
//			Creates: []contracttest.Create{{
//				Path: "/api/v1/tasks",
//				Body: `{"title":"{{random}}"}`,
//				List: "/api/v1/tasks",
//			}},
//			Without: []string{
//				"worker", "reader", "writer", "second", "revoked", "other",
//				"sandbox", "sandbox-none", "second-create", "rate-limit",
//			},
//		})
//	}
//
// Each rule that is checked is a subtest, such as
// TestContract/idempotency/replay, whose name does not change. The last line
// of the log counts the rules, and names those that were not checked because
// the Target does not offer what they need: no test is skipped. A rule has one
// of four levels. A contract rule is the letter of the contract; breaking it
// fails the test, and so does a contract rule that could not be checked
// because the Target lacks what it needs: a Target says by name, in Without,
// what it does not offer. No rule depends on how fast the machine is: a rate
// limit that the target answers too slowly to reach counts as not offered, and
// the log says why. A reading follows from a reasonable reading of the
// contract that is not the only one; breaking it is a warning in the log.
// Advice is what RFCs and common practice recommend where the contract is
// silent. Wire rules are about responses that an HTTP server writes without
// asking its program.
//
// The command contractcheck says the same about a server in any language:
//
//	go install github.com/sallyport-go/sallyport/middleware/contracttest/cmd/contractcheck@latest
package contracttest

import (
	"cmp"
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

// Target is what is checked. It needs a Handler or a URL, and Keys.Full.
type Target struct {
	// Handler is served on loopback, over HTTP/1.1 and HTTP/2 without TLS.
	Handler http.Handler
	// Listen prepares the server and the listener of Handler as the program
	// does that serves it, for the wire rules.
	Listen func(*http.Server, net.Listener) net.Listener

	// URL is a server that runs elsewhere, in place of Handler, without the
	// base path.
	URL string
	// RootCAs verify an https URL; nil means those of the system.
	RootCAs *x509.CertPool

	Keys Keys

	// Base is the path that all routes begin with; "" means /api/v1, and / that
	// there is none.
	Base string
	// Read is the path of a GET that asks for a scope, which Keys.Full has and
	// Keys.None lacks; "" means Base/account.
	Read string
	// Creates are routes that create, at most two. Where the contract has
	// more, give the two that differ most.
	Creates []Create

	// Without names what the target does not offer: keys by the names that they
	// have in a keys file, "create", "second-create", "list", "second-list" and
	// "rate-limit". Rules that need it are left out. Without a name here they
	// fail, so that no test passes that has not looked.
	Without []string

	RequestIDHeader string // header of the request id; "" means Svc-Request-Id

	// Timeout bounds the whole check; 0 means a bound by the server's speed:
	// two minutes for a fast one, ten for one of 2 s a response.
	Timeout time.Duration

	Advice bool // fail for warnings and advice too
	Wire   bool // check the wire rules too, which no stock server keeps
}

// Keys are secret keys. Their rate limits are used up. Full is required; all
// others make more rules possible.
type Keys struct {
	Full        string // may call Read, Creates and their lists
	None        string // of the same organization, without any scope
	Worker      string // of the same organization, with none but other scopes, such as an external worker's
	Reader      string // of the same organization, may read and list, may change nothing
	Writer      string // of the same organization, may create, may not list
	Second      string // as Full
	Sandbox     string // as Full, in the sandbox of the same organization
	SandboxNone string // in the sandbox, without any scope
	Other       string // as Full, in another organization
	Revoked     string // of the same organization
}

// Create is a POST that creates. A check makes some hundred resources, which
// are not removed.
type Create struct {
	Path string
	// Body is sent with {{random}}, {{uuid}} and {{number}} replaced by values
	// that no other create of the check has. Something in it should be random,
	// so that duplicates are told from what others create meanwhile.
	Body string
	Type string // of Body; "" means application/json
	// List is the path of a GET that shows what was created, the newest first
	// if it is paged. Without it nobody sees whether a repeat has created
	// again behind its response.
	List string
}

// Run checks the target, each rule as a subtest.
func Run(t *testing.T, target Target) {
	t.Helper()
	session, err := rules.Open(t.Context(), target.start(t))
	if err != nil {
		t.Fatalf("contracttest: %v", err)
	}
	defer session.Close()
	t.Log(session.Plan())
	timeout := target.Timeout
	if timeout == 0 {
		timeout = session.Budget()
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()

	var groups []string
	var all []rules.Result
	results := make(map[string][]rules.Result)
	count := make(map[rules.Status]int)
	var unchecked []string
	session.Run(ctx, func(rules.Rule) bool { return true }, func(r rules.Result) {
		group := r.Rule.Group()
		count[r.Status]++
		if r.Status == rules.LeftOut || r.Status == rules.Skipped {
			unchecked = append(unchecked, r.Rule.Name)
			if !r.Failed(true, target.Advice) {
				return
			}
		}
		if results[group] == nil {
			groups = append(groups, group)
		}
		results[group] = append(results[group], r)
		all = append(all, r)
	})
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			for _, r := range results[group] {
				t.Run(strings.TrimPrefix(r.Rule.Name, group+"/"), func(t *testing.T) { report(t, r, target.Advice) })
			}
		})
	}
	for _, cause := range rules.Causes(all) {
		if r := cause[0]; r.Failed(true, target.Advice) {
			t.Logf("%s is %s: %s\n  also: %s", r.Rule.Name, r.Status, r.Detail, cmp.Or(cause.Others(), "no other"))
		}
	}
	t.Logf("%d rules held, %d broken, %d unclear, %d not offered: %s", count[rules.Held], count[rules.Broken],
		count[rules.Unclear], len(unchecked), cmp.Or(strings.Join(unchecked, ", "), "none"))
}

func report(t *testing.T, r rules.Result, advice bool) {
	t.Helper()
	if r.Failed(true, advice) {
		t.Error(r.Explain())
	} else if r.Status != rules.Held {
		t.Logf("%s, which does not fail the test: %s", r.Rule.Level, r.Explain())
	}
}

// start serves the handler until the test ends, and says where.
func (target Target) start(t *testing.T) rules.Target {
	to := rules.Target{
		URL: target.URL, RootCAs: target.RootCAs,
		Base: target.Base, Read: target.Read, Without: target.Without,
		RequestIDHeader: target.RequestIDHeader, Wire: target.Wire,
		Keys: map[string]string{
			"full": target.Keys.Full, "none": target.Keys.None, "worker": target.Keys.Worker,
			"reader": target.Keys.Reader, "writer": target.Keys.Writer, "second": target.Keys.Second,
			"sandbox": target.Keys.Sandbox, "sandbox-none": target.Keys.SandboxNone,
			"other": target.Keys.Other, "revoked": target.Keys.Revoked,
		},
	}
	for _, c := range target.Creates {
		to.Creates = append(to.Creates, rules.Create(c))
	}
	if (target.Handler == nil) == (target.URL == "") {
		t.Fatal("contracttest: a Target has either a Handler or a URL")
	}
	if target.Handler != nil && target.RootCAs != nil || target.URL != "" && target.Listen != nil {
		t.Fatal("contracttest: RootCAs are for a URL, and Listen is for a Handler")
	}
	if target.Handler == nil {
		return to
	}
	// Both versions at one address: a server may tell its hosts apart.
	srv := httptest.NewUnstartedServer(target.Handler)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // malformed requests are the point
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	if target.Listen != nil {
		srv.Listener = target.Listen(srv.Config, srv.Listener)
	}
	srv.Start()
	t.Cleanup(func() { stop(t, srv) })
	to.URL = srv.URL
	return to
}

// stop closes a server. It does not wait for a handler that hangs, because
// then the test would end without its report.
func stop(t *testing.T, srv *httptest.Server) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		srv.CloseClientConnections()
		srv.Close()
	}()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
		t.Log("contracttest: a handler goes on after its connection was closed; nobody waits for it")
	}
}
