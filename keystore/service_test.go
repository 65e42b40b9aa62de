package keystore_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// TestResolve: who has no service of their own takes that of the Cached below,
// and two that differ are told apart, with what differs in both.
func TestResolve(t *testing.T) {
	own := scope.New(scope.Definition{Name: "parcels:read"})
	acme := keystore.Service{Prefix: "acme", Scopes: own, Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}}
	contract := keystore.Service{Scopes: scope.Contract(), Prefix: "svc", Live: "live", Test: "test"}
	with := func(change func(*keystore.Service)) keystore.Service {
		s := acme
		change(&s)
		return s
	}
	memory := keystore.NewMemory()
	cachedContract := keystore.NewCached(memory, keystore.CacheOptions{})
	cached := keystore.NewCached(memory, keystore.CacheOptions{Service: acme})
	for name, c := range map[string]struct {
		given keystore.Service
		keys  keystore.Store
		want  string // prefix, or parts of the error
	}{
		"nothing at all":          {keystore.Service{}, nil, "svc"},
		"nothing over a store":    {keystore.Service{}, memory, "svc"},
		"own over a store":        {acme, memory, "acme"},
		"nothing over a Cached":   {keystore.Service{}, cached, "acme"},
		"embedded":                {keystore.Service{}, struct{ *keystore.Cached }{cached}, "acme"},
		"the same twice":          {with(func(*keystore.Service) {}), cached, "acme"},
		"the contract's, spelled": {contract, cachedContract, "svc"},
		"forgotten in the Cached": {keystore.Service{Scopes: own}, cachedContract,
			"has scopes parcels:read;|has scopes account:read workers:read"},
		"another prefix": {with(func(s *keystore.Service) { s.Prefix = "" }), cached,
			"tokens svc_live_… and svc_test_…|tokens acme_live_…"},
		"another word": {with(func(s *keystore.Service) { s.Test = "sandbox" }), cached,
			"acme_sandbox_…|acme_test_…"},
		"another legacy shape": {with(func(s *keystore.Service) { s.Legacy = nil }), cached,
			"no legacy tokens|legacy tokens v1 (old_…)"},
		"another registry": {with(func(s *keystore.Service) { s.Scopes = scope.New(own.Definitions()...) }),
			cached, "two registries|scopes parcels:read|make one"},
		"not valid": {keystore.Service{Prefix: "No!", Live: "pub", Test: "pub"}, memory,
			`prefix "No!"|word "pub" marks|both environments`},
	} {
		got, err := c.given.Resolve(c.keys)
		if err == nil {
			if got.Prefix != c.want || got.Scopes == nil || got.Live == "" || got.Test == "" {
				t.Errorf("%s: got %+v, want the service %q with its defaults", name, got, c.want)
			}
			continue
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want it to say %q", name, err, part)
			}
		}
		if manager, ok := c.keys.(keystore.Manager); ok &&
			!panics(func() { keystore.NewIssuer(manager, keystore.IssuerOptions{Service: c.given}) }) {
			t.Errorf("%s: NewIssuer did not panic", name)
		}
	}
	if got := keystore.NewIssuer(cached, keystore.IssuerOptions{}).Service(); got.Prefix != "acme" ||
		got.Scopes != own {
		t.Errorf("an Issuer over a Cached has the service %+v", got)
	}
}

// TestServiceWords: the words for the environments are the service's own.
func TestServiceWords(t *testing.T) {
	s := keystore.Service{Prefix: "acme", Live: "prod", Test: "sandbox"}
	for e, begin := range map[keystore.Environment]string{keystore.Production: "acme_prod_",
		keystore.Sandbox: "acme_sandbox_"} {
		token := s.Generate(e).Reveal()
		got, err := s.Parse(token)
		if err != nil || got.Environment != e || !strings.HasPrefix(token, begin) {
			t.Errorf("%s: Parse(%q) = %v, %v", e, token, got.Environment, err)
		}
		if reason := reasonOf(t, keystore.Service{Prefix: "acme"}, token); reason != unknownEnvironment {
			t.Errorf("with other words %q was refused because %q", token, reason)
		}
	}
	if got, want := s.Pattern(), `acme_(prod|sandbox)_[0-9A-Za-z]{38}`; got != want {
		t.Errorf("Pattern() = %q, want %q", got, want)
	}
}

func TestPrefix(t *testing.T) {
	f := keystore.Service{Prefix: "acme2"}
	token := f.Generate(keystore.Sandbox).Reveal()
	if !strings.HasPrefix(token, "acme2_test_") || reasonOf(t, f, token) != "" {
		t.Errorf("a Format with prefix acme2 generated %q", token)
	}
	if got := reasonOf(t, keystore.Service{}, token); got != otherPrefix {
		t.Errorf("the default Format refused %q because %q, want %q", token, got, otherPrefix)
	}
	for prefix, ok := range map[string]bool{
		"": true, "svc": true, "a": true, "0": true, "az09": true, "a/": false, "a:": false, "a`": false, "a{": false,
		"abcdefghijklmnop":  true,
		"abcdefghijklmnopq": false, "Svc": false, "my_svc": false, "s-c": false, "s c": false, "é": false, ".*": false,
	} {
		for _, f := range []keystore.Service{{Prefix: prefix}, {Live: prefix}, {Test: prefix}} {
			if _, err := f.Resolve(nil); (err == nil) != ok {
				t.Errorf("%+v.Resolve(nil): got %v, want it valid: %v", f, err, ok)
			}
			for method, call := range map[string]func(){
				"Generate":  func() { f.Generate(keystore.Sandbox) },
				"NewCached": func() { keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Service: f}) },
				"NewIssuer": func() { keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{Service: f}) },
			} {
				if panicked := panics(call); panicked == ok {
					t.Errorf("%s with %+v panicked: %v, want %v", method, f, panicked, !ok)
				}
			}
		}
	}
	if !panics(func() { keystore.Service{}.Generate("staging") }) {
		t.Error("Generate for an unknown environment did not panic")
	}
}

// A text that begins like a token of this service is claimed, complete or not.
func TestClaims(t *testing.T) {
	hex := func(string) bool { return true }
	f := keystore.Service{Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "acme_"}, {Name: "v0", Match: hex}}}
	for token, want := range map[string]bool{
		"svc_live_x": true, "svc_": true, "acme_x": true, "acme_": true,
		"": false, "svc": false, "svcx_live_x": false, "acme": false, "eyJhbGciOiJIUzI1NiJ9.e30.x": false,
	} {
		if got := f.Claims(token); got != want {
			t.Errorf("Claims(%q) = %t, want %t", token, got, want)
		}
	}
	if (keystore.Service{}).Claims("acme_x") {
		t.Error("a Format without a legacy shape claims acme_x")
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}
