package keystore_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

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
		f := keystore.Service{Prefix: prefix}
		if _, _, err := f.Resolve(nil); (err == nil) != ok {
			t.Errorf("%+v.Resolve(nil): got %v, want it valid: %v", f, err, ok)
		}
		for method, call := range map[string]func(){
			"Generate":  func() { f.Generate(keystore.Sandbox) },
			"NewCached": func() { keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{Service: f}) },
			"New":       func() { issuing.New(issuing.NewMemory(), issuing.Options{Service: f}) },
		} {
			if panicked := panics(call); panicked == ok {
				t.Errorf("%s with %+v panicked: %v, want %v", method, f, panicked, !ok)
			}
		}
	}
	if !panics(func() { keystore.Service{}.Generate("staging") }) {
		t.Error("Generate for an unknown environment did not panic")
	}
}

func TestMasked(t *testing.T) {
	s := keystore.Service{Prefix: "ship", Legacy: []keystore.LegacyFormat{{Name: "v1", Prefix: "old_"}}}
	for want, k := range map[string]keystore.Key{
		"ship_test_…a1b2": {Environment: keystore.Sandbox, Hint: "a1b2"},
		"ship_live_…":     {Environment: keystore.Production},
		"old_…a1b2":       {Environment: keystore.Production, Hint: "a1b2", Legacy: "v1"},
		"…a1b2":           {Environment: keystore.Production, Hint: "a1b2", Legacy: "gone"},
	} {
		if got := s.Masked(&k); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

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

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}
