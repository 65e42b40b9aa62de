package keystore_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// TestResolve: who has no service of their own takes that of the Cached below,
// and two that differ are told apart, with what differs in both.
func TestResolve(t *testing.T) {
	own := scope.New(scope.Definition{Name: "parcels:read"})
	acme := keystore.Service{Prefix: "acme", Scopes: own, Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}}
	contract := keystore.Service{Scopes: scope.Default(), Prefix: "svc"}
	with := func(change func(*keystore.Service)) keystore.Service {
		s := acme
		change(&s)
		return s
	}
	memory := issuing.NewMemory()
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
		"another legacy format": {with(func(s *keystore.Service) { s.Legacy = nil }), cached,
			"no legacy tokens|legacy tokens v1 (old_…)"},
		"another registry": {with(func(s *keystore.Service) { s.Scopes = scope.New(own.Definitions()...) }),
			cached, "two registries|scopes parcels:read|make one"},
		"not valid": {keystore.Service{Prefix: "No!", Legacy: []keystore.LegacyFormat{{}}}, memory, `prefix "No!"|legacy`},
	} {
		got, _, err := c.given.Resolve(c.keys)
		if err == nil {
			if got.Prefix != c.want || got.Scopes == nil {
				t.Errorf("%s: got %+v, want the service %q with its defaults", name, got, c.want)
			}
			continue
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %v, want it to say %q", name, err, part)
			}
		}
		if manager, ok := c.keys.(issuing.Store); ok &&
			!panics(func() { issuing.New(manager, issuing.Options{Service: c.given}) }) {
			t.Errorf("%s: New did not panic", name)
		}
	}
	if got := issuing.New(cached, issuing.Options{}).Service(); got.Prefix != "acme" || got.Scopes != own {
		t.Errorf("an Issuer over a Cached has the service %+v", got)
	}
}
