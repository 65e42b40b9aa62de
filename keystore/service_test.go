package keystore_test

import (
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
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

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return
}
